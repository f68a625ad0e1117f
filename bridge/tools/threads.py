"""Worker threads for functions that block, under one limit, given up without being forgotten.

A thread cannot be stopped. A caller that no longer waits leaves its function running, and the place under the limit
stays taken until the function returns, so that abandoned functions cannot pile up beyond the limit.
"""

from __future__ import annotations

import logging
import math
from concurrent.futures import CancelledError
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from bridge.errors import DefinitionError
from bridge.portal import ThreadScope

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

_T = TypeVar("_T")

_logger = logging.getLogger("bridge.tools")

DEFAULT_THREADS = 40
"""How many functions run in threads at once unless `set_thread_limit` says otherwise."""


class _Limiters:
    """The limiters of one event loop."""

    __slots__ = ("ours", "turns", "unlimited")

    def __init__(self) -> None:
        self.ours = anyio.CapacityLimiter(_threads)
        self.unlimited = anyio.CapacityLimiter(math.inf)
        """For anyio, which would free a place as soon as nobody waits."""
        self.turns: WeakValueDictionary[object, anyio.Lock] = WeakValueDictionary()
        """Of each caller one call waits for a place; those behind it wait here, so that callers take turns."""


_threads: float = DEFAULT_THREADS
_limiters: anyio.lowlevel.RunVar[_Limiters] = anyio.lowlevel.RunVar("bridge.tools.threads")


def set_thread_limit(threads: int) -> None:
    """Set how many functions of all tools together may run in worker threads at once; the others wait.

    Takes effect at once in the event loop that calls it, and in every one that starts later.

    Args:
        threads: At least 1.

    Raises:
        DefinitionError: The number is less than 1.
    """
    global _threads  # noqa: PLW0603 - the limit is the process's
    if threads < 1:
        raise DefinitionError(f"the thread limit must be at least 1, not {threads!r}")
    _threads = threads
    with suppress(RuntimeError, LookupError):  # no event loop runs, or none has used threads yet
        _limiters.get().ours.total_tokens = threads


def thread_limiter() -> anyio.CapacityLimiter:
    """The limit within the running event loop, for those who want to watch it."""
    return _current().ours


async def run_in_thread(function: Callable[[], _T], *, caller: str | None = None) -> _T:
    """Run a function in a worker thread, with this task's context variables.

    A cancelled caller leaves at once; the function runs on, holding its place under the limit until it returns. What it
    raises then is logged, since nobody else can hear of it.

    Args:
        function: What is run.
        caller: On whose behalf, where that is known: while places are scarce, callers take turns at them, however many
            calls each of them waits for.
    """
    limiters = _current()
    place = _Place(limiters.ours)
    await place.take(limiters.turns, caller)
    try:
        (value,) = await anyio.to_thread.run_sync(
            place.run, function, abandon_on_cancel=True, limiter=limiters.unlimited
        )
    finally:
        place.leave()
    return value


def _current() -> _Limiters:
    limiters = _limiters.get(None)
    if limiters is None:
        limiters = _Limiters()
        _limiters.set(limiters)
    return limiters


class _Place:
    """One place under the limit: freed by whoever is last, the caller that leaves or the function that returns."""

    __slots__ = ("_leash", "_left", "_limiter", "_lock", "_running")

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self._limiter = limiter
        self._lock = Lock()
        self._leash = ThreadScope()
        self._running = False
        self._left = False

    async def take(self, turns: MutableMapping[object, anyio.Lock], caller: str | None) -> None:
        try:
            self._limiter.acquire_on_behalf_of_nowait(self)
        except anyio.WouldBlock:
            turn = turns.get(caller)
            if turn is None:
                turn = turns[caller] = anyio.Lock()
            async with turn:
                await self._limiter.acquire_on_behalf_of(self)

    def run(self, function: Callable[[], _T]) -> tuple[_T]:
        """Run the function; in the worker thread. The value is wrapped, since trio refuses coroutines as values."""
        if self._runs(running=True):
            raise RuntimeError("the caller left before the function began")  # seen by nobody
        self._leash.hold()
        try:
            return (function(),)
        except Exception as error:
            if self._left and not isinstance(error, CancelledError):  # which says only that its caller has left
                _log_unheard(error, function)
            raise
        finally:
            self._leash.let_go()
            if self._runs(running=False):
                with suppress(RuntimeError):  # the event loop has ended, and the limit with it
                    anyio.from_thread.run_sync(self._limiter.release_on_behalf_of, self)

    def _runs(self, *, running: bool) -> bool:
        """Note whether the function runs, unless the caller has left before it began; returns whether it has left."""
        with self._lock:
            self._running = running and not self._left
            return self._left

    def leave(self) -> None:
        """Wait no longer; in the event loop."""
        with self._lock:
            self._left = True
            running = self._running
        if running:
            self._leash.cut()
        else:
            self._limiter.release_on_behalf_of(self)


def _log_unheard(error: Exception, function: Callable[[], Any]) -> None:
    from bridge.tools.schema.signature import source_of  # noqa: PLC0415 - only where something went wrong

    _logger.warning("%s raised after its caller had left", source_of(function), exc_info=error)
