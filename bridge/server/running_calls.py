"""Running calls, and the drain that lets them end at shutdown."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import anyio

from bridge.portal import runs_on_asyncio
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, LIMIT_EXCEEDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    class Cancellable(Protocol):
        """A call that runs: a task, or a call that was passed on without one."""

        def cancel(self) -> object:
            """Cancel the call."""


_logger = logging.getLogger("bridge.server")

_BY_SERVER = "the server ended while {name!r} ran, and cancelled it: its outcome is unknown"
_BY_OPERATOR = "an operator of the server cancelled {name!r} while it ran: its outcome is unknown"
_RETRY_SECONDS = 1
"""When another process may have taken the place of one that ends."""


class RunningCalls:
    """The running calls of one server."""

    def __init__(self) -> None:
        self._tasks: dict[Cancellable, str] = {}
        self._ended: dict[Cancellable, str] = {}
        """Calls that were cancelled here, and by what."""
        self.is_over = False
        """True after `end`: no further call is run."""
        self._questions = 0
        self._are_answered: anyio.Event | None = None

    def enter(self, task: Cancellable, account: str = "") -> None:
        """Add a task that runs a call of a caller's account."""
        self._tasks[task] = account

    def count_of(self, account: str) -> int:
        """Return the number of calls of one caller, in time proportional to all calls."""
        return sum(1 for each in self._tasks.values() if each == account)

    def leave(self, task: Cancellable) -> None:
        """Remove a task that has run its call."""
        self._tasks.pop(task, None)
        self._ended.pop(task, None)

    def replace(self, call: Cancellable, task: Cancellable) -> None:
        """Replace a call that was passed on by the task that continues it."""
        self._tasks[task] = self._tasks.pop(call)
        if call in self._ended:
            self._ended[task] = self._ended.pop(call)

    def entered(self, account: str = "") -> AbstractContextManager[None]:
        """Context in which the current task runs a call.

        Raises:
            ProtocolError: `end` has cancelled the call, on trio; see `reason_of_end` for asyncio.
        """
        return _EnteredTask(self, account) if runs_on_asyncio() else self._entered_in_scope(account)

    @contextmanager
    def _entered_in_scope(self, account: str) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            self.enter(scope, account)
            try:
                yield
            finally:
                self.leave(scope)
        if scope.cancelled_caught:
            raise ProtocolError(
                INTERNAL_ERROR, "the server ended while the call ran, and cancelled it: its outcome is unknown"
            )

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Context in which a call waits for its client's answer, which comes in a new request."""
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions and self._are_answered is not None:
                self._are_answered.set()
                self._are_answered = None

    async def answered(self) -> None:
        """Wait until no call waits for its client's answer."""
        while self._questions:
            self._are_answered = self._are_answered or anyio.Event()
            await self._are_answered.wait()

    def end(self) -> int:
        """Cancel all calls, which are answered by errors, and run no more; return their number."""
        self.is_over = True
        ended = self._tasks.keys() - self._ended.keys()
        for task in ended:
            self._ended[task] = _BY_SERVER
            task.cancel()
        return len(ended)

    def cancel(self, task: object) -> bool:
        """Cancel one call, which is answered by an error, for an operator; return False if it does not run."""
        found = next((each for each in self._tasks if each is task), None)
        if found is None or found in self._ended:
            return False
        self._ended[found] = _BY_OPERATOR
        found.cancel()
        return True

    def has_room(self, places: int) -> bool:
        """Return True if calls may be run, and fewer run than a number of places."""
        return not self.is_over and len(self._tasks) < places

    def check_open(self, name: str) -> None:
        """Refuse a call after `end`.

        Raises:
            ProtocolError: `end` was called.
        """
        if self.is_over:
            message = f"the server ends: {name!r} was not run; call it again in {_RETRY_SECONDS} second, or elsewhere"
            raise ProtocolError(LIMIT_EXCEEDED, message, {"retryAfterSeconds": _RETRY_SECONDS})

    def reason_of_end(self) -> str | None:
        """Return why the current task of asyncio was cancelled, if `end` or `cancel` did it; undo the cancellation.

        None if anything else has cancelled it, too.
        """
        if not (self._ended and runs_on_asyncio()):
            return None
        task = asyncio.current_task()
        assert task is not None
        if task not in self._ended:
            return None
        reason = self._ended.pop(task)
        return reason if task.uncancel() == 0 else None

    def __len__(self) -> int:
        return len(self._tasks)


class Drain:
    """Ends streams, and lets running calls end; ``state.drain`` of the app of `http_app`.

    Streams without responses end at once: subscriptions of the modern era with their result, streams of handshake
    sessions by closing. A session of SSE ends once its requests are answered. Calls that run beyond the timeout are
    cancelled, and answered by errors.

    Args:
        running: The running calls.
        shutdown_steps: Functions that end each kind of stream; called first.
    """

    def __init__(self, running: RunningCalls, shutdown_steps: Iterable[Callable[[], None]]) -> None:
        self._running = running
        self._shutdown_steps = shutdown_steps

    def __len__(self) -> int:
        """Return the number of running calls."""
        return len(self._running)

    async def answered(self) -> None:
        """Wait until no call of the handshake era waits for its client's answer, which comes in a new request."""
        await self._running.answered()
        for step in self._shutdown_steps:  # for streams that were opened meanwhile
            step()

    async def __call__(self, timeout_seconds: float) -> None:
        """End streams, then cancel calls that still run after the timeout. Cancel this once all connections are closed.

        Args:
            timeout_seconds: Seconds for which calls may continue.
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


class _EnteredTask:
    """Context in which the current task runs a call, which takes less time than a generator."""

    __slots__ = ("_account", "_running", "_task")

    def __init__(self, running: RunningCalls, account: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running, self._account, self._task = running, account, task

    def __enter__(self) -> None:
        self._running.enter(self._task, self._account)

    def __exit__(self, *_: object) -> None:
        self._running.leave(self._task)
