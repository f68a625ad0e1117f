"""The SDK's low-level server over ServerCore; telemetry middleware.

A ServerCore on the SDK's low-level Server: the handlers, and what stands around them.

What the SDK answers, observed: a middleware in the place of the SDK's own, whose spans would be second ones.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.caching import CacheHint
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp_types import (
    CallToolRequestParams,
    EmptyResult,
    PaginatedRequestParams,
    SetLevelRequestParams,
    SubscriptionsListenRequestParams,
)
from pydantic import ValidationError
from pydantic_core import to_json

from bridge.server.announcer import Announcer, ChangesBus, session_id
from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.channel import HandshakeChannel, ModernChannel, client_of
from bridge.server.core import DISCOVERY_TTL_MS
from bridge.server.http.requests import BODY_BYTES
from bridge.server.http.session import SESSION
from bridge.server.limits.accounts import account_of
from bridge.server.log_levels import LogLevels
from bridge.server.protocol import (
    CAPABILITIES_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL_KEY,
    MODERN_VERSIONS,
    ProtocolError,
)
from bridge.server.subscriptions import Subscriptions
from bridge.server.tool_list import CACHE_SCOPE, CursorError
from bridge.telemetry import switch
from bridge.telemetry.conventions import TOOLS_CALL, TRACE_KEYS, trace_in
from bridge.tools.context import LOG_LEVELS, InvocationContext
from bridge.tools.questions import InputRequired
from bridge.wire.tools import forwarded_meta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.models import InitializationOptions
    from mcp_types import RequestParamsMeta

    from bridge.server.channel import Request
    from bridge.server.core import ServerCore
    from bridge.server.http.session import Session
    from bridge.server.tool_list import ToolList
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.operations import ServerOperation
    from bridge.tools.context import Caller
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")

_NOTHING: Mapping[str, Any] = {}

STATE_TTL_SECONDS = 3600.0
"""How long a client may take to answer what a call asks."""


def build_server(publisher: ServerCore) -> SdkServer:
    """The SDK's server for a publisher."""
    handlers = _Handlers(publisher)
    server = SdkServer(
        publisher.name,
        version=publisher.version,
        title=publisher.title,
        instructions=publisher.instructions,
        cache_hints={"server/discover": CacheHint(ttl_ms=DISCOVERY_TTL_MS, scope=CACHE_SCOPE)},
        get_tool_input_schema=handlers.header_schema,
    )
    server.log_levels = handlers.log_levels
    server.add_request_handler("tools/list", PaginatedRequestParams, handlers.list_tools)
    server.add_request_handler("tools/call", CallToolRequestParams, handlers.call_tool)
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, handlers.set_log_level)
    listen = Subscriptions(ChangesBus(publisher.changes))
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    security = (
        RequestStateSecurity.ephemeral(ttl=STATE_TTL_SECONDS)
        if publisher.state_keys is None
        else RequestStateSecurity(keys=list(publisher.state_keys), ttl=STATE_TTL_SECONDS)
    )
    boundary = RequestStateBoundary(security, default_audience=publisher.name)
    observer = switch.observer()
    # The SDK's own opens spans where a program has set OpenTelemetry up; ours does all that it does.
    observing = server.middleware if observer is None else [TelemetryMiddleware(publisher, observer, caller_of_request)]
    server.middleware[:] = [_guard, Announcer(publisher.changes), _check_trace, *observing, _explain_state, boundary]
    return server


