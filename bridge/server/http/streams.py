"""Open streams; client disconnects.

Hanging up: running something only as long as the client of an HTTP request stays.

Most calls are done before they wait for anything, and then nobody has to watch. Only when one first waits does a second
task begin to listen for the client's going: a scope or a task group around every call would cost more than the call.

Open streams: answers that go on until somebody ends them, and what ends them when the server shuts down.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from anyio import Event, create_task_group

from bridge.errors import BridgeError
from bridge.server.auth.identity import ending_with_credential

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bridge.server.http.session import Session

_T = TypeVar("_T")


class ClientDisconnectedError(BridgeError):
    """The client has gone, and what ran for it was cancelled."""


async def run_until_disconnect(work: Coroutine[Any, Any, _T], receive: Receive) -> _T:
    """Run some work in this task, and cancel it when the client goes; on asyncio.

    Args:
        work: What to run.
        receive: The request's messages after its body: the next one says that the client has gone.

    Raises:
        ClientDisconnectedError: The client has gone.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        value: _T = done.value
        return value
    with _Watch(receive):
        return await _Begun(work, waits_for)


class _Watch:
    """Listens for the client's going, and cancels the task that it was entered in."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_hung_up = False

    def __enter__(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        self._worker = worker
        self._cancellations = worker.cancelling()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._listening.cancel()
        # The task is cancelled no longer, unless it was for another reason as well.
        is_over = self._has_hung_up and self._worker.uncancel() <= self._cancellations
        if is_over and (error is None or issubclass(error, asyncio.CancelledError)):
            raise ClientDisconnectedError from None

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._has_hung_up = True
        self._worker.cancel()


class _Begun(Generic[_T]):
    """Awaits the rest of a coroutine that waits for something already."""

    def __init__(self, work: Coroutine[Any, Any, _T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, _T]:
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                try:
                    given = yield waits_for
                except BaseException as error:  # noqa: BLE001 - the coroutine's to handle, cancellation included
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(given)
        except StopIteration as done:
            value: _T = done.value
            return value
        finally:
            work.close()


class OpenStreams:
    """The streams of one app that no request of the client will end.

    Args:
        end_with_credentials: Whether each is also ended when the credential that opened it holds no more.
    """

    def __init__(self, *, end_with_credentials: bool = False) -> None:
        self._end_with_credentials = end_with_credentials
        self._open: set[Event] = set()

    async def run(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, session: Session | None = None
    ) -> None:
        """Answer by ``app``, until it is done or the streams are ended.

        An app whose stream is ended hears that its client has gone, because that is an end which every app is prepared
        for; the client sees the stream closed in order.

        Args:
            app: What answers.
            scope: The request.
            receive: Gives its body, and its end.
            send: Takes the answer.
            session: The session that is this stream, and ends with it; None where there is none.
        """
        ended, is_unfinished = Event(), False
        if session is not None:
            session.end = ended.set

        async def watch(message: Message) -> None:
            nonlocal is_unfinished
            is_unfinished = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        self._open.add(ended)
        try:
            with ending_with_credential(ended.set) if self._end_with_credentials else nullcontext():
                await app(scope, lambda: _received(receive, ended), watch)
        finally:
            self._open.discard(ended)
        if is_unfinished:  # sse-starlette ends its streams itself, in the middle, when it sees uvicorn take a signal
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """End all that are open."""
        for stream in tuple(self._open):
            stream.set()

    def __len__(self) -> int:
        return len(self._open)


async def _received(receive: Receive, ended: Event) -> Message:
    message: Message = {"type": "http.disconnect"}
    async with create_task_group() as group:

        async def stop() -> None:
            await ended.wait()
            group.cancel_scope.cancel()

        group.start_soon(stop)
        message = await receive()
        group.cancel_scope.cancel()
    return message
