"""Worker threads for blocking functions, under one limit per process.

A thread cannot be stopped. If a caller is cancelled, its function keeps running and counts towards the limit until it
returns, so that abandoned functions cannot accumulate beyond the limit.

A service may run its tools' functions in an `Executor` of its own instead, whose size is then the limit.
"""

from __future__ import annotations

import logging
import math
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import ContextVar, copy_context
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import anyio.lowlevel
import anyio.to_thread

from bridge.portal import ThreadScope, call_soon
from bridge.tools.checks import require_count

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from concurrent.futures import Executor

_T = TypeVar("_T")
_logger = logging.getLogger("bridge.tools")

DEFAULT_THREADS = 40
"""Maximum number of functions in worker threads, unless `set_thread_limit` changes it."""


class _Limiters:
    """The limiters of one event loop."""

    __slots__ = ("ours", "turns", "unlimited")

    def __init__(self) -> None:
        self.ours = anyio.CapacityLimiter(_threads)
        self.unlimited = anyio.CapacityLimiter(math.inf)
        """Given to anyio, whose own limiter would be released as soon as the caller is cancelled."""
        self.turns: WeakValueDictionary[object, anyio.Lock] = WeakValueDictionary()
        """Locks by caller: only one call of each caller waits in the limiter's queue, so that callers take turns."""


_threads: float = DEFAULT_THREADS
_limiters: anyio.lowlevel.RunVar[_Limiters] = anyio.lowlevel.RunVar("bridge.tools.threads")

own_executor: ContextVar[Executor | None] = ContextVar("own_executor", default=None)
"""Executor to run functions in; None for the worker threads under the limit."""


def set_thread_limit(threads: int) -> None:
    """Set the maximum number of functions that run in worker threads at once; further calls wait.

    Applies to the running event loop and to all that start later.

    Args:
        threads: The limit; at least 1.

    Raises:
        DefinitionError: The limit is less than 1.
    """
    global _threads  # noqa: PLW0603 - the limit applies to the whole process
    require_count(threads, "the thread limit")
    _threads = threads
    with suppress(RuntimeError, LookupError):  # no event loop is running, or it has used no threads yet
        _limiters.get().ours.total_tokens = threads


def thread_limiter() -> anyio.CapacityLimiter:
    """Return the limiter of the running event loop, for monitoring."""
    return _current().ours


async def run_in_thread(
    function: Callable[[], _T], *, caller: str | None = None, late: Callable[[_T], object] | None = None
) -> _T:
    """Run a function in a worker thread with the current context variables.

    If the caller is cancelled, this returns at once; an exception that the function raises after that is logged.

    Args:
        function: The function to run.
        caller: Name of the caller on whose behalf it runs. When the limit is reached, callers take turns, regardless of
            the number of calls that each has waiting.
        late: Receives the return value if the caller was cancelled before; called in the worker thread or the event
            loop, and must not block.
    """
    executor = own_executor.get()
    if executor is not None:
        return await _run_in_executor(executor, function, late)
    limiters = _current()
    slot = _Slot(limiters.ours, late)
    await slot.take(limiters.turns, caller)
    try:
        (value,) = await anyio.to_thread.run_sync(
            slot.run, function, abandon_on_cancel=True, limiter=limiters.unlimited
        )
    except BaseException:
        slot.leave(is_late=True)
        raise
    slot.leave()
    return value


async def _run_in_executor(executor: Executor, function: Callable[[], _T], late: Callable[[_T], object] | None) -> _T:
    token, ended, is_abandoned = anyio.lowlevel.current_token(), anyio.Event(), False
    slot = _Slot(anyio.CapacityLimiter(1), late, token)  # a limiter of its own: the executor has the limit
    await slot.take({}, None)

    def end(_: object) -> None:
        if not is_abandoned:
            with suppress(RuntimeError):  # the event loop is closed
                call_soon(token, ended.set)

    future = executor.submit(copy_context().run, slot.run, function)
    future.add_done_callback(end)
    try:
        await ended.wait()
        (value,) = future.result()
    except BaseException:
        is_abandoned = True
        future.cancel()
        slot.leave(is_late=True)
        raise
    slot.leave()
    return value


def _current() -> _Limiters:
    limiters = _limiters.get(None)
    if limiters is None:
        limiters = _Limiters()
        _limiters.set(limiters)
    return limiters


class _Slot:
    """One slot under the limit; released by the caller or the function, whichever finishes last."""

    __slots__ = ("_caller_left", "_late", "_limiter", "_lock", "_loop", "_running", "_scope", "_values")

    def __init__(
        self,
        limiter: anyio.CapacityLimiter,
        late: Callable[[Any], object] | None = None,
        token: anyio.lowlevel.EventLoopToken | None = None,
    ) -> None:
        self._limiter = limiter
        self._late = late
        self._lock = Lock()
        self._scope = ThreadScope(token)
        self._running = False
        self._caller_left = False
        self._loop: anyio.lowlevel.EventLoopToken | None = None
        """The caller's event loop, once it has left a running function."""
        self._values: tuple[Any, ...] = ()

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
        """Run the function in the worker thread.

        The value is wrapped in a tuple, since trio rejects coroutines as values.
        """
        if self._set_running(running=True):
            raise RuntimeError("the caller left before the function began")  # never seen: nobody waits for it
        self._scope.attach()
        try:
            values = (function(),)
            if self._late is not None:
                self._values = values
        except Exception as error:
            if self._caller_left and not isinstance(
                error, CancelledError
            ):  # CancelledError only means that the caller left
                _log_abandoned(error, function)
            raise
        else:
            return values
        finally:
            self._scope.detach()
            if self._set_running(running=False):
                assert self._loop is not None
                with suppress(RuntimeError):  # the event loop and its limiter are closed
                    # Waiting for the event loop would block this thread, and the end of the process, if it has stopped.
                    call_soon(self._loop, lambda: self._limiter.release_on_behalf_of(self))
                self._deliver_late()

    def _set_running(self, *, running: bool) -> bool:
        """Record whether the function runs; return True, and record False, if the caller has left."""
        with self._lock:
            self._running = running and not self._caller_left
            return self._caller_left

    def leave(self, *, is_late: bool = False) -> None:
        """Release the slot, or leave that to the running function; called in the event loop."""
        with self._lock:
            self._caller_left = True
            running = self._running
            if running:
                self._loop = anyio.lowlevel.current_token()
        if running:
            self._scope.cancel()
            return
        self._limiter.release_on_behalf_of(self)
        if is_late:
            self._deliver_late()

    def _deliver_late(self) -> None:
        if self._late is not None and self._values:
            self._late(*self._values)


def _log_abandoned(error: Exception, function: Callable[[], Any]) -> None:
    from bridge.tools.schema.signature import source_of  # noqa: PLC0415 - only needed for this warning

    _logger.warning("%s raised after its caller had left", source_of(function), exc_info=error)
