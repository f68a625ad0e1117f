"""The SDK's low-level server, with the registered methods as handlers, behind middleware."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.caching import CacheHint
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from pydantic import ValidationError

from bridge.protocol.messages import ProtocolError, client_name
from bridge.protocol.versions import CAPABILITIES_KEY, INTERNAL_ERROR, INVALID_PARAMS, LOG_LEVEL_KEY, MODERN_VERSIONS
from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.channel import HandshakeChannel, ModernChannel, client_of
from bridge.server.core import DISCOVERY_TTL_MS
from bridge.server.http.requests import BODY_BYTES, REQUEST
from bridge.server.http.session import SESSION
from bridge.server.limits.accounts import account_of
from bridge.server.listing import CACHE_SCOPE
from bridge.server.methods.logging import SetLevel
from bridge.server.methods.method import session_id
from bridge.server.methods.registry import methods_of
from bridge.server.methods.resources import ResourcesSubscribe, ResourcesUnsubscribe
from bridge.server.methods.subscriptions import ChangeNotifier
from bridge.telemetry import switch
from bridge.telemetry.conventions import TRACE_KEYS, trace_in
from bridge.tools.channel import LOG_LEVELS
from bridge.tools.context import InvocationContext
from bridge.tools.questions import InputRequired
from bridge.wire.tasks import without_tasks
from bridge.wire.tools import forwarded_meta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
    from mcp.server.lowlevel.server import HandlerEntry
    from mcp.server.models import InitializationOptions
    from mcp_types import RequestParamsMeta, ServerCapabilities

    from bridge.server.auth.access import Access
    from bridge.server.channel import Request
    from bridge.server.core import ServerCore
    from bridge.server.fast_channel import FastChannel
    from bridge.server.http.sessions import Session
    from bridge.server.methods.logging import LogLevels
    from bridge.server.methods.method import Method
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.operations import ServerOperation
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")
_EMPTY: Mapping[str, Any] = {}
_OF_SESSIONS = frozenset({SetLevel.name, ResourcesSubscribe.name, ResourcesUnsubscribe.name})

STATE_TTL_SECONDS = 3600.0
"""Seconds within which a client must answer the questions of a call."""


def build_server(publisher: ServerCore) -> SdkServer:
    """Create the SDK's server for a publisher."""
    methods = methods_of(publisher)

    def header_schema(name: str) -> Mapping[str, Any] | None:
        return publisher.views.of(access_of_request()).catalog.header_schema(name)

    server = SdkServer(
        publisher.name,
        version=publisher.version,
        title=publisher.title,
        instructions=publisher.own_instructions,
        cache_hints={"server/discover": CacheHint(ttl_ms=DISCOVERY_TTL_MS, scope=CACHE_SCOPE)},
        get_tool_input_schema=header_schema,
    )
    server.publisher, server.methods = publisher, methods
    for name, method in methods.items():
        if (params_type := method.params_type()) is not None:
            server.add_request_handler(name, params_type, _handler(method, publisher, server.log_levels))
    security = (
        RequestStateSecurity.ephemeral(ttl=STATE_TTL_SECONDS)
        if publisher.state_keys is None
        else RequestStateSecurity(keys=list(publisher.state_keys), ttl=STATE_TTL_SECONDS)
    )
    boundary = RequestStateBoundary(security, default_audience=publisher.name)
    observer = switch.observer()
    # Replaces the SDK's own middleware, which opens spans if a program has set up OpenTelemetry.
    observing = server.middleware if observer is None else [_telemetry(publisher, methods, observer)]
    notifier = ChangeNotifier(publisher.changes, publisher.resources)
    announcing = partial(_with_extensions, publisher)
    server.middleware[:] = [_guard, notifier, _check_trace, *observing, _explain_state, announcing, boundary]
    return server


class SdkServer(Server[Any]):
    """The SDK's server, which declares list changes in both eras."""

    publisher: ServerCore
    """The server without the SDK."""
    methods: Mapping[str, Method]
    """The served methods, and their state."""
    is_stateless = False
    """True if the handshake era has no sessions, and thus neither notifications of changes nor subscriptions."""

    @property
    def log_levels(self) -> LogLevels:
        """The levels that clients have set by ``logging/setLevel``."""
        method = self.methods[SetLevel.name]
        assert isinstance(method, SetLevel)
        return method.levels

    def end_subscriptions(self) -> None:
        """End every subscription of the modern era by its result."""
        for method in self.methods.values():
            method.close()

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the SDK's options, with ``listChanged`` by default unless the server is stateless."""
        options = super().create_initialization_options(
            notification_options or NotificationOptions(*(not self.is_stateless,) * 3),
            experimental_capabilities,
            extensions,
        )
        if self.is_stateless:
            options.capabilities.logging = None
            if options.capabilities.resources is not None:
                options.capabilities.resources.subscribe = False
        return options

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        """Return the SDK's capabilities, with the extensions of the modern era; for others see `_with_extensions`."""
        if protocol_version in MODERN_VERSIONS:
            extensions = self.publisher.extensions
        return super().get_capabilities(
            notification_options, experimental_capabilities, extensions or None, protocol_version=protocol_version
        )

    def get_request_handler(self, method: str) -> HandlerEntry[Any] | None:
        """Return the handler of a method; None if the server does not have it."""
        return None if self.is_stateless and method in _OF_SESSIONS else super().get_request_handler(method)


