"""Running calls: so that they can be counted, and ended where the server has to end.

A call that never waits is over before anybody could look: whoever looks sees those that wait.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Task = asyncio.Task[Any]


class RunningCalls:
    """The calls of one server that are being run; on asyncio."""

    def __init__(self) -> None:
        self._tasks: dict[Task, str] = {}
        self._ended: set[Task] = set()
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
        """Cancel all calls; each is answered by an error. Returns how many there were."""
        ended = self._tasks.keys() - self._ended
        for task in ended:
            self._ended.add(task)
            task.cancel()
        return len(ended)

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
