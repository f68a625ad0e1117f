"""Fast path of streamable HTTP: answers plain requests without the SDK.

A request is plain if its headers meet every condition that the SDK would check; each check cites its clause of MCP
2025-11-25 and 2026-07-28, "Transports", Streamable HTTP. The guards check Host, Origin and the length of the body.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bridge.portal import runs_on_asyncio
from bridge.protocol.messages import MalformedMessageError, error_message, malformed_message_error
from bridge.protocol.versions import CAPABILITIES_KEY, INVALID_REQUEST, MODERN_VERSIONS, REQUEST_CANCELLED
from bridge.server.auth.identity import caller_of_request
from bridge.server.fast_path import internal_error_message
from bridge.server.http.decoded_headers import DecodedHeaders
from bridge.server.http.repeated_bodies import RepeatedBody
from bridge.server.http.requests import Routing, replay_body
from bridge.server.http.responses import HTTP_STATUS, AsgiBody, PlainResponse, headers_of
from bridge.server.http.sessions import same_credential
from bridge.server.http.streams import ClientDisconnectedError, run_in_asgi
from bridge.server.telemetry_fast_path import fast_path_of
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.server.core import ServerCore
    from bridge.server.http.pending_calls import PendingCall
    from bridge.server.http.requests import Head, Request
    from bridge.server.http.sessions import Session, Sessions
    from bridge.server.methods.method import PlainRequest
    from bridge.server.running_calls import RunningCalls
    from bridge.types import Json, Step

_CACHED_HEADER_VALUES = 256

SILENT_SECONDS = 15.0
"""Seconds after which the SDK's server takes over a call of a tool with a context, even without messages."""


_MODERN_VERSIONS = frozenset(version.encode() for version in MODERN_VERSIONS)


