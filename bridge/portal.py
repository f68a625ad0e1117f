"""Event loop thread for synchronous facades, and detached tasks.

The portal is one thread in which all synchronous facades run asynchronous code. It starts on first use and ends with
the process. A facade called from a worker thread of a running event loop, such as a synchronous tool, uses that event
loop instead, so that the call is cancelled with its caller. On trio this needs a `ThreadScope`, since trio does not
cancel code that a worker thread started.

A detached task belongs to no task group and outlives the code that started it.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import sys
from concurrent.futures import CancelledError
from contextvars import Context, copy_context
from threading import Lock, get_ident, local
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio import get_cancelled_exc_class
from anyio.lowlevel import current_token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from anyio.from_thread import BlockingPortal
    from anyio.lowlevel import EventLoopToken

_T = TypeVar("_T")
_Outcome: TypeAlias = "tuple[_T | None, BaseException | None]"
"""Result or exception of a function."""

_running: set[asyncio.Task[None]] = set()
"""Strong references, since event loops only keep weak references to tasks."""


class _Holder:
    """Starts the portal on first use."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started: tuple[BlockingPortal, AbstractContextManager[BlockingPortal]] | None = None
        self.thread_id: int | None = None

    def portal(self) -> BlockingPortal:
        with self._lock:
            if self._started is None:
                manager = anyio.from_thread.start_blocking_portal(name="bridge-portal")
                self._started = manager.__enter__(), manager
                self.thread_id = self._started[0].call(get_ident)
            return self._started[0]

    def close(self) -> None:
        with self._lock:
            if self._started is not None:
                portal, manager = self._started
                self._started = self.thread_id = None
                portal.call(portal.stop, True)  # cancel running tasks
                manager.__exit__(None, None, None)


class ThreadScope:
    """Cancels what a thread runs in an event loop once the thread's caller is cancelled.

    `attach` and `detach` are called in the thread, all other methods in the event loop.

    Args:
        token: The event loop that the thread's calls run in; None for a worker thread of anyio, which knows it.
    """

    __slots__ = ("_is_cancelled", "_scopes", "token")

    def __init__(self, token: EventLoopToken | None = None) -> None:
        self.token = token
        self._scopes: set[anyio.CancelScope] = set()
        self._is_cancelled = False

    def attach(self) -> None:
        """Cover the calls that this thread makes from now on."""
        _thread_local.scope = self

    def detach(self) -> None:
        """Stop covering this thread's calls."""
        _thread_local.scope = None

    def cancel(self) -> None:
        """Cancel all calls, including later ones."""
        self._is_cancelled = True
        for scope in self._scopes:
            scope.cancel()

    async def outcome(self, function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]) -> _Outcome[_T]:
        """Return the function's result or exception; CancelledError if this scope is cancelled."""
        if not self._is_cancelled:
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    return await _outcome(function, arguments)
                finally:
                    self._scopes.discard(scope)
        return None, CancelledError()


_thread_local = local()
"""The ThreadScope of each thread."""


