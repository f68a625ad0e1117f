"""MCP's messages on a connection, answered without ASGI: the first step of a call at once, the rest in a task.

This is all that the connection knows of MCP.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from bridge.server.dispatch import internal_error_message
from bridge.server.eager_tasks import EagerTasks
from bridge.server.http.responses import Response
from bridge.server.http.streams import SILENT_SECONDS

if TYPE_CHECKING:
    import asyncio

    from bridge.hosting.http.connection import Connection
    from bridge.hosting.http.reply import Header
    from bridge.server.http.calls import HttpCall
    from bridge.server.http.guards import PreAsgiHandler
    from bridge.server.http.requests import Head

_logger = logging.getLogger("bridge.hosting")


class McpCalls:
    """Answers the messages of all connections of a server.

    Args:
        handler: Begins to answer them.
    """

    def __init__(self, handler: PreAsgiHandler) -> None:
        self._begin = handler.begin
        self._running: _RunningCalls | None = None

    def answers(self, connection: Connection, head: Head, body: bytes) -> bool:
        """Answer a request, or start its call; return False if the app has to."""
        try:
            begun = self._begin(head, body)
        except Exception:  # noqa: BLE001 - the error occurs again in the app, where it is logged
            return False
        try:
            if isinstance(begun, Response):
                connection.respond(head.scope, begun.status, begun.headers, begun.body)
            elif begun is not None:
                self._start(connection, begun)
        except BaseException:  # after a response that may be written
            _logger.exception("the connection is closed, because a response failed")
            connection.transport.close()
        return begun is not None

    def _start(self, connection: Connection, work: HttpCall) -> None:
        request, calls = work.request, self._running
        if calls is None:
            calls = self._running = _RunningCalls(connection.loop)
        caller = None if request.user is None else request.account
        if calls.eager.is_ready(caller):
            work.open_body = partial(_RunningCall, connection, calls)
            try:
                response = work.start(calls.eager.step)
            except Exception as error:  # noqa: BLE001 - logged and answered
                response = _failed(work, error)
            if response is not None:
                connection.respond(request.scope, response.status, response.headers, response.body)
                return
        running = work.body if isinstance(work.body, _RunningCall) else _RunningCall(connection, calls, work)
        running.start(caller)


class _RunningCalls:
    """The calls of an event loop that run in tasks, with one timer for those that are silent.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.eager = EagerTasks(loop, can_stop=False)
        """Runs the calls."""
        self._loop = loop
        self._silent: dict[_RunningCall, float] = {}
        """When each call has been silent for too long, in order."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: _RunningCall) -> None:
        """Have `_RunningCall.keep_alive` called again and again until `remove`."""
        due = self._silent[call] = self._loop.time() + SILENT_SECONDS
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._keep_alive)

    def remove(self, call: _RunningCall) -> None:
        """Forget a call that has ended."""
        self._silent.pop(call, None)

    def _keep_alive(self) -> None:
        now = self._loop.time()
        for call in [call for call, due in self._silent.items() if due <= now]:
            call.keep_alive()
            del self._silent[call]  # it becomes the last
            self._silent[call] = now + SILENT_SECONDS
        earliest = next(iter(self._silent.values()), None)
        self._timer = None if earliest is None else self._loop.call_at(earliest, self._keep_alive)


class _RunningCall:
    """A call that is not answered yet; also the `bridge.server.http.streams.StreamBody` of its response."""

    def __init__(self, connection: Connection, calls: _RunningCalls, work: HttpCall) -> None:
        self._connection, self._work, self._calls = connection, work, calls
        self._reply = connection.new_reply(work.request.scope)
        self._reply.on_close = self._client_gone
        self._task: asyncio.Task[None] | None = None
        work.body = self

    def start(self, caller: str | None) -> None:
        """Send the call to another server, or run it in a task."""
        if not self._work.send_at_once(self._received):
            self._run_in_task(caller)

    # --- the body of its response -------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True until the response is complete, or the client has disconnected."""
        return self._reply.is_open

    def begin(self, headers: tuple[Header, ...]) -> bool:
        """Begin the response; return False if it has begun."""
        if self._reply.has_begun:
            return False
        self._reply.begin(200, headers)
        if not self._reply.is_open:
            self._client_gone()
        return True

    async def write(self, part: bytes) -> None:
        """Send a part of the response."""
        await self._reply.write(part)

    async def end(self) -> None:
        """End the response, whose call goes on."""
        self._reply.end()

    # --- the call -----------------------------------------------------------------------------------------------------

    def _received(self, response: Response | None) -> None:
        if response is None:
            self._run_in_task(None)
        else:
            self._answer(response)

    def _run_in_task(self, caller: str | None) -> None:
        task = self._calls.eager.run(self._run(), caller)
        if task is not None:
            self._task = task.task
            self._connection.add_task(self._task)
            self._calls.add(self)

    async def _run(self) -> None:
        try:
            response = await self._work.run()
        except BaseException as error:  # noqa: BLE001 - logged and answered; a tool may also have cancelled its task
            if not self._reply.is_open:
                return
            response = _failed(self._work, error)
        finally:
            self._calls.remove(self)
        self._answer(response)

    def _answer(self, response: Response) -> None:
        reply = self._reply
        if not reply.has_begun:
            reply.respond(response.status, response.headers, response.body)
        elif response.is_rest:
            reply.end(response.body)
        else:
            reply.close()

    def keep_alive(self) -> None:
        """Send a comment, since the call is silent."""
        if self._reply.is_open:
            self._connection.add_task(self._connection.loop.create_task(self._send_comment()))

    async def _send_comment(self) -> None:
        await self._work.keep_alive()

    def _client_gone(self) -> None:
        """Cancel the call, if it ends with its client, or its response is a result in parts."""
        if self._work.ends_with_client or (self._reply.has_begun and not self._work.is_stream):
            if self._task is None:
                self._work.cancel()
            else:  # a task cancelled before its first step would not run its cleanup
                self._connection.loop.call_soon(self._task.cancel)


def _failed(work: HttpCall, error: BaseException) -> Response:
    """Log an unexpected error, and return the response."""
    return Response(internal_error_message(work.request.message, error))
