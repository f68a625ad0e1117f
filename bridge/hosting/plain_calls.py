"""Calls of the fast path on a connection: the first step at once, the rest in a task, and messages through ASGI.

This is all that knows of `PendingCall`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.hosting.asgi_request import AsgiRequest
from bridge.hosting.eager_tasks import EagerTasks
from bridge.server.fast_path import internal_error_message
from bridge.server.http.requests import REQUEST
from bridge.server.http.responses import CONTENT_TYPE, PlainResponse

if TYPE_CHECKING:
    import asyncio

    from bridge.hosting.connection import Connection
    from bridge.hosting.reply import Header
    from bridge.server.http.guards import PreAsgiHandler
    from bridge.server.http.pending_calls import PendingCall
    from bridge.server.http.requests import Head

_logger = logging.getLogger("bridge.hosting")
_JSON = (CONTENT_TYPE,)


def headers_of(session_id: str | None) -> tuple[Header, ...]:
    """Return the headers of a JSON response."""
    return _JSON if session_id is None else (CONTENT_TYPE, (b"mcp-session-id", session_id.encode()))


class PlainCalls:
    """Answers the plain requests of all connections of a server.

    Args:
        handler: Begins to answer them.
    """

    def __init__(self, handler: PreAsgiHandler) -> None:
        self._begin = handler.begin
        self._eager: EagerTasks | None = None

    def answers(self, connection: Connection, head: Head, body: bytes) -> bool:
        """Answer a request, or start its call; return False if the app has to."""
        try:
            begun = self._begin(head, body)
        except Exception:  # noqa: BLE001 - the error occurs again in the app, where it is logged
            return False
        try:
            if isinstance(begun, PlainResponse):
                connection.respond(head.scope, begun.status, headers_of(begun.session_id), begun.body)
            elif begun is not None:
                self._start(connection, begun)
        except BaseException:  # after a response that may be written
            _logger.exception("the connection is closed, because a response failed")
            connection.transport.close()
        return begun is not None

    def _start(self, connection: Connection, work: PendingCall) -> None:
        request, eager = work.request, self._eager
        if eager is None:
            eager = self._eager = EagerTasks(connection.loop)
        caller = None if request.user is None else request.account
        if eager.is_ready(caller):
            try:
                answer = work.start(eager.step)
            except Exception as error:  # noqa: BLE001 - logged and answered
                answer = _failed(work, error)
            if answer is not None:
                connection.respond(request.scope, answer.status, headers_of(answer.session_id), answer.body)
                return
        _RunningCall(connection, work, eager).start(caller)


class _RunningCall:
    """A call that is not answered yet; also the `bridge.server.contents_stream.ResponseBody` of its response."""

    def __init__(self, connection: Connection, work: PendingCall, eager: EagerTasks) -> None:
        self.session_id: str | None = None
        self._connection, self._work, self._eager = connection, work, eager
        self._reply = connection.new_reply(work.request.scope)
        self._reply.on_close = self._client_gone
        self._task: asyncio.Task[None] | None = None
        self._is_handed_over = False

    def start(self, caller: str | None) -> None:
        """Pass the call on, or run it in a task."""
        if not self._work.pass_on(self._passed):
            self._run_in_task(caller)

    def begin(self) -> None:
        """Begin the response, or cancel the call of a client that has gone."""
        is_open = self._reply.is_open
        self._reply.begin(200, headers_of(self.session_id))
        if not is_open:
            self._client_gone()

    async def write(self, part: bytes) -> None:
        """Send a part of the response."""
        await self._reply.write(part)

    def _passed(self, answer: PlainResponse | None) -> None:
        if answer is None:
            self._run_in_task(None)
        else:
            self._answer(answer)

    def _run_in_task(self, caller: str | None) -> None:
        request = self._work.request
        if self._work.may_talk:
            request.hand_over, request.response_body = self._continue_in_asgi, self
        self._task = self._eager.run(self._run(), caller)
        if self._task is not None:
            self._connection.add_task(self._task)

    async def _run(self) -> None:
        try:
            answer = await self._work.run()
        except BaseException as error:  # noqa: BLE001 - logged and answered; a tool may also have cancelled its task
            answer = _failed(self._work, error) if self._reply.is_open and not self._is_handed_over else None
        if answer is not None and not self._is_handed_over:
            self._answer(answer)

    def _answer(self, answer: PlainResponse) -> None:
        if not self._reply.has_begun:
            self._reply.respond(answer.status, headers_of(answer.session_id), answer.body)
        elif answer.is_rest:
            self._reply.end(answer.body)
        else:
            self._reply.close()

    def _client_gone(self) -> None:
        """Cancel the call, if it ends with its client, or its response has begun."""
        if self._work.ends_with_client or self._reply.has_begun:
            if self._task is None:
                self._work.cancel()
            else:  # a task cancelled before its first step would not run its cleanup
                self._connection.loop.call_soon(self._task.cancel)

    def _continue_in_asgi(self) -> None:
        """Answer the request in ASGI, while its call continues."""
        request = self._work.request
        scope = {**request.scope, "state": self._connection.app_state.copy()}
        request.scope, scope[REQUEST] = scope, request
        self._is_handed_over = True
        continued = AsgiRequest(scope)
        continued.is_complete = continued.is_end_received = True
        self._connection.run_asgi(continued, self._reply)


def _failed(work: PendingCall, error: BaseException) -> PlainResponse:
    """Log an unexpected error, and return the response."""
    return PlainResponse(internal_error_message(work.request.message, error))