class FastHttp:
    """Answers plain requests to one endpoint; on trio, those that do not wait.

    Args:
        publisher: The tools.
        sessions: The sessions of the handshake era.
        paths: Paths of the endpoint within its app.
    """

    def __init__(self, publisher: ServerCore, sessions: Sessions, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._sessions = sessions
        self._running = publisher.running
        self._plans = fast_path_of(publisher, "http", caller_of_request)

    async def answered(self, request: Request) -> bool:
        """Answer a plain request in ASGI; return False if it is not plain, or was declined before.

        Args:
            request: The request, with its body.
        """
        # A repeated routing header is an error, which the SDK reports.
        if request.was_offered or request.head.has_repeated_headers or request.scope["method"] != "POST":
            return False
        begun = self.begin(request)
        if begun is None or not (isinstance(begun, PlainResponse) or runs_on_asyncio()):
            request.was_offered = True
            return False
        if isinstance(begun, PlainResponse):
            await _send(request, begun)
            return True
        body = AsgiBody(request.send)
        if request.scope["http_version"] != "1.0":  # which has no chunks, that uvicorn would send all the same
            request.response_body = body
        try:
            answer = await run_in_asgi(begun, request, body)
        except ClientDisconnectedError:
            return True
        if answer is None:
            request.was_offered, request.receive = True, replay_body(request.body, request.receive)
            return False
        await (body.end(answer) if body.begun.is_set() else _send(request, answer))
        return True

    def begin(self, request: Request) -> PlainResponse | PendingCall | None:
        """Answer a plain POST, or prepare its call; None if the request is not plain.

        Args:
            request: The request, with its body. No header is repeated.
        """
        head = request.head
        routing = head.routing or self._routing_of(head)
        if routing is None:
            return None
        repeated = None if head.repeated_body is None else head.repeated_body.message_in(request.body)
        message = repeated or _request_in(request)
        if message is None:
            return None
        plan: bytes | PlainRequest | None = None
        session = None if routing.is_modern else self._session_of(request, routing)
        try:
            if repeated is not None:
                plan = self._plan_repeated(request, repeated)
            elif routing.is_modern:
                plan = self._plan_modern(request, routing, message)
            elif session is not None and session.id_problem(message["id"]) is None:
                plan = self._plans.handshake(message, session.version or "", request.access, session.client)
        except Exception as error:  # noqa: BLE001 - logged, and answered by a JSON-RPC error
            plan = internal_error_message(message, error)
        if plan is None or isinstance(plan, bytes):
            return None if plan is None else _response(plan, session)
        if session is None:
            return _ModernCall(plan, request, self._running)
        return _SessionCall(plan, request, self._running, session)

    def _plan_modern(self, request: Request, routing: Routing, message: Json) -> bytes | PlainRequest | None:
        """Plan a request whose routing headers agree with its body (2026-07-28, "Standard Request Headers")."""
        method, params = message["method"], message.get("params")
        if params is None or routing.method != method:
            return None
        target = self._plans.targets.get(method)
        if target is not None and not (type(params.get(target)) is str and params[target] == routing.name):
            return None
        plan, head = self._plans.modern(message, request.access), request.head
        if plan is not None and head.is_admitted and head.untried_bodies:
            head.untried_bodies -= 1
            head.repeated_body = RepeatedBody.of(request.body, message)
        return plan

    def _plan_repeated(self, request: Request, message: Json) -> bytes | PlainRequest | None:
        """Plan a request whose message shares its params with others."""
        plan = self._plans.modern(message, request.access, is_checked=True)
        if plan is not None and not isinstance(plan, bytes) and (plan.tool is None or plan.takes_context):
            # Other code may get its own params and capabilities, and change them.
            plan.params = request.message["params"]
            plan.capabilities = plan.params["_meta"][CAPABILITIES_KEY]
        return plan

    def _routing_of(self, head: Head) -> Routing | None:
        """Read the headers of a request, once; return None if it is not plain."""
        headers, path = head.headers, head.scope["path"]
        if path.removeprefix(head.scope.get("root_path", "")) not in self._paths or not _is_plain(
            headers.get(b"accept", b""), headers.get(b"content-type", b"")
        ):
            return None
        names = (b"mcp-session-id", b"mcp-method", b"mcp-name")
        # Bytes that are not UTF-8 become surrogates, which no text of a message has.
        texts = [
            value if value is None else value.decode(errors="surrogateescape") for value in map(headers.get, names)
        ]
        version = headers.get(b"mcp-protocol-version")
        head.routing = Routing(version in _MODERN_VERSIONS, version, *texts)
        return head.routing

    def _session_of(self, request: Request, routing: Routing) -> Session | None:
        """Find the session of a request, if its credential and protocol version are those of the session."""
        if routing.session_id is None:
            return None
        session = self._sessions.find(routing.session_id)
        if session is None or session.version is None or not same_credential(request.scope, session):
            return None
        return session if routing.version is None or routing.version == session.version.encode() else None


async def _send(request: Request, answer: PlainResponse) -> None:
    headers = [*headers_of(answer.session_id), (b"content-length", b"%d" % len(answer.body))]
    await request.send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await request.send({"type": "http.response.body", "body": answer.body})


class _Call:
    """A call that has not run yet: a `PendingCall`."""

    __slots__ = ("_call", "_running", "_session", "may_talk", "request")

    def __init__(
        self, call: PlainRequest, request: Request, running: RunningCalls, session: Session | None = None
    ) -> None:
        self._call = call
        self.request = request
        self.may_talk = call.may_talk
        self._running = running
        self._session = session

    def start(self, step: Step) -> PlainResponse | None:
        call = self._call
        if call.tool is None:
            return None
        if call.takes_context:
            call.context = self._context()
        answer = call.responder.start_plain(call, step)
        if answer is None:
            return None
        if call.channel is not None:
            call.channel.end()
        return _response(answer, self._session)

    def pass_on(self, _receive: Callable[[PlainResponse | None], None]) -> bool:
        return False

    def _context(self) -> InvocationContext:
        """Return the context of the call, which is connected to its client if the call may talk."""
        request, session = self.request, self._session
        caller = caller_of_request()
        context = InvocationContext(
            memory_id=(session and session.id) if caller is None else caller.name,
            caller=caller,
            headers=DecodedHeaders(request.headers),
            client_capabilities=self._call.capabilities if session is None else session.capabilities,
            protocol_version=self._call.version,
            account=request.account,
        )
        if self.may_talk:
            request.channel = self._call.open_channel(context, session)
            if self._call.stream is not None and (body := request.response_body) is not None:
                body.session_id = None if session is None else session.id
                self._call.stream(self._call, body)
        return context

    async def _run(self, task: asyncio.Task[Any]) -> tuple[bytes, int] | None:
        """Run the call, or the rest of it; return None if the SDK's server answers."""
        call = self._call
        if call.tool is not None and not call.takes_context:
            return await call.responder.call_plain(call, self.request.account)
        context = call.context or self._context()
        if (channel := call.channel) is None:
            return await call.run(context)
        channel.attach(task, self._hand_over)
        # Afterwards, the SDK sends keep-alive comments, and clients may resume the stream in sessions.
        timer = task.get_loop().call_later(SILENT_SECONDS, channel.hand_over)
        try:
            answer = await call.run(context)
        finally:
            timer.cancel()
            channel.end()
            # They refer to the request: only the garbage collector would free them.
            del self.request.hand_over
            self.request.response_body = None
        return None if channel.is_handed_over else answer

    def _is_rest(self, code: int) -> bool:
        """Return True if the answer is the rest of a response that has begun."""
        return self._call.channel is not None and code == 0 and self._call.has_begun

    def _hand_over(self) -> None:
        """Pass the request to the SDK's server."""
        self.request.hand_over()


class _ModernCall(_Call):
    """A call of the modern era, which is cancelled when its request is closed ("Cancellation", HTTP)."""

    __slots__ = ("_is_cancelled", "_receive")

    ends_with_client = True

    def pass_on(self, receive: Callable[[PlainResponse | None], None]) -> bool:
        call = self._call
        if call.passing is None:
            return False
        call.begun = call.responder.pass_on(call, self._passed)
        if call.begun is None:
            return False
        self._receive, self._is_cancelled = receive, False
        self._running.enter(self, self.request.account)
        return True

    def _passed(self, response: bytes | None) -> None:
        receive = self._receive
        del self._receive  # it refers to this call, as does the begun one: only the garbage collector would free them
        if response is None:
            receive(None)
        else:
            self._call.begun = None
            self._running.leave(self)
            receive(PlainResponse(response))

    def cancel(self) -> None:
        assert self._call.begun is not None
        self._is_cancelled = True
        self._call.begun.hand_over()

    async def run(self) -> PlainResponse | None:
        task = asyncio.current_task()
        assert task is not None
        if self._call.begun is None:
            self._running.enter(task, self.request.account)
        else:
            self._running.replace(self, task)
            if self._is_cancelled:
                task.get_loop().call_soon(task.cancel)
        try:
            answer = await self._run(task)
        finally:
            self._running.leave(task)
        if answer is None:
            return None
        body, code = answer
        return PlainResponse(body, HTTP_STATUS.get(code, 200), is_rest=self._is_rest(code))


class _SessionCall(_Call):
    """A call of the handshake era, which continues when its request is closed, until it is cancelled."""

    __slots__ = ("_is_cancelled", "_task")

    ends_with_client = False

    def __init__(self, call: PlainRequest, request: Request, running: RunningCalls, session: Session) -> None:
        super().__init__(call, request, running, session)
        self._is_cancelled = False

    def cancel(self) -> None:
        raise AssertionError("it is not passed on")

    async def run(self) -> PlainResponse | None:
        task = asyncio.current_task()
        session, call = self._session, self._call
        assert task is not None
        assert session is not None
        self._task = task
        if (taken := session.id_problem(call.id)) is not None:  # by a request that arrived at the same time
            return PlainResponse(malformed_message_error(MalformedMessageError(INVALID_REQUEST, taken)), 400)
        session.running[str(call.id)] = self._cancel
        self._running.enter(task, self.request.account)
        session.__enter__()
        answer: tuple[bytes, int] | None = b"", 0
        try:
            answer = await self._run(task)
        except asyncio.CancelledError:
            if not self._is_cancelled or task.cancelling() > 1:
                raise
        finally:
            del session.running[str(call.id)]
            session.__exit__()
            self._running.leave(task)
        if answer is None:
            return None
        body, code = answer
        if self._is_cancelled:
            task.uncancel()
            code, message = REQUEST_CANCELLED, "Request cancelled"
            body = error_message(call.id, {"code": code, "message": message})
        return PlainResponse(body, session_id=session.id, is_rest=self._is_rest(code))

    def _cancel(self) -> None:
        self._is_cancelled = True
        self._task.cancel()

    def _hand_over(self) -> None:
        channel, session = self._call.channel, self._session
        assert channel is not None
        assert session is not None
        session.running[str(self._call.id)] = channel.abandon  # the SDK cancels its handler
        super()._hand_over()


def _response(answer: bytes, session: Session | None) -> PlainResponse:
    """Return the response to a request that was answered without waiting."""
    if session is None:
        return PlainResponse(answer)
    session.use()
    return PlainResponse(answer, session_id=session.id)


def _request_in(request: Request) -> Json | None:
    """Return the JSON-RPC request in a body (JSON-RPC 2.0, section 4); None if it is anything else."""
    message = request.message
    if (
        type(message) is dict
        and message.get("jsonrpc") == "2.0"
        and type(message.get("id")) in {int, str}
        and type(message.get("method")) is str
        and ("params" not in message or type(message["params"]) is dict)
    ):
        return message
    return None


@lru_cache(_CACHED_HEADER_VALUES)
def _is_plain(accept: bytes, content_type: bytes) -> bool:
    """True if a client sends JSON and accepts both content types ("Sending Messages to the Server", 2)."""
    kinds = {kind.split(b";")[0].strip().lower() for kind in accept.split(b",")}
    accepts_both = {b"application/json", b"text/event-stream"} <= kinds or b"*/*" in kinds
    # In the handshake era the SDK requires lower case.
    return accepts_both and content_type.split(b";")[0].strip() == b"application/json"
