"""Event loop thread for synchronous facades; detached tasks.

The portal: the one thread in which every synchronous facade of this package runs its asynchronous code.

It is started when it is first needed and ends with the process. A facade that is called in a worker thread of a running
event loop, as a synchronous tool is, uses that event loop instead: so a call stays within its caller's cancellation
(on trio by a `ThreadScope`, since trio lets go on whatever a thread has begun).

Detached: a task that belongs to no task group, and so outlives whoever started it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from concurrent.futures import CancelledError
from threading import Lock, local
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.from_thread
from anyio import get_cancelled_exc_class

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AbstractContextManager

    from anyio.from_thread import BlockingPortal

_T = TypeVar("_T")

_running: set[asyncio.Task[None]] = set()
"""An event loop refers to its tasks only weakly."""


class _Holder:
    """Holds the portal once it is started."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started: tuple[BlockingPortal, AbstractContextManager[BlockingPortal]] | None = None

    def portal(self) -> BlockingPortal:
        with self._lock:
            if self._started is None:
                manager = anyio.from_thread.start_blocking_portal(name="bridge-portal")
                self._started = manager.__enter__(), manager
            return self._started[0]

    def close(self) -> None:
        with self._lock:
            if self._started is not None:
                portal, manager = self._started
                self._started = None
                portal.call(portal.stop, True)  # what still runs is cancelled
                manager.__exit__(None, None, None)


class ThreadScope:
    """What a worker thread runs in its event loop, which ends when nobody waits for the thread any more.

    Its methods are called in the event loop, but for `hold` and `let_go`.
    """

    __slots__ = ("_is_cut", "_scopes")

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._is_cut = False

    def hold(self) -> None:
        """Hold what the calling thread runs from now on."""
        _here.leash = self

    def let_go(self) -> None:
        """Hold nothing any more: the thread will do something else."""
        _here.leash = None

    def cut(self) -> None:
        """Nobody waits any more."""
        self._is_cut = True
        for scope in self._scopes:
            scope.cancel()

    async def outcome(
        self, function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]
    ) -> tuple[_T | None, BaseException | None]:
        """What a function returned or raised, unless the leash was cut."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._is_cut:
                scope.cancel()
            try:
                return await _outcome(function, arguments)
            finally:
                self._scopes.discard(scope)
        return None, CancelledError()


_here = local()
"""The leash of each thread."""


def run(function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Run an asynchronous function to its end, from synchronous code; the calling thread waits.

    Args:
        function: What to run.
        arguments: Its arguments.

    Returns:
        What it returned.

    Raises:
        RuntimeError: It is called in the portal's own thread, which would wait for itself.
        BaseException: What the function raised.
    """
    return _value_of(*_run_anywhere(function, arguments))


def run_in_portal(function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Run an asynchronous function to its end in the portal's own thread, whoever calls; the calling thread waits.

    For what lives longer than a call, and so belongs to one event loop: a connection.

    Args:
        function: What to run.
        arguments: Its arguments.

    Returns:
        What it returned.

    Raises:
        RuntimeError: It is called in the portal's own thread, which would wait for itself.
        BaseException: What the function raised.
    """
    return _value_of(*_run_in_portal(function, arguments))


def _value_of(value: _T | None, error: BaseException | None) -> _T:
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # there is a value where there is no error


def _run_anywhere(
    function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]
) -> tuple[_T | None, BaseException | None]:
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:  # this is no worker thread of an event loop
        return _run_in_portal(function, arguments)
    leash: ThreadScope | None = getattr(_here, "leash", None)
    return anyio.from_thread.run(_outcome if leash is None else leash.outcome, function, arguments)


def _run_in_portal(
    function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]
) -> tuple[_T | None, BaseException | None]:
    portal, call = _holder.portal(), _Call(function, arguments)
    try:
        return portal.start_task_soon(call.outcome).result()
    except RuntimeError as error:
        raise RuntimeError(
            f"{function!r} was called synchronously in the event loop that would have to run it; "
            "use its asynchronous form there"
        ) from error
    except BaseException:  # the caller was interrupted and waits no longer
        portal.start_task_soon(call.cancel)
        raise


class _Call(Generic[_T]):
    """A call from the moment that its caller waits for it: it can be interrupted before it has begun."""

    def __init__(self, function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False

    async def outcome(self) -> tuple[_T | None, BaseException | None]:
        if self._is_cancelled:
            return None, None
        with anyio.CancelScope() as self._scope:
            return await _outcome(self._function, self._arguments)
        return None, None

    async def cancel(self) -> None:
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()


async def _outcome(
    function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]
) -> tuple[_T | None, BaseException | None]:
    """What a function returned or raised: an exception that is no Exception would end the portal."""
    try:
        return await function(*arguments), None
    except get_cancelled_exc_class():
        raise
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
        return None, error


def _close() -> None:
    _holder.close()


def _forget() -> None:
    """In a forked process, whose threads are gone: keep the old portal unused, since it would wait for its thread."""
    global _holder  # noqa: PLW0603 - there is one portal a process
    _lost.append(_holder)
    _holder = _Holder()


_holder = _Holder()


_lost: list[_Holder] = []


atexit.register(_close)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def start_detached(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Run a coroutine function in a task of its own, in the running event loop.

    Nothing waits for the task, and nothing cancels it before the event loop ends. It must handle its own exceptions.

    Args:
        function: What to run.
        name: What the task is called where tasks are listed.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio  # noqa: PLC0415 - whoever runs on it has it

        trio.lowlevel.spawn_system_task(function, name=name)
        return
    task = loop.create_task(function(), name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
