"""Eager tasks: the first step of a coroutine runs at once, in a task that was made before.

    first step in the spare task ─┬─> the coroutine has ended: the task is spare again
                                  ╰─> it waits: the task continues it, and another becomes spare

Most calls end without waiting. For them, a task of their own takes longer than the call, since it starts in the next
turn of the event loop.

From Python 3.12 on, ``asyncio.Task(…, eager_start=True)`` runs a first step at once, too. It does not replace `step`:
there, the first step belongs to a function, its value is used in the same turn without a task, and the rest of the
function is continued by the task of another coroutine, which writes the result. An eager task has one coroutine.
"""

from __future__ import annotations

import asyncio
from asyncio import _enter_task, _leave_task  # documented in "Extending asyncio", "Task lifetime support"
from contextvars import copy_context
from types import coroutine as generator_coroutine
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator


class EagerTasks:
    """Runs coroutines of one event loop: at once in a callback of the loop, and from the next turn on in a task.

    Coroutines that end without waiting share a task. It is replaced once one of them has changed a context variable
    or cancelled it, and before the coroutine of another caller.

    Args:
        loop: The event loop.
        can_stop: True if `EagerTask.stop` is called: each coroutine then has a scope, which takes time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, can_stop: bool = True) -> None:
        self._loop = loop
        self._can_stop = can_stop
        self._spare: EagerTask | None = None

    def is_ready(self, caller: str | None = None) -> bool:
        """True if a first step can be run for a caller; False in a task, and until a new spare task has had its turn.

        Args:
            caller: Name of the authenticated caller; None without authentication.
        """
        if asyncio.current_task(self._loop) is not None:
            return False
        spare = self._spare
        if spare is None:
            spare = self._spare = EagerTask(self._loop, can_stop=self._can_stop)
        elif spare.is_ready and not spare.is_used and spare.caller != caller:
            if spare.caller is None:
                spare.caller = caller
            else:  # it may have left something for `asyncio.current_task()`
                spare.cancel()
                self._spare = None
                return False
        return spare.is_ready

    def step(self, work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        """Run the first step of a coroutine, if `is_ready`; return the rest, for the coroutine of the next `run`.

        Raises:
            StopIteration: The coroutine has ended; its value is that of the exception.
            BaseException: As raised by the coroutine.
        """
        spare = self._spare
        assert spare is not None, "is_ready() was not called"
        _enter_task(self._loop, spare.task)
        spare.is_used = True
        try:
            awaited = spare.context.run(work.send, None)
        except BaseException:
            spare.is_used = False
            if spare.was_cancelled or spare.has_changed_context():
                spare.cancel()
                self._spare = None
            raise
        finally:
            _leave_task(self._loop, spare.task)
        return _continued(work, awaited)

    def run(self, work: Coroutine[Any, Any, None], caller: str | None = None) -> EagerTask | None:
        """Run a coroutine, and its first step at once if possible; return its task, or None if it has ended.

        Args:
            work: The coroutine; it awaits the rest of the last `step`, if there is one.
            caller: Name of the authenticated caller; None without authentication.
        """
        rest: Awaitable[None] = work
        if not self.is_ready(caller):
            task = EagerTask(self._loop, can_stop=self._can_stop)
        else:
            task = self._spare  # type: ignore[assignment]  # it is ready
            if not task.is_used:
                try:
                    rest = self.step(work)
                except StopIteration:
                    return None
            self._spare = None
        task.set_result(rest)
        return task

    def close(self) -> None:
        """End the task that waits for a coroutine; those of coroutines continue."""
        if self._spare is not None:
            self._spare.cancel()
            self._spare = None


class EagerTask(asyncio.Future["Awaitable[None]"]):
    """A task that waits for this future: the rest of a coroutine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, can_stop: bool) -> None:
        super().__init__(loop=loop)
        self.context = copy_context()
        """Context of the task."""
        self.given_values = dict(self.context)
        """The same before any coroutine has run."""
        self.is_ready = False
        """True while the task waits."""
        self.is_used = False
        """True from the first step of a coroutine until it has ended."""
        self.caller: str | None = None
        """Caller whose coroutines have run in the task."""
        self.was_cancelled = False
        """True if a coroutine has cancelled its task in its first step."""
        self._scope: anyio.CancelScope | None = None
        self._is_stopped = False
        work = self._continue_in_scope() if can_stop else self._continue()
        self.task = loop.create_task(work, context=self.context)

    def has_changed_context(self) -> bool:
        """True if a coroutine has set a context variable; by identity, since values may be equal, or not comparable."""
        context, given = self.context, self.given_values
        if len(context) != len(given):
            return True
        for variable in context:  # noqa: SIM110 - in the path of every call, where a generator takes longer
            if given.get(variable, context) is not context[variable]:
                return True
        return False

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the waiting task. During a first step, it is the coroutine that is cancelled, once it waits."""
        if self.is_used:
            self.was_cancelled = True
            return False
        self.is_ready = False
        return super().cancel(msg)

    def stop(self) -> None:
        """Cancel the coroutine by the scope around it, which spares what the coroutine shields."""
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()

    async def _continue_in_scope(self) -> None:
        with anyio.CancelScope() as self._scope:
            if self._is_stopped:
                self._scope.cancel()
            await self._continue()

    async def _continue(self) -> None:
        self.is_ready = True
        try:
            rest = await self
        except asyncio.CancelledError:
            if not self.done() or self.cancelled():
                raise
            rest = self.result()
            # Cancelled before this step: cancelled again, so that it reaches what the coroutine awaits.
            self.task.uncancel()
            self.task.cancel()
        await rest


@generator_coroutine
def _continued(work: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Continue a coroutine whose last step awaits something."""
    try:
        yield awaited
    except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
        try:
            awaited = work.throw(error)
        except StopIteration as end:
            return end.value
        return (yield from _continued(work, awaited))
    return (yield from work)