def _handler(method: Method, publisher: ServerCore, levels: LogLevels) -> Callable[[Request, Any], Awaitable[Any]]:
    """Return the SDK's handler of a method."""

    async def handle(ctx: Request, params: Any) -> Any:
        request = _HandlerRequest(ctx, publisher, levels)
        running = running_call(ctx, publisher)
        try:
            if running is not None:
                return await running.outcome(request.open_channel())
            return await method.handle(request, params)
        except InputRequired as asked:
            return request.input_required(asked)
        except ProtocolError as error:
            raise MCPError(error.code, error.message, error.data) from None
        finally:
            request.close()
            if running is not None:
                publisher.handed_over.pop(ctx.request_id or 0, None)

    return handle


class _HandlerRequest:
    """A `HandlerRequest`, with the channel from its call to the client."""

    def __init__(self, ctx: Request, publisher: ServerCore, levels: LogLevels) -> None:
        self.sdk = ctx
        self.modern = ctx.protocol_version in MODERN_VERSIONS
        self._publisher = publisher
        self._levels = levels
        self._channel: HandshakeChannel | ModernChannel | None = None

    @property
    def access(self) -> Access:
        return access_of_request()

    @contextmanager
    def running(self) -> Iterator[InvocationContext]:
        context = self._context(self.open_channel())
        # The session is in use while the call runs, even after its client has disconnected.
        with self._publisher.running.entered(context.account), _session_of(self.sdk) or nullcontext():
            yield context

    def open_channel(self) -> HandshakeChannel | ModernChannel:
        """Open the channel to the client."""
        self._channel = self._new_channel()
        return self._channel

    def input_required(self, asked: InputRequired) -> Json:
        """Return the result that asks the client; in the handshake era, which has no such result, raise an error.

        Raises:
            MCPError: The client cannot be asked.
        """
        channel, sdk = self._channel, self.sdk
        if isinstance(channel, ModernChannel):
            try:
                return channel.input_required(asked)
            except ProtocolError as error:
                raise MCPError(error.code, error.message, error.data) from None
        name = (sdk.params or _EMPTY).get("name", sdk.method)
        _logger.error("%s %r asked for another round, which this era does not have", sdk.method, name, exc_info=asked)
        raise MCPError(INTERNAL_ERROR, f"the tool {name!r} cannot be used by this client") from None

    def close(self) -> None:
        """Drop further messages to the client, because the request has ended."""
        if self._channel is not None:
            self._channel.close()

    def _new_channel(self) -> HandshakeChannel | ModernChannel:
        sdk = self.sdk
        if self.modern:
            meta = (sdk.params or _EMPTY).get("_meta") or _EMPTY
            level = meta.get(LOG_LEVEL_KEY)
            return ModernChannel(sdk, meta.get(CAPABILITIES_KEY) or {}, level if level in LOG_LEVELS else None)
        declared = sdk.session.client_capabilities
        capabilities = {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)
        client = sdk.session.client_params  # None without a session, whose client was not told of log messages
        level = None if client is None else self._levels.of(client)
        session, close_post = _session_of(sdk), sdk.close_sse_stream
        peer = self._publisher.stdio_client if sdk.request is None else session
        end_stream = None
        if session is not None and close_post is not None:
            end_stream = partial(session.close_stream, sdk.request_id, close_post)
        return HandshakeChannel(sdk, without_tasks(capabilities), level, self._publisher.running, peer, end_stream)

    def _context(self, channel: HandshakeChannel | ModernChannel) -> InvocationContext:
        sdk, caller = self.sdk, caller_of_request()
        session = session_id(sdk)
        return InvocationContext(
            memory_id=session if caller is None else caller.name,
            caller=caller,
            headers=_EMPTY if sdk.request is None else sdk.request.headers,
            client_capabilities=channel.capabilities,
            protocol_version=sdk.protocol_version,
            meta=forwarded_meta((sdk.params or _EMPTY).get("_meta")),
            channel=channel,
            round=channel.round,
            resumption=channel.resumption,
            account=account_of(sdk),
        )


