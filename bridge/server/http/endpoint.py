"""Streamable HTTP transport: one endpoint for both eras of the protocol.

    POST, DELETE ─> begin ─┬─> Response      answered at once
                           ├─> HttpCall      to be started or run
                           ╰─> None          has to wait for something: `Endpoint.answer`, in ASGI
    GET ─> `Endpoint.answer`

MCP 2025-11-25 and 2026-07-28, "Transports", Streamable HTTP. The guards check Host, Origin and the length of the body.
The handshake era is served by `bridge.server.http.session_requests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.messages import ErrorAnswer, ProtocolError
from bridge.protocol.versions import CAPABILITIES_KEY
from bridge.server.dispatch import internal_error_message
from bridge.server.exchange import ServedExchange
from bridge.server.http.asgi_calls import run_in_asgi
from bridge.server.http.calls import HttpCall
from bridge.server.http.repeated_bodies import RepeatedBody
from bridge.server.http.requests import REQUEST, message_problem
from bridge.server.http.responses import (
    HTTP_STATUS,
    RefusedError,
    Response,
    error_response,
    refused,
    send_response,
)
from bridge.server.http.routing import Routing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Receive, Scope, Send

    from bridge.server.dispatch import Dispatch
    from bridge.server.http.requests import Head, Request
    from bridge.server.http.session_requests import SessionRequests
    from bridge.server.running_calls import RunningCalls
    from bridge.types import Json

_WITH_BODY = "POST"


class Endpoint:
    """The endpoint of one server.

    Args:
        dispatch: The server's dispatch.
        running: Its running calls.
        handshake: Answers the requests of the handshake era.
        paths: Paths of the endpoint within its app.
    """

    def __init__(
        self, dispatch: Dispatch, running: RunningCalls, handshake: SessionRequests, paths: Iterable[str]
    ) -> None:
        self._dispatch = dispatch
        self._running = running
        self._handshake = handshake
        self._paths = frozenset(paths)
        self.running = handshake.running
        """Context in which the endpoint can be used; may be entered again, with new sessions."""

    def serves(self, scope: Scope) -> bool:
        """Return True if the path of a request is that of the endpoint."""
        path: str = scope["path"]
        return path.removeprefix(scope.get("root_path", "")) in self._paths

    def begin(self, request: Request) -> Response | HttpCall | None:
        """Answer a POST or a DELETE at once, or prepare its call; None if it has to wait for something.

        Args:
            request: The request, with its body.
        """
        head = request.head
        routing = head.routing or _routing_of(head)
        try:
            if request.scope["method"] != _WITH_BODY:
                return None if routing.is_modern else self._handshake.end(request, routing)
            repeated = None if head.repeated_body is None else head.repeated_body.message_in(request.body)
            if repeated is not None:
                return self._begin_modern(request, routing, repeated, is_repeated=True)
            message = request.message
            _check(routing, message)
            if routing.is_modern:
                return self._begin_modern(request, routing, message)
            return self._handshake.begin(request, routing, message)
        except RefusedError as refusal:
            return refusal.response

    def _begin_modern(
        self, request: Request, routing: Routing, message: Json, *, is_repeated: bool = False
    ) -> Response | HttpCall:
        """Answer a request of the modern era, or prepare its call."""
        if "id" not in message:
            self._dispatch.notified(message, request, routing.version)
            return Response(b"", 202)
        try:
            answer = self._dispatched(request, routing, message, is_repeated=is_repeated)
        except ProtocolError as error:
            return error_response(error, HTTP_STATUS.get(error.code, 200), message_id=message["id"])
        except Exception as error:  # noqa: BLE001 - logged, and answered by a JSON-RPC error
            return Response(internal_error_message(message, error))
        if isinstance(answer, ServedExchange):
            return HttpCall(answer, request, self._running)
        return Response(answer, HTTP_STATUS.get(answer.code, 200) if isinstance(answer, ErrorAnswer) else 200)

    def _dispatched(
        self, request: Request, routing: Routing, message: Json, *, is_repeated: bool
    ) -> bytes | ServedExchange:
        """Dispatch a modern request whose headers agree with its message.

        Raises:
            ProtocolError: They do not agree.
        """
        if is_repeated:
            answer = self._dispatch.modern(message, request, is_checked=True)
            if isinstance(answer, ServedExchange) and (answer.tool is None or answer.takes_context):
                # Other code may get its own params and capabilities, and change them.
                answer.params = request.message["params"]
                answer.capabilities = answer.params["_meta"][CAPABILITIES_KEY]
            return answer
        routing.check(message, self._dispatch.targets)
        answer, head = self._dispatch.modern(message, request), request.head
        if head.is_admitted and head.untried_bodies and not isinstance(answer, ErrorAnswer):
            head.untried_bodies -= 1
            head.repeated_body = RepeatedBody.of(request.body, message)
        return answer

    # --- in ASGI ------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that the guards have admitted."""
        request: Request = scope[REQUEST]
        request.receive, request.send = receive, send
        await self.answer(request)

    async def answer(self, request: Request) -> None:
        """Answer a request."""
        routing = request.head.routing or _routing_of(request.head)
        try:
            begun = await self._begun(request, routing)
        except RefusedError as refusal:
            begun = refusal.response
        if isinstance(begun, Response):
            await send_response(request.send, begun)
        elif begun is not None:
            await run_in_asgi(begun)

    async def _begun(self, request: Request, routing: Routing) -> Response | HttpCall | None:
        """Answer a request, or prepare its call; None if it was answered by a stream.

        Raises:
            RefusedError: The request is refused.
        """
        method = request.scope["method"]
        if method != _WITH_BODY:
            allowed = "POST" if routing.is_modern else self._handshake.allowed
            if method not in allowed.split(", "):
                raise refused("Method Not Allowed", 405, headers=((b"allow", allowed.encode()),))
            if method == "GET":
                return await self._handshake.stream(request, routing)
        return self.begin(request) or await self._handshake.begin_shared(request, routing)


def _routing_of(head: Head) -> Routing:
    head.routing = Routing.of(head.headers, head.scope["headers"])
    return head.routing


def _check(routing: Routing, message: Any) -> None:
    """Refuse a POST whose head or body is wrong.

    Raises:
        RefusedError: It is.
    """
    if not routing.has_json:
        raise refused("the content type of a message is application/json", 415)
    if not (routing.accepts_json and routing.accepts_events):
        raise refused("Not Acceptable: Client must accept both application/json and text/event-stream", 406)
    problem = message_problem(message)
    if problem is None and routing.is_modern and not ("id" in message and "method" in message):
        if "method" not in message:
            raise refused("the body is not one JSON-RPC request or notification")
        problem = routing.version_problem()
    if problem is not None:
        raise RefusedError(error_response(problem))
