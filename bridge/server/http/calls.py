"""Calls over HTTP: exchanges that have to be run, for the HTTP server that runs them.

start ─┬─> Response                      the call has ended in its first step
╰─> send_at_once ─┬─> True        another server's tool, whose result comes later
╰─> run         in a task ─> Response
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from bridge.portal import runs_on_asyncio
from bridge.protocol.messages import ErrorAnswer, ProtocolError
from bridge.protocol.versions import INVALID_REQUEST, REQUEST_CANCELLED
from bridge.server.http.requests import RequestContext
from bridge.server.http.responses import HTTP_STATUS, JSON_HEADERS, Response, error_response
from bridge.server.http.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from contextlib import AbstractContextManager

    from bridge.server.exchange import ServedExchange
    from bridge.server.http.requests import Request
    from bridge.server.http.responses import Header
    from bridge.server.http.sessions import HttpSession
    from bridge.server.http.streams import StreamBody
    from bridge.server.running_calls import RunningCalls
    from bridge.types import Step


class HttpCall:
    """A call of the modern era, which is cancelled when its request is closed ("Cancellation", HTTP).

    Args:
        exchange: The exchange.
        request: Its request.
        running: The running calls.
    """

    __slots__ = ("_answer", "_exchange", "_is_cancelled", "_receive", "_running", "body", "open_body", "request")

    ends_with_client = True
    session: HttpSession | None = None

    def __init__(self, exchange: ServedExchange, request: Request, running: RunningCalls) -> None:
        self._exchange = exchange
        self.request = request
        self._running = running
        self._answer: bytes | None = None
        self._is_cancelled = False
        self.body: StreamBody | None = None
        """The body of a response in parts; None unless it was opened."""
        self.open_body: Callable[[HttpCall], StreamBody] | None = None
        """Opens the body; the HTTP server sets this or `body` before it starts or runs the call."""
        exchange.open_outlet = self._open_outlet

    def _open_outlet(self) -> EventStream:
        if self.body is None:
            assert self.open_body is not None, "it is set before the call is started"
            self.body = self.open_body(self)
        session = self.session
        headers: tuple[Header, ...] | None = JSON_HEADERS if session is None else session.json_headers
        if self.request.scope.get("http_version") == "1.0":  # without chunks, a result that is cut off seems complete
            headers = None
        return EventStream(self.body, session, str(self._exchange.id), headers)

    @property
    def stream(self) -> EventStream | None:
        """The event stream of its response; None unless there is one."""
        outlet = self._exchange.outlet
        return outlet if isinstance(outlet, EventStream) and outlet.is_begun else None

    @property
    def is_stream(self) -> bool:
        """True once its response is an event stream."""
        return self.stream is not None

    def start(self, step: Step) -> Response | None:
        """Run the first step of the call, if possible; return the response if the call has ended, else `run` it.

        Args:
            step: As for `bridge.server.methods.method.Method.start`.
        """
        in_context = self.request.in_context
        if in_context is None:
            return self._start(step)
        response: Response | None = None
        try:
            with RequestContext(self.request):
                # The coroutine runs in a context of its own.
                response = self._start(lambda work: step(in_context(work)))
        except BaseException:
            self.request.end_usage()
            raise
        if response is not None:
            self.request.end_usage()
        return response

    def _start(self, step: Step) -> Response | None:
        exchange = self._exchange
        answer = exchange.responder.start(exchange, step)
        if answer is None:
            return None
        if exchange.outlet is not None and self.is_stream:
            self._answer = answer
            return None
        exchange.end()
        return self._response(answer, answer.code if isinstance(answer, ErrorAnswer) else 0)

    def send_at_once(self, receive: Callable[[Response | None], None]) -> bool:
        """Send the call of another server's tool; ``receive`` gets the response, or None if a task has to `run` it."""
        exchange = self._exchange
        if exchange.direct is None or self.request.in_context is not None:  # what is called then would not run in it
            return False
        exchange.sent = exchange.responder.send_at_once(exchange, self._received)
        if exchange.sent is None:
            return False
        self._receive = receive
        self._running.enter(self, self.request.account)
        return True

    def _received(self, answer: bytes | None) -> None:
        receive = self._receive
        del self._receive  # it refers to this call, as does the sent one: only the garbage collector would free them
        if answer is None:
            receive(None)
            return
        self._exchange.sent = None
        self._running.leave(self)
        self._exchange.end()
        self.body = None
        receive(self._response(answer))

    def cancel(self) -> None:
        """Cancel a call that was sent at once, in a task."""
        assert self._exchange.sent is not None
        self._is_cancelled = True
        self._exchange.sent.continue_in_task()

    async def keep_alive(self) -> None:
        """Send a comment, so that no proxy closes the connection of a call that is silent."""
        outlet = self._exchange.opened_outlet()
        if isinstance(outlet, EventStream):
            await outlet.keep_alive()

    def run(self) -> Coroutine[Any, Any, Response]:
        """Run the call, or the rest of it, once. Raises nothing but cancellation from outside."""
        return self._run() if self.request.in_context is None else self._run_in_context()

    async def _run_in_context(self) -> Response:
        try:
            with RequestContext(self.request):
                return await self._run()
        finally:
            self.request.end_usage()

    async def _run(self) -> Response:
        return await self._ended(*await self._answered())

    async def _answered(self) -> tuple[bytes, int]:
        """Run the exchange, or the rest of it; return the answer and its JSON-RPC error code."""
        if self._answer is not None:
            return self._answer, 0
        exchange = self._exchange
        try:
            with self._entered():
                return await exchange.responder.run(exchange)
        except ProtocolError as error:  # `RunningCalls.end` has cancelled it, on trio
            return exchange.refusal(error), error.code

    def _entered(self) -> AbstractContextManager[None]:
        """Context in which the current task runs the call."""
        return self._running.entered(self.request.account) if self._exchange.sent is None else self._continued()

    @contextmanager
    def _continued(self) -> Iterator[None]:
        """Context in which the current task continues a call that was sent at once."""
        task = asyncio.current_task()
        assert task is not None, "calls are sent at once on asyncio alone"
        self._running.replace(self, task)
        if self._is_cancelled:
            task.get_loop().call_soon(task.cancel)
        try:
            yield
        finally:
            self._running.leave(task)

    async def _ended(self, answer: bytes, code: int = 0) -> Response:
        """Return the response with an answer."""
        exchange, stream = self._exchange, self.stream
        try:
            if stream is not None:
                return Response(await stream.last(answer), is_rest=True)
            if exchange.has_begun:
                return Response(answer, is_rest=code == 0)
            return self._response(answer, code)
        finally:
            exchange.end()
            self.body = None

    def _response(self, answer: bytes, code: int = 0) -> Response:
        return Response(answer, HTTP_STATUS.get(code, 200) if self._exchange.modern else 200)