def call_blocking(function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Run an asynchronous function from synchronous code and wait for it: ``call_blocking(model.chat, request)``.

    All calls of a program without an event loop run in the same one, so that connections can be reused.

    Args:
        function: The function.
        arguments: Its positional arguments.

    Returns:
        The function's result.

    Raises:
        RuntimeError: Called in the portal's own thread, which would deadlock.
        BaseException: Raised by the function.
    """
    return _value_of(*_run_anywhere(function, arguments))


def run_in_portal(function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Run an asynchronous function like `call_blocking`, but in the portal's thread, regardless of the calling thread.

    For objects that outlive a call and therefore need a fixed event loop, such as connections.
    """
    return _value_of(*_run_in_portal(function, arguments))


def entered_in_portal(manager: AbstractAsyncContextManager[_T]) -> AbstractContextManager[_T]:
    """Return a context manager that enters and leaves an asynchronous one in one task of the portal's thread."""
    return _holder.portal().wrap_async_context_manager(manager)


def is_here() -> bool:
    """Return True in the portal's thread."""
    return get_ident() == _holder.thread_id


async def await_in_portal(function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Run an asynchronous function in the portal's thread from any event loop, without blocking that.

    The function is cancelled with this call.
    """
    if is_here():
        return await function(*arguments)
    portal, scope = _holder.portal(), ThreadScope()
    future: Future[_Outcome[_T]] = portal.start_task_soon(scope.outcome, function, arguments)
    try:
        value, error = await anyio.to_thread.run_sync(
            future.result, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf)
        )
    except get_cancelled_exc_class():
        portal.start_task_soon(scope.cancel)
        raise
    return _value_of(value, error)


def _value_of(value: _T | None, error: BaseException | None) -> _T:
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # None only if there is an error, or if T allows it


def _run_anywhere(function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]) -> _Outcome[_T]:
    scope: ThreadScope | None = getattr(_thread_local, "scope", None)
    token = loop_of_thread()
    if token is None:
        try:
            anyio.from_thread.check_cancelled()
        except RuntimeError:  # not a worker thread of an event loop
            return _run_in_portal(function, arguments)
    return anyio.from_thread.run(_outcome if scope is None else scope.outcome, function, arguments, token=token)


def loop_of_thread() -> EventLoopToken | None:
    """Return the event loop that this thread of a user's executor works for; None in all other threads."""
    scope: ThreadScope | None = getattr(_thread_local, "scope", None)
    return None if scope is None else scope.token


def run_in_loop(function: Callable[..., Coroutine[Any, Any, _T]], *arguments: Any) -> _T:
    """Run an async function in the event loop that this worker thread works for, and return its result."""
    return anyio.from_thread.run(function, *arguments, token=loop_of_thread())


def _run_in_portal(function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]) -> _Outcome[_T]:
    portal, scope = _holder.portal(), ThreadScope()
    try:
        future: Future[_Outcome[_T]] = portal.start_task_soon(scope.outcome, function, arguments)
        return future.result()
    except RuntimeError as error:
        raise RuntimeError(
            f"{function!r} was called synchronously in the event loop that would run it; "
            "use its asynchronous form there"
        ) from error
    except BaseException:  # the calling thread was interrupted, for example by Ctrl+C
        portal.start_task_soon(scope.cancel)
        raise


async def _outcome(function: Callable[..., Awaitable[_T]], arguments: tuple[Any, ...]) -> _Outcome[_T]:
    """Return the function's result or exception; exceptions other than Exception would stop the portal."""
    try:
        return await function(*arguments), None
    except get_cancelled_exc_class():
        raise
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
        return None, error


def _forget() -> None:
    """Discard the portal after a fork, since its thread does not exist in the child.

    The old portal is kept referenced: its finalizer would wait for the thread.
    """
    global _holder  # noqa: PLW0603 - one portal per process
    _portals_before_fork.append(_holder)
    _holder = _Holder()


_holder = _Holder()
_portals_before_fork: list[_Holder] = []


@atexit.register
def _close() -> None:
    _holder.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def call_soon(token: EventLoopToken, function: Callable[[], object]) -> None:
    """Call a function in an event loop, with a copy of the current context variables.

    It can be called from any thread, and does not wait.

    Raises:
        RuntimeError: The event loop is closed.
    """
    loop: Any = token.native_token
    if hasattr(loop, "call_soon_threadsafe"):
        loop.call_soon_threadsafe(function)
    else:
        loop.run_sync_soon(copy_context().run, function)


def runs_on_asyncio() -> bool:
    """True in an event loop of asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def call_soon_here() -> Callable[[Callable[[], None]], object]:
    """Return a function that schedules a call on this event loop, from any thread and without waiting."""
    if runs_on_asyncio():  # where callbacks, which are no tasks, may listen as well
        return asyncio.get_running_loop().call_soon_threadsafe
    call_soon: Callable[[Callable[[], None]], object] = current_token().native_token.run_sync_soon  # type: ignore[attr-defined]  # trio's
    return call_soon


def callback_context() -> Context:
    """Return a copy of the current context in which callbacks of an asyncio loop can use anyio as tasks do.

    If sniffio is installed, anyio finds the loop by it, which outside of tasks needs a variable that `anyio.run` sets
    and `asyncio.run` does not.
    """
    context = copy_context()
    if (sniffio := sys.modules.get("sniffio")) is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


def start_detached(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Run a coroutine function in its own task, with a name for debugging, in the running event loop.

    The task has a copy of the current context variables. It is not awaited, and not cancelled before the event loop
    ends. It must handle its own exceptions.
    """
    if not runs_on_asyncio():
        import trio  # noqa: PLC0415 - installed if it is running

        trio.lowlevel.spawn_system_task(function, name=name, context=copy_context())
        return
    task = asyncio.get_running_loop().create_task(function(), name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
