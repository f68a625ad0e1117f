"""Hanging up: running something only as long as the client of an HTTP request stays.

Most calls are done before they wait for anything, and then nobody has to watch. Only when one first waits does a second
task begin to listen for the client's going: a scope or a task group around every call would cost more than the call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bridge.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from starlette.types import Receive

_T = TypeVar("_T")


class HungUpError(BridgeError):
    """The client has gone, and what ran for it was cancelled."""


async def until_hang_up(work: Coroutine[Any, Any, _T], receive: Receive) -> _T:
    """Run some work in this task, and cancel it when the client goes; on asyncio.

    Args:
        work: What to run.
        receive: The request's messages after its body: the next one says that the client has gone.

    Raises:
        HungUpError: The client has gone.
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
            raise HungUpError from None

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