class SessionCall(HttpCall):
    """A call of the handshake era, which continues when its request is closed, until it is cancelled."""

    __slots__ = ("_scope", "_task", "session")

    ends_with_client = False

    def __init__(self, exchange: ServedExchange, request: Request, running: RunningCalls, session: HttpSession) -> None:
        super().__init__(exchange, request, running)
        self.session: HttpSession = session
        self._task: asyncio.Task[Any] | None = None
        self._scope: anyio.CancelScope | None = None

    def cancel(self) -> None:
        """Cancel the call, at its client's request or at the end of its session, once."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()
        elif self._scope is not None:
            self._scope.cancel()

    async def _run(self) -> Response:
        exchange, session, key = self._exchange, self.session, str(self._exchange.id)
        if (taken := session.id_problem(exchange.id)) is not None:  # by a request that arrived at the same time
            return error_response(ProtocolError(INVALID_REQUEST, taken), message_id=exchange.id)
        session.running[key] = self
        answer, code = b"", 0
        try:
            with session:
                if runs_on_asyncio():
                    answer, code = await self._answered_on_asyncio()
                else:
                    with anyio.CancelScope() as self._scope:
                        answer, code = await self._answered()
        finally:
            del session.running[key]
            self._task = self._scope = None
        if self._is_cancelled:
            error = ProtocolError(REQUEST_CANCELLED, "Request cancelled")
            answer, code = exchange.refusal(error), error.code
        return await self._ended(answer, code)

    async def _answered_on_asyncio(self) -> tuple[bytes, int]:
        """Run the exchange in this task, which takes less time than a scope that is cancelled."""
        task = self._task = asyncio.current_task()
        assert task is not None
        try:
            return await self._answered()
        except asyncio.CancelledError:
            if not self._is_cancelled or task.cancelling() > 1:
                raise
            return b"", 0
        finally:
            if self._is_cancelled:
                task.uncancel()

    def _response(self, answer: bytes, code: int = 0) -> Response:  # noqa: ARG002 - errors have the status 200
        self.session.use()
        return Response(answer, headers=self.session.json_headers)


def answered(answer: bytes, session: HttpSession | None) -> Response:
    """Return the response with an answer of the handshake era that was given at once."""
    status = 400 if isinstance(answer, ErrorAnswer) and answer.code == INVALID_REQUEST else 200
    if session is None:
        return Response(answer, status)
    session.use()
    return Response(answer, status, session.json_headers)