class SdkServer(Server[Any]):
    """The SDK's server, which says in both eras that it tells of changes."""

    log_levels: LogLevels
    """What its clients have said by ``logging/setLevel``."""
    is_stateless = False
    """Whether the handshake era goes without sessions, over which it would be told."""

    def end_subscriptions(self) -> None:
        """End every subscription of the modern era as the protocol wants it, by its result."""
        entry = self.get_request_handler("subscriptions/listen")
        assert entry is not None
        assert isinstance(entry.handler, Subscriptions)
        entry.handler.close()

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK does it, but ``tools.listChanged`` is true unless somebody says otherwise."""
        return super().create_initialization_options(
            notification_options or NotificationOptions(tools_changed=not self.is_stateless),
            experimental_capabilities,
            extensions,
        )


class _Handlers:
    """What answers the requests of clients."""

    def __init__(self, publisher: ServerCore) -> None:
        self._publisher = publisher
        self.log_levels = LogLevels()

    def header_schema(self, name: str) -> Mapping[str, Any] | None:
        return self._catalog().header_schema(name)

    async def list_tools(self, request: Request, params: PaginatedRequestParams) -> Json:
        try:
            return self._catalog().page(params.cursor, modern=_is_modern(request))
        except CursorError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None

    async def call_tool(self, request: Request, params: CallToolRequestParams) -> Json:
        publisher = self._publisher
        channel = self._channel(request)
        try:
            context = self._context(request, channel)
            arguments, modern = params.arguments or _NOTHING, isinstance(channel, ModernChannel)
            with publisher.running.entered(context.account), _session(request):
                return await publisher.call(
                    params.name, arguments, context, _checked, modern=modern, access=access_of_request()
                )
        except InputRequired as asked:
            if isinstance(channel, ModernChannel):
                return _translated(channel.input_required, asked)
            _logger.exception("the tool %r asked for another round, which this era does not have", params.name)
            raise MCPError(INTERNAL_ERROR, f"the tool {params.name!r} cannot be used by this client") from None
        except ProtocolError as error:
            raise MCPError(error.code, error.message, error.data) from None
        finally:
            channel.close()

    async def set_log_level(self, request: Request, params: SetLevelRequestParams) -> EmptyResult:
        client, session = request.session.client_params, session_id(request)
        if client is not None:
            self.log_levels.keep(client, params.level)
        if session is not None and self.log_levels.on_change is not None:
            await self.log_levels.on_change(session, params.level)
        return EmptyResult()

    def _catalog(self) -> ToolList:
        return self._publisher.views.of(access_of_request()).catalog

    def _channel(self, request: Request) -> HandshakeChannel | ModernChannel:
        if _is_modern(request):
            meta = (request.params or {}).get("_meta") or {}
            level = meta.get(LOG_LEVEL_KEY)
            return ModernChannel(request, meta.get(CAPABILITIES_KEY) or {}, level if level in LOG_LEVELS else None)
        declared = request.session.client_capabilities
        capabilities = {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)
        level = self.log_levels.of(request.session.client_params)
        return HandshakeChannel(request, capabilities, level, self._publisher.running)

    def _context(self, request: Request, channel: HandshakeChannel | ModernChannel) -> InvocationContext:
        caller, session = caller_of_request(), session_id(request)
        return InvocationContext(
            memory_id=session if caller is None else caller.name,
            caller=caller,
            headers=_NOTHING if request.request is None else request.request.headers,
            client_capabilities=channel.capabilities,
            meta=forwarded_meta((request.params or _NOTHING).get("_meta")),
            channel=channel,
            round=channel.round,
            resumption=channel.resumption,
            account=account_of(request),
        )


def _checked(result: Json) -> Json:
    """A result that the SDK can write, which it does when it is too late to say otherwise."""
    to_json(result)
    return result


def _session(request: Request) -> AbstractContextManager[None]:
    """The session that a call keeps in use, also when nobody waits for its answer any more."""
    session = _session_of(request)
    return nullcontext() if session is None else session


async def _answered_in(session: Session, ctx: Request, call_next: CallNext) -> HandlerResult:
    """The answer to a request of a session, which counts until it is sent."""
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


def _is_modern(request: Request) -> bool:
    return request.protocol_version in MODERN_VERSIONS


async def _guard(ctx: Request, call_next: CallNext) -> HandlerResult:
    """Let no exception out but the protocol's own: the SDK would tell its text to the client."""
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
    """Leave malformed values of the trace out of ``_meta``: the SDK would hand them to OpenTelemetry, which raises."""
    if ctx.meta and not TRACE_KEYS.isdisjoint(ctx.meta):
        others = {key: value for key, value in ctx.meta.items() if key not in TRACE_KEYS}
        ctx = replace(ctx, meta=cast("RequestParamsMeta", others | trace_in(ctx.meta)))
    return await call_next(ctx)


async def _explain_state(ctx: Request, call_next: CallNext) -> HandlerResult:
    """Say what a state that cannot be opened means to whoever waits for the call that it belongs to."""
    try:
        return await call_next(ctx)
    except MCPError as error:
        if not isinstance(error.data, dict) or error.data.get("reason") != "invalid_request_state":
            raise
        told = "the call began in another process, or too long ago: its outcome is unknown, and it was not run again"
        raise MCPError(error.code, f"{error.message}: {told}", error.data) from None


def _translated(function: Callable[..., Json], *arguments: Any) -> Json:
    try:
        return function(*arguments)
    except ProtocolError as error:
        raise MCPError(error.code, error.message, error.data) from None


class TelemetryMiddleware:
    """Tells an observer of every message.

    Args:
        publisher: What is served.
        observer: Who is told.
        caller_of_request: Says who sent the message that is being answered.
    """

    def __init__(
        self, publisher: ServerCore, observer: Observer, caller_of_request: Callable[[], Caller | None]
    ) -> None:
        self._tools = publisher.tools
        self._observer = observer
        self._caller_of_request = caller_of_request

    async def __call__(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Have a message answered, and tell what came of it."""
        if self._observer.is_replay(ctx.request_id, ctx.method):
            return await call_next(ctx)
        operation = self._begun(ctx)
        try:
            result = await call_next(ctx)
        except MCPError as error:
            operation.end_with_code(error.error.code, error.error.message)
            raise
        except ValidationError:
            operation.end_with_code(
                INVALID_PARAMS, "Invalid request parameters"
            )  # what pydantic says quotes the client
            raise
        except Exception as error:
            operation.end(type(error).__name__)
            raise
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end_with_result(result)
        return result

    def _begun(self, ctx: Request) -> ServerOperation:
        params: Any = ctx.params or {}
        name = params.get("name") if ctx.method == TOOLS_CALL else None
        tool = self._tools.find(name) if isinstance(name, str) else None
        peer = client_of(ctx)
        arguments = params.get("arguments")
        caller = self._caller_of_request()
        series, details = self._observer.series(ctx.method, None if tool is None else tool.name, peer), None
        if ctx.method == TOOLS_CALL:
            details = self._observer.call_details(
                name if isinstance(name, str) else None,
                None if tool is None else tool.server,
                None if caller is None else caller.name,
                peer.transport,
                arguments if isinstance(arguments, dict) else {},
            )
        return self._observer.serve(
            series,
            ctx.request_id,
            params.get("_meta") if isinstance(params.get("_meta"), dict) else None,
            None if ctx.request is None else ctx.request.headers.get("mcp-session-id"),
            details,
        )
