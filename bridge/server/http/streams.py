"""Cancel a call when its client disconnects; end open streams at shutdown."""

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

    from bridge.server.http.pending_calls import PendingCall
    from bridge.server.http.requests import Request
    from bridge.server.http.responses import AsgiBody, PlainResponse
    from bridge.server.http.sessions import Session

_T = TypeVar("_T")


class ClientDisconnectedError(BridgeError):
    """The client has disconnected, and its call was cancelled."""


async def run_until_disconnect(work: Coroutine[Any, Any, _T], receive: Receive) -> _T:
    """Run a coroutine in this task, and cancel it when the client disconnects; on asyncio.

    Most calls finish without waiting. The disconnect is watched only once the coroutine first waits, because a task
    for every call would cost more than the call.

    Raises:
        ClientDisconnectedError: The client has disconnected.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        value: _T = done.value
        return value
    with _DisconnectWatcher(receive):
        return await _StartedCoroutine(work, waits_for)


async def run_in_asgi(call: PendingCall, request: Request, body: AsgiBody) -> PlainResponse | None:
    """Run a call; cancel it when its client disconnects, if it ends with its client, or once its response has begun.

    Raises:
        ClientDisconnectedError: It was cancelled.
    """

    async def receive() -> Message:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            await body.begun.wait()
        return message

    if not call.may_talk:
        return await (run_until_disconnect(call.run(), request.receive) if call.ends_with_client else call.run())
    return await run_until_disconnect(_run_beside(call), request.receive if call.ends_with_client else receive)


async def _run_beside(call: PendingCall) -> PlainResponse | None:
    """Run a call in its own task, so that this task can pass the request to the SDK's server meanwhile."""
    handed_over = asyncio.get_running_loop().create_future()
    call.request.hand_over = lambda: handed_over.set_result(None)
    task = asyncio.create_task(call.run())
    try:
        await asyncio.wait([task, handed_over], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    return None if handed_over.done() else task.result()


class _DisconnectWatcher:
    """Context manager that cancels the current task when the client disconnects."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_disconnected = False

    def __enter__(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        self._worker = worker
        self._cancellations = worker.cancelling()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._listening.cancel()
        # Undo the cancellation, unless the task was also cancelled for another reason.
        is_over = self._has_disconnected and self._worker.uncancel() <= self._cancellations
        if is_over and (error is None or issubclass(error, asyncio.CancelledError)):
            raise ClientDisconnectedError from None

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._has_disconnected = True
        self._worker.cancel()


class _StartedCoroutine(Generic[_T]):
    """Awaits the rest of a coroutine that has started."""

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
    """Streams of one app that stay open until the client or the server ends them, or their credentials expire."""

    def __init__(self, *, end_with_credentials: bool = False) -> None:
        self._end_with_credentials = end_with_credentials
        self._open: set[Event] = set()

    async def run(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, session: Session | None = None
    ) -> None:
        """Run ``app`` until it is done, or the streams or its session of SSE are ended.

        To end a stream, its app receives ``http.disconnect``, which every app handles; the client sees an orderly end.
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
        if is_unfinished:  # sse-starlette aborts its streams when uvicorn receives a signal
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """End all open streams."""
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
