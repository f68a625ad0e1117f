"""Fast path: answers plain requests without the SDK, and leaves all others to the SDK.

    message ─> plan ─> bytes            the whole response
                  ├──> PlainRequest     to be awaited: `PlainRequest.run`
                  ╰──> None             the SDK's server answers

It has no I/O, and is shared by stdio and HTTP. A request is plain if its envelope has only known members, and its
method (`bridge.server.methods`) has a plan for it. Differential tests compare the responses with the SDK's. Clauses:
MCP 2025-11-25 and 2026-07-28, "Basic protocol"; JSON-RPC 2.0.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pydantic_core import to_json

from bridge.protocol.messages import ProtocolError, client_name, error_message, result_message
from bridge.protocol.versions import CAPABILITIES_KEY, INTERNAL_ERROR, PROTOCOL_VERSION_KEY
from bridge.server.auth.access import EVERYTHING
from bridge.server.methods.envelope import ModernEnvelopes, is_plain_message, is_plain_meta
from bridge.server.methods.lifecycle import agreed_version
from bridge.server.methods.method import PlainRequest
from bridge.server.methods.registry import methods_of
from bridge.tools.questions import InputRequired
from bridge.wire.received import SERVER_INFO_KEY, Received, write_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.protocol.messages import MessageId
    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.methods.method import Era, Method, Responder
    from bridge.server.methods.passing import BegunCall
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")
_EMPTY: Json = {}


class FastPath:
    """Plans the responses of one server."""

    def __init__(self, core: ServerCore, respond: Callable[[Method], Responder] | None = None) -> None:
        methods, policy = methods_of(core), core.policy
        if policy.before or policy.after or policy.on_arguments_error or policy.on_execution_error:
            methods = {}  # these callbacks get a context, through which they may ask the client
        params = {name: method.target_param or method.header_param for name, method in methods.items()}
        self.targets = {name: param for name, param in params.items() if param is not None}
        """The parameter that HTTP repeats in ``Mcp-Name``, by method."""
        responders = {method: (respond or PlainResponder)(method) for method in methods.values() if method.planned_in}

        def planned_in(era: Era) -> dict[str, Responder]:
            return {method.name: responder for method, responder in responders.items() if era in method.planned_in}

        self._opening, self._handshake, self._modern = (
            planned_in("opening"),
            planned_in("handshake"),
            planned_in("modern"),
        )
        self._envelopes = ModernEnvelopes()
        self._stamp: Json = {SERVER_INFO_KEY: core.implementation}
        self._write_stamped = self._stamped  # bound once
        self._ending = b',"resultType":"complete","_meta":%b' % to_json(self._stamp)
        self._agreed_version = ""
        self._client: str | None = None
        self._is_observed = respond is not None

    def initialize(self, message: Json) -> bytes | None:
        """Plan the response to ``initialize``, which opens a connection of the handshake era.

        Args:
            message: A request, as `bridge.protocol.messages.read_message` returns it.
        """
        params, responder = message.get("params"), self._opening.get(message["method"])
        if not (params and responder is not None and is_plain_message(message)):
            return None
        version = agreed_version(params.get("protocolVersion"))
        request = PlainRequest(responder, message["id"], params, False, version, _EMPTY, EVERYTHING, write_result)
        response = responder.plan(request)
        if not isinstance(response, bytes):
            return None
        self._agreed_version, self._client = version, client_name(params)
        return response

    def handshake(
        self, message: Json, version: str = "", access: Access = EVERYTHING, client: str | None = None
    ) -> bytes | PlainRequest | None:
        """Plan the response to a request of the handshake era, after its handshake.

        Args:
            message: A request, as `bridge.protocol.messages.read_message` returns it.
            version: The negotiated version; empty for that of `initialize`, if it was answered here.
            access: Permissions of the caller.
            client: Name of the client program; None for that of `initialize`, if it was answered here.
        """
        responder = self._handshake.get(message["method"])
        if responder is None:
            return None
        params = message.get("params") or _EMPTY
        if not (is_plain_message(message) and is_plain_meta(params.get("_meta"))):
            return None
        version = version or self._agreed_version
        request = PlainRequest(responder, message["id"], params, False, version, _EMPTY, access, write_result)
        if self._is_observed:
            request.client = client or self._client
        return responder.plan(request)

    def modern(
        self, message: Json, access: Access = EVERYTHING, *, is_checked: bool = False
    ) -> bytes | PlainRequest | None:
        """Plan the response to a request of version 2026-07-28, whose HTTP headers the caller has checked.

        Args:
            message: A request, as `bridge.protocol.messages.read_message` returns it.
            access: Permissions of the caller.
            is_checked: True if a request that differs by its id alone had a plain envelope.
        """
        responder, params = self._modern.get(message["method"]), message.get("params")
        if responder is None or not params:
            return None
        meta = params.get("_meta")
        if not (is_checked or (is_plain_message(message) and self._envelopes.is_plain(meta))):
            return None
        return responder.plan(
            PlainRequest(
                responder,
                message["id"],
                params,
                True,
                meta[PROTOCOL_VERSION_KEY],
                meta[CAPABILITIES_KEY],
                access,
                self._write_stamped,
                self._ending,
            )
        )

    def _stamped(self, result: Json) -> bytes:
        """Write a result of the modern era, which names its server unless the tool's author did."""
        meta = result.get("_meta")
        if not meta:
            if isinstance(result, Received) and (written := result.ended(self._ending)) is not None:
                return written
            result["_meta"] = self._stamp
        elif meta.get(SERVER_INFO_KEY) is None:
            result["_meta"] = {**meta, **self._stamp}
        return write_result(result)


