"""A call in progress, and its deadlines.

Call: one call under way, its deadlines, and what is heard of it before its answer.

Deadlines: what ends calls whose time is over. One timer for all of a connection, and none for each call.
"""

from __future__ import annotations

import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from bridge.tools.context import InvocationContext, LogLevel

_logger = logging.getLogger("bridge.client")


class Call:
    """One call of a server.

    Args:
        deadlines: Ends it when its time is over.
        context: What surrounds the call.
        idle_seconds: How long it may go without a sign of progress.
        max_seconds: How long it may take whatever its progress.

    Attributes:
        max_seconds: How long it may take, the deadline of its context counted.
        deadline: When its time is over, as things are; see `bridge.client.connection.call`.
        scope: What ends it then.
    """

    __slots__ = (
        "_asking",
        "_deadlines",
        "_delivery",
        "_is_done",
        "_is_over",
        "_last",
        "_over",
        "_waiting",
        "context",
        "deadline",
        "idle_seconds",
        "max_seconds",
        "scope",
    )

    def __init__(
        self, deadlines: Deadlines, context: InvocationContext, idle_seconds: float, max_seconds: float
    ) -> None:
        now = anyio.current_time()
        self._deadlines = deadlines
        self.context = context
        self.idle_seconds = idle_seconds
        self._last = min(now + max_seconds, math.inf if context.deadline is None else context.deadline)
        self.max_seconds = max(0.0, self._last - now)
        self.deadline = min(now + idle_seconds, self._last)
        self.scope = anyio.CancelScope()
        self._asking = 0
        self._is_done = False
        self._is_over = False
        self._over: anyio.Event | None = None
        self._delivery: anyio.Lock | None = None
        self._waiting = 0

    def __enter__(self) -> None:
        """Begin: from here on it ends when its time is over, by an end of this block."""
        self.scope.__enter__()
        self._deadlines.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._deadlines.discard(self)
        self._is_over = True
        if self._over is not None:
            self._over.set()
        return self.scope.__exit__(kind, error, traceback)

    @property
    def is_idle_too_long(self) -> bool:
        """Whether its time, when it was over, was that without progress, and not the whole."""
        return self.deadline < self._last

    def touch(self) -> None:
        """It is alive: the time without progress begins anew."""
        if not self._asking:
            self.deadline = min(anyio.current_time() + self.idle_seconds, self._last)
            self._deadlines.changed(self)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While somebody here thinks about an answer, the server cannot make progress."""
        self._asking += 1
        self.deadline = self._last
        self._deadlines.changed(self)
        try:
            yield
        finally:
            self._asking -= 1
            self.touch()

    async def over(self) -> None:
        """Wait until it has ended, however it does."""
        if not self._is_over:
            self._over = self._over or anyio.Event()
            await self._over.wait()

    async def heard_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """The server says how far it is."""
        self.touch()
        await self._deliver(self.context.progress, progress, total, message)

    async def heard_log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """The server logs something on behalf of the call."""
        await self._deliver(self.context.log, level, data, logger)

    async def finish(self) -> None:
        """Let what was heard before the answer reach the caller; what comes later is dropped."""
        if self._delivery is not None and self._waiting:
            async with self._delivery:
                pass
        self._is_done = True

    async def _deliver(self, tell: Any, *what: Any) -> None:
        """Tell the caller, one thing after the other; what goes wrong there is no matter of the server's."""
        if self._is_done:
            return
        self._delivery = self._delivery or anyio.Lock()
        self._waiting += 1
        try:
            async with self._delivery:
                if not self._is_done:
                    await tell(*what)
        except Exception:
            _logger.exception("a caller could not be told of progress or a log message")
        finally:
            self._waiting -= 1


class Deadlines:
    """The calls of one connection that are under way, and when the time of each is over.

    A call whose time is put off costs nothing: the timer finds that out when it rings. Only one that is due before the
    timer rings has it set anew.
    """

    def __init__(self) -> None:
        self._calls: set[Call] = set()
        self._is_watched = False
        self._rings_at = math.inf
        self._is_sooner = anyio.Event()

    def add(self, call: Call) -> None:
        """Watch a call, until it is discarded."""
        self._calls.add(call)
        self.changed(call)

    def discard(self, call: Call) -> None:
        """Watch a call no more."""
        self._calls.discard(call)

    def changed(self, call: Call) -> None:
        """A call that is watched is due at another time than before."""
        if not self._is_watched:
            call.scope.deadline = call.deadline
        elif call.deadline < self._rings_at:
            self._rings_at = call.deadline
            self._is_sooner.set()

    async def watch(self) -> None:
        """End calls when they are due, until cancelled; from then on each has a timer of its own."""
        self._is_watched = True
        for call in self._calls:
            call.scope.deadline = math.inf
        try:
            while True:
                self._end_due()
                self._rings_at = min((call.deadline for call in self._calls), default=math.inf)
                self._is_sooner = anyio.Event()
                with anyio.CancelScope(deadline=self._rings_at):
                    await self._is_sooner.wait()
        finally:
            self._is_watched = False
            for call in self._calls:
                self.changed(call)

    def _end_due(self) -> None:
        now = anyio.current_time()
        due = [call for call in self._calls if call.deadline <= now]
        for call in due:
            self.discard(call)
            call.scope.cancel()
