"""Calls in progress, and draining them.

Running calls: so that they can be counted, and ended where the server has to end.

A call that never waits is over before anybody could look: whoever looks sees those that wait.

The drain: an app's orderly end, in which no call is lost that had begun.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from bridge.server.protocol import LIMIT_EXCEEDED, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

if TYPE_CHECKING:
    Task = asyncio.Task[Any]

_logger = logging.getLogger("bridge.server")

_RETRY_SECONDS = 1
"""When another process may have taken the place of one that ends."""


class RunningCalls:
    """The calls of one server that are being run; on asyncio."""

    def __init__(self) -> None:
        self._tasks: dict[Task, str] = {}
        self._ended: set[Task] = set()
        self.is_over = False
        """Whether `end` was called: no further call is run."""
        self._questions = 0
        self._are_answered = asyncio.Event()

    def enter(self, task: Task, account: str = "") -> None:
        """Add a task that runs a call.

        Args:
            task: The task.
            account: Whose call it is, as `InvocationContext.account` says it.
        """
        self._tasks[task] = account

    def count_of(self, account: str) -> int:
        """Number of calls of one caller. It takes a look at each call: ask only where there are many."""
        return sum(1 for each in self._tasks.values() if each == account)

    def leave(self, task: Task) -> None:
        """It does no more."""
        self._tasks.pop(task, None)
        self._ended.discard(task)

    @contextmanager
    def entered(self, account: str = "") -> Iterator[None]:
        """The time during which this task runs a call. On another event loop than asyncio's, nothing is entered."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is None:
            yield
            return
        self.enter(task, account)
        try:
            yield
        finally:
            self.leave(task)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The time during which a call waits for what its client answers in a request of its own."""
        self._questions += 1
        self._are_answered.clear()
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._are_answered.set()

    async def answered(self) -> None:
        """Wait until no call waits for its client."""
        while self._questions:
            await self._are_answered.wait()

    def end(self) -> int:
        """Cancel all calls, each of which is answered by an error, and run no more; returns how many there were."""
        self.is_over = True
        ended = self._tasks.keys() - self._ended
        for task in ended:
            self._ended.add(task)
            task.cancel()
        return len(ended)

    def check_open(self, name: str) -> None:
        """Refuse a call once `end` was called.

        Args:
            name: The tool's name.

        Raises:
            ProtocolError: It was.
        """
        if self.is_over:
            told = f"the server ends: {name!r} was not run; call it again in {_RETRY_SECONDS} second, or elsewhere"
            raise ProtocolError(LIMIT_EXCEEDED, told, {"retryAfterSeconds": _RETRY_SECONDS})

    def was_ended(self) -> bool:
        """Whether this task is being cancelled by `end`, and by nobody else; it is cancelled no longer."""
        if not self._ended:
            return False
        task = asyncio.current_task()
        assert task is not None
        if task not in self._ended:
            return False
        self._ended.discard(task)
        return task.uncancel() == 0

    def __len__(self) -> int:
        return len(self._tasks)


class Drain:
    """Ends what is open, each in its own time. Each process that serves has one, as `http_app`'s ``state.drain``.

    Streams over which no answers come end at once: a subscription of the modern era with its result, a stream of a
    session of the handshake era by being closed. Over SSE a session ends when it has answered what it was asked. Calls
    go on until the time is over, and are then answered by an error.

    Args:
        running: The calls.
        shutdown_steps: What ends each kind of stream; called at the beginning.
    """

    def __init__(self, running: RunningCalls, shutdown_steps: Iterable[Callable[[], None]]) -> None:
        self._running = running
        self._shutdown_steps = shutdown_steps

    def __len__(self) -> int:
        """How many calls are waiting for something now."""
        return len(self._running)

    async def answered(self) -> None:
        """Wait until no call of the handshake era waits for what its client answers: that comes by a new request."""
        await self._running.answered()
        for step in self._shutdown_steps:  # to streams that were opened meanwhile
            step()

    async def __call__(self, timeout_seconds: float) -> None:
        """End the streams, and what runs after the time is over; to be cancelled when all connections are closed.

        Args:
            timeout_seconds: How long calls may go on.
        """
        for step in self._shutdown_steps:
            step()
        await anyio.sleep(timeout_seconds)
        if ended := self._running.end():
            _logger.warning(
                "cancelled %d %s that still ran after %g seconds of draining; the outcome is unknown",
                ended,
                "call" if ended == 1 else "calls",
                timeout_seconds,
            )