def running_call(request: Request, publisher: ServerCore) -> FastChannel | None:
    """The channel of the call that runs already for a request that the fast path has handed over; None without one."""
    if request.request_id is None:
        return None
    if request.request is None:
        return publisher.handed_over.get(request.request_id)
    over_http = request.request.scope.get(REQUEST)
    return None if over_http is None else over_http.channel


async def _answered_in(session: Session, ctx: Request, call_next: CallNext) -> HandlerResult:
    """Handle a request of a session; its response counts in the session's memory until it is sent."""
    answer: HandlerResult = None
    try:
        body_bytes = 0 if ctx.request is None else ctx.request.scope.get(BODY_BYTES, 0)
        with session.handling(ctx.request_id, body_bytes):
            answer = await call_next(ctx)
    except Exception:
        session.owe(ctx.request_id, None)
        raise
    session.owe(ctx.request_id, answer)
    return answer


def _session_of(request: Request) -> Session | None:
    return None if request.request is None else request.request.scope.get(SESSION)


async def _guard(ctx: Request, call_next: CallNext) -> HandlerResult:
    """Raise errors of the protocol only, because the SDK would send the text of others to the client."""
    session = None if ctx.request_id is None else _session_of(ctx)
    try:
        return await (call_next(ctx) if session is None else _answered_in(session, ctx, call_next))
    except (MCPError, ValidationError):
        raise
    except ProtocolError as error:
        raise MCPError(error.code, error.message, error.data) from None
    except Exception:
        _logger.exception("a request for %r failed", ctx.method)
        raise MCPError(INTERNAL_ERROR, "internal error; the server's log says why") from None


async def _check_trace(ctx: Request, call_next: CallNext) -> HandlerResult:
    """Remove malformed trace values from ``_meta``, on which OpenTelemetry would raise in the SDK."""
    if ctx.meta and not TRACE_KEYS.isdisjoint(ctx.meta):
        others = {key: value for key, value in ctx.meta.items() if key not in TRACE_KEYS}
        ctx = replace(ctx, meta=cast("RequestParamsMeta", others | trace_in(ctx.meta)))
    return await call_next(ctx)


async def _explain_state(ctx: Request, call_next: CallNext) -> HandlerResult:
    """Explain an invalid state to the client that waits for the call."""
    try:
        return await call_next(ctx)
    except MCPError as error:
        if not isinstance(error.data, dict) or error.data.get("reason") != "invalid_request_state":
            raise
        reason = "the call began in another process, or too long ago: its outcome is unknown, and it was not run again"
        raise MCPError(error.code, f"{error.message}: {reason}", error.data) from None


async def _with_extensions(publisher: ServerCore, ctx: Request, call_next: CallNext) -> HandlerResult:
    """Add the extensions to the result of the handshake; the SDK omits what its revision does not define."""
    result = await call_next(ctx)
    if ctx.method == "initialize" and isinstance(result, dict) and (extensions := publisher.features.extensions):
        result["capabilities"]["extensions"] = dict(extensions)
    return result


def _client_name(ctx: Request, params: Mapping[str, Any]) -> str | None:
    """Name of the client program, of the request or its session."""
    opened = ctx.session.client_params
    return client_name(params) or (opened and opened.client_info.name) or None


def _telemetry(publisher: ServerCore, methods: Mapping[str, Method], observer: Observer) -> ServerMiddleware[Any]:
    """Return middleware that records every message to the SDK's server."""

    def begun(ctx: Request) -> ServerOperation:
        params: Any = ctx.params or {}
        method, peer = methods.get(ctx.method), client_of(ctx)
        target = None if method is None else method.target(params)
        details = None
        if target is not None:
            caller, arguments = caller_of_request(), params.get("arguments")
            details = observer.call_details(
                target.requested,
                target.upstream,
                None if caller is None else caller.name,
                peer.transport,
                arguments if isinstance(arguments, dict) else {},
                "tool" if method is None else method.noun,
                _client_name(ctx, params),
            )
        return observer.serve(
            observer.series(ctx.method, None if target is None else target.name, peer),
            ctx.request_id,
            params.get("_meta") if isinstance(params.get("_meta"), dict) else None,
            None if ctx.request is None else ctx.request.headers.get("mcp-session-id"),
            details,
        )

    async def record(ctx: Request, call_next: CallNext) -> HandlerResult:
        if observer.is_replay(ctx.request_id, ctx.method) or running_call(ctx, publisher) is not None:
            return await call_next(ctx)
        operation = begun(ctx)
        try:
            result = await call_next(ctx)
        except MCPError as error:
            operation.end_with_code(error.error.code, error.error.message)
            raise
        except ValidationError:
            # Pydantic's own message quotes the client.
            operation.end_with_code(INVALID_PARAMS, "Invalid request parameters")
            raise
        except Exception as error:
            operation.end(type(error).__name__)
            raise
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end_with_result(result)
        return result

    return record
