"""Options of a call, one call in progress, and the deadlines of a connection's calls.

Deadlines share one timer for the whole connection instead of one for each call. Progress and log messages are delivered
to the caller by the task that waits for the outcome, in their order.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio

from bridge.client.connection.backlog import Backlog, memory_of
from bridge.tools.checks import require_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from bridge.protocol.peer import PendingRequest, Work
    from bridge.tools.channel import LogLevel
    from bridge.tools.context import InvocationContext

_logger = logging.getLogger("bridge.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Options of one call of a tool."""

    meta: Mapping[str, Any] | None = None
    """Value of ``_meta``."""
    repeatable: bool = False
    """True if the tool is annotated as idempotent or read-only. If the server is trusted, the call is repeated after a
    lost connection."""
    timeout_seconds: float | None = None
    """Maximum seconds without progress; None for those of the configuration."""
    input_responses: Mapping[str, Any] | None = None
    """Answers to the input requests of an earlier round, by key (modern era)."""
    request_state: str | None = None
    """The state of that round, unchanged (modern era)."""
    hands_on_questions: bool = False
    """The call of another client, whose arguments were received as JSON, is passed on.

    A result with ``resultType: "input_required"`` is returned instead of being answered with handlers. That has no
    effect in the handshake era, in which servers send requests during the call.
    """
    hands_on_tasks: bool = False
    """Return a result with ``resultType: "task"`` instead of waiting for the end of the task."""
    capabilities: Mapping[str, Any] | None = None
    """Capabilities of another client, on whose behalf the request declares them in place of this client's; None for
    this client's (modern era)."""

    def __post_init__(self) -> None:
        if self.timeout_seconds is not None:
            require_seconds(self.timeout_seconds, "timeout_seconds")


NO_OPTIONS = CallOptions()
"""The default options."""