class PlainResponder:
    """Writes the responses of a method."""

    __slots__ = ("_call_plain", "_method", "_plan", "_run", "start_plain")

    def __init__(self, method: Method) -> None:
        self._method = method
        self._plan = method.plan
        self._run = method.run
        self._call_plain = method.call_plain
        self.start_plain = method.start_plain
        """As of the method."""

    def plan(self, request: PlainRequest) -> bytes | PlainRequest | None:
        """Return the response, the request itself if it has to be run, or None for the SDK."""
        try:
            planned = self._plan(request)
        except ProtocolError as error:
            return refusal(request.id, error)
        return result_message(request.id, planned) if type(planned) is bytes else planned

    async def run(self, request: PlainRequest, context: InvocationContext) -> tuple[bytes, int]:
        """Run a request; return the response and its JSON-RPC error code, 0 for a result."""
        try:
            written = await self._run(request, context, request.written if request.may_talk else request.write)
        except (Exception, InputRequired) as raised:  # noqa: BLE001 - logged and answered
            error = answerable(self._method, raised)
            if request.is_passed_on(error):
                return b"", 0
            return refused(request, protocol_error(self._method, request, error))
        return request.response(written), 0

    def pass_on(self, request: PlainRequest, receive: Callable[[bytes | None], None]) -> BegunCall | None:
        """Pass a request on; ``receive`` gets the response, or None if `run` has to continue the request."""

        def received(result: bytes | None) -> None:
            receive(None if result is None else result_message(request.id, result))

        return self._method.pass_on(request, received)

    async def call_plain(self, request: PlainRequest, account: str) -> tuple[bytes, int]:
        """Run a request with a tool, like `run`."""
        try:
            return result_message(request.id, await self._call_plain(request, account)), 0
        except (Exception, InputRequired) as raised:  # noqa: BLE001 - logged and answered
            found = protocol_error(self._method, request, answerable(self._method, raised))
            return refusal(request.id, found), found.code


def refusal(request: MessageId, error: ProtocolError) -> bytes:
    """Return a JSON-RPC error response."""
    wire = {"code": error.code, "message": error.message}
    return error_message(request, wire if error.data is None else wire | {"data": error.data})


def refused(request: PlainRequest, error: ProtocolError) -> tuple[bytes, int]:
    """Return a JSON-RPC error response and its code; log it if a response has begun, which is broken off."""
    if request.has_begun:
        _logger.warning("broke off the response to a read of %r: %s", request.params.get("uri"), error)
    return refusal(request.id, error), error.code


def answerable(method: Method, error: Exception | InputRequired) -> ProtocolError | InputRequired:
    """Return the error to answer: the error itself, or for an unexpected one, which is logged, an internal error."""
    return error if isinstance(error, ProtocolError | InputRequired) else _unexpected(method.name, error)


def protocol_error(method: Method, request: PlainRequest, error: ProtocolError | InputRequired) -> ProtocolError:
    """Return the error of a request; log a question to the client, which a plain request cannot ask."""
    if isinstance(error, ProtocolError):
        return error
    name = method.name if method.target_param is None else request.params[method.target_param]
    _logger.error("%s %r asked its client a question, but is not interactive", method.name, name, exc_info=error)
    return ProtocolError(INTERNAL_ERROR, f"the request for {name!r} failed; the server's log says why")


def internal_error_message(request: Json, error: BaseException) -> bytes:
    """Log an unexpected error of a request, and return the error response."""
    return refusal(request["id"], _unexpected(request["method"], error))


def _unexpected(method: str, error: BaseException) -> ProtocolError:
    _logger.error("the request %r could not be answered", method, exc_info=error)
    return ProtocolError(INTERNAL_ERROR, f"the request {method!r} failed; the server's log says why")