class Call:
    """One call of a server.

    Attributes:
        deadline: Current deadline, in the event loop's time.
        scope: Cancel scope of the call.
        request: Its last request; None before the first.
        work: What its task has to await before its outcome, in its order.
    """

    # Defaults stay in the class, which is faster than slots.
    _asking = 0
    _is_over = False
    _over: anyio.Event | None = None
    _backlog: Backlog | None = None
    request: PendingRequest | None = None

    def __init__(
        self,
        deadlines: Deadlines,
        context: InvocationContext,
        idle_seconds: float,
        max_seconds: float,
        began_at: float | None = None,
    ) -> None:
        task = _current_task()
        now = began_at
        if now is None:
            now = anyio.current_time() if task is None else task.get_loop().time()
        self._deadlines = deadlines
        self.context = context
        self.idle_seconds = idle_seconds
        self._began, last = now, now + max_seconds
        if context.deadline is not None and context.deadline < last:
            last = context.deadline
        self._last = last
        deadline = now + idle_seconds
        self.deadline = min(last, deadline)
        self.work: deque[Work] = deque()
        self.scope = anyio.CancelScope() if task is None else _TaskScope(task)

    def __enter__(self) -> None:
        """Start the call; at its deadline, this block is cancelled."""
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
    def max_seconds(self) -> float:
        """Maximum seconds in total, limited by the context's deadline."""
        return max(0.0, self._last - self._began)

    @property
    def is_idle_too_long(self) -> bool:
        """True if the call reached its limit without progress, not its total limit."""
        return self.deadline < self._last

    def touch(self) -> None:
        """Restart the limit without progress."""
        if not self._asking:
            self.deadline = min(anyio.current_time() + self.idle_seconds, self._last)
            self._deadlines.changed(self)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Suspend the limit without progress while a handler answers the server."""
        self._asking += 1
        self.deadline = self._last
        self._deadlines.changed(self)
        try:
            yield
        finally:
            self._asking -= 1
            self.touch()

    @property
    def backlog(self) -> Backlog:
        """Its messages that are being delivered."""
        if self._backlog is None:
            self._backlog = Backlog()
        return self._backlog

    @property
    def is_over(self) -> bool:
        """True if the call has ended."""
        return self._is_over

    async def over(self) -> None:
        """Wait until the call has ended."""
        if not self._is_over:
            self._over = self._over or anyio.Event()
            await self._over.wait()

    @property
    def is_full(self) -> bool:
        """True if no further message for it is to be read."""
        return self._backlog is not None and self._backlog.is_full

    def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Handle a progress notification."""
        self.touch()
        self._receive(len(message or ""), self.context.progress, progress, total, message)

    def on_log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Handle a log message for this call."""
        self._receive(memory_of(data), self.context.log, level, data, logger)

    def on_notification(self, handle: Any, method: str, params: Any) -> None:
        """Handle a notification of an extension with a function of the method, the parameters and the context."""
        self._receive(memory_of(params), handle, method, params, self.context)

    def _receive(self, size_bytes: int, deliver: Any, *arguments: Any) -> None:
        backlog = self.backlog
        if not (self._is_over or backlog.has_to_drop):
            backlog.begin(size_bytes)
            self.defer(partial(backlog.deliver, size_bytes, self._deliver, deliver, *arguments))

    def defer(self, work: Work) -> None:
        """Let the task of the call await something, unless the call has ended."""
        if self._is_over:
            return
        self.work.append(work)
        if self.request is not None and self.request.on_change is not None:
            self.request.on_change()

    async def flush(self) -> None:
        """Deliver the notifications received so far."""
        while self.work:
            await self.work.popleft()()

    async def _deliver(self, deliver: Any, *arguments: Any) -> None:
        """Deliver one notification to the caller; exceptions are logged."""
        try:
            await deliver(*arguments)
        except Exception:
            _logger.exception("a progress or log callback failed")


class _TaskScope:
    """Cancel scope of a block in an asyncio task, with the part of anyio's that calls use, in a tenth of its time."""

    cancel_called = False
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._cancelling = task.cancelling()

    @property
    def deadline(self) -> float:
        """Time of the cancellation."""
        return math.inf if self._timer is None else self._timer.when()

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if deadline == math.inf else self._task.get_loop().call_at(deadline, self.cancel)

    def cancel(self) -> None:
        """Cancel the block, once."""
        if not self.cancel_called:
            self.cancel_called = True
            self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        is_own = self.cancel_called and self._task.uncancel() <= self._cancelling
        return is_own and isinstance(error, asyncio.CancelledError)


def _current_task() -> asyncio.Task[Any] | None:
    """The current task; None on trio."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class Deadlines:
    """Deadlines of the running calls of one connection.

    Postponing a deadline costs nothing: the timer checks for it when it fires. The timer is reset only for a deadline
    before its current time.
    """

    def __init__(self) -> None:
        self._calls: set[Call] = set()
        self._is_watched = False
        self._fires_at = math.inf
        self._is_sooner = anyio.Event()

    def add(self, call: Call) -> None:
        """Watch a call until it is discarded."""
        self._calls.add(call)
        if not self._is_watched or call.deadline < self._fires_at:
            self.changed(call)

    def discard(self, call: Call) -> None:
        """Stop watching a call."""
        self._calls.discard(call)

    def changed(self, call: Call) -> None:
        """Update a watched call's deadline."""
        if not self._is_watched:
            call.scope.deadline = call.deadline
        elif call.deadline < self._fires_at:
            self._fires_at = call.deadline
            self._is_sooner.set()

    async def watch(self) -> None:
        """Cancel calls at their deadlines, until cancelled; afterwards each call uses its own timer."""
        self._is_watched = True
        for call in self._calls:
            call.scope.deadline = math.inf
        try:
            while True:
                self._end_due()
                self._fires_at = min((call.deadline for call in self._calls), default=math.inf)
                self._is_sooner = anyio.Event()
                with anyio.CancelScope(deadline=self._fires_at):
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
