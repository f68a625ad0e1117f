"""A coroutine runs at once, in a task that is its own as soon as it waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.server.eager_tasks import EagerTask, EagerTasks

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio
DEADLINE_SECONDS = 60
mark: ContextVar[str] = ContextVar("mark", default="none")


async def in_callback(function: Callable[[], Any]) -> Any:
    """Call a function as a protocol is called: in a callback of the loop, outside of any task."""
    loop = asyncio.get_running_loop()
    called: asyncio.Future[Any] = loop.create_future()
    loop.call_soon(lambda: called.set_result(function()))
    return await called


async def ready() -> EagerTasks:
    tasks = EagerTasks(asyncio.get_running_loop())
    assert await in_callback(tasks.is_ready) is False
    assert await in_callback(tasks.is_ready) is True
    return tasks


def started(task: EagerTask | None) -> asyncio.Task[None]:
    assert task is not None
    return task.task


@pytest.fixture
def notes() -> list[Any]:
    return []


async def test_a_coroutine_that_ends_without_waiting_needs_no_task_of_its_own(notes: list[Any]) -> None:
    tasks = await ready()

    async def work() -> None:
        notes.append(asyncio.current_task())

    assert await in_callback(lambda: (tasks.run(work()), len(notes))) == (None, 1), "it ran at once"
    assert await in_callback(lambda: tasks.run(work())) is None
    assert notes[0] is notes[1] is not None
    assert notes[0] in asyncio.all_tasks()


async def test_authenticated_callers_share_no_task(notes: list[Any]) -> None:
    tasks = await ready()

    async def work() -> None:
        notes.append(asyncio.current_task())

    for caller in ("one", "one", "two", "two", "two"):
        task = await in_callback(partial(tasks.run, work(), caller))
        await in_callback(partial(tasks.is_ready, caller))
        if task is not None:
            await task.task
    assert notes[0] is notes[1]
    assert not {id(each) for each in notes[:2]} & {id(each) for each in notes[2:]}
    assert notes[3] is notes[4]


async def test_a_coroutine_that_waits_continues_in_its_task_and_others_get_another(notes: list[Any]) -> None:
    tasks, going = await ready(), asyncio.Event()

    async def work() -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            notes.append(asyncio.current_task())
            mark.set("mine")
            await asyncio.sleep(0)
            await going.wait()
        notes.append((asyncio.current_task(), mark.get()))

    first, second, notes_at_once = await in_callback(
        lambda: (started(tasks.run(work())), started(tasks.run(work())), list(notes))
    )
    assert notes_at_once == [first], "the second starts in the next turn of the loop"
    third = await in_callback(lambda: tasks.is_ready() and started(tasks.run(work())))
    going.set()
    await asyncio.wait_for(asyncio.gather(first, second, third), DEADLINE_SECONDS)
    assert {each for each, _ in notes[3:]} == {first, second, third}
    assert {text for _, text in notes[3:]} == {"mine"}
    assert mark.get() == "none"


async def test_what_a_coroutine_sets_or_cancels_reaches_no_other(notes: list[Any]) -> None:
    tasks = await ready()

    async def change() -> None:
        notes.append(mark.get())
        mark.set("changed")

    async def cancel() -> None:
        notes.append(mark.get())
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    for work in (change, cancel, change):
        while not await in_callback(tasks.is_ready):
            pass
        assert await in_callback(partial(tasks.run, work())) is None
    assert notes == ["none"] * 3


@pytest.mark.parametrize("moment", ["in its first step", "before its second step", "later"])
async def test_a_cancellation_reaches_what_the_coroutine_awaits(moment: str, notes: list[Any]) -> None:
    tasks, inner = await ready(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        if moment == "in its first step":
            task.cancel()
        with suppress(asyncio.CancelledError):
            await inner
        notes.append((inner.cancelled(), task.cancelling()))
        task.uncancel()
        await asyncio.sleep(0)
        notes.append("goes on")

    def run() -> asyncio.Task[None]:
        task = started(tasks.run(work()))
        if moment == "before its second step":
            task.cancel()
        return task

    task = await in_callback(run)
    if moment == "later":
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait_for(task, DEADLINE_SECONDS)
    assert notes == [(True, 1), "goes on"]


async def test_a_step_is_continued_by_the_next_coroutine_in_the_same_task(notes: list[Any]) -> None:
    tasks = await ready()

    async def first() -> str:
        notes.append(asyncio.current_task())
        await asyncio.sleep(0)
        return "value"

    async def second(rest: Any) -> None:
        notes.append((await rest, asyncio.current_task()))

    task = await in_callback(lambda: started(tasks.run(second(tasks.step(first())))))
    await asyncio.wait_for(task, DEADLINE_SECONDS)
    assert notes == [task, ("value", task)]


async def test_an_error_of_the_first_step_is_raised_and_the_task_is_used_again() -> None:
    tasks = await ready()

    async def fail() -> None:
        raise ValueError("broken")

    def run() -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                tasks.run(fail())

    await in_callback(run)


async def test_a_cancelled_spare_task_is_replaced(notes: list[Any]) -> None:
    """Cancel all tasks, as at the end of a loop."""
    tasks = await ready()

    async def work() -> None:
        notes.append(asyncio.current_task())

    await in_callback(lambda: tasks.run(work()))
    notes[0].cancel()
    task = await in_callback(lambda: started(tasks.run(work())))
    await asyncio.wait_for(task, DEADLINE_SECONDS)
    assert notes[1] is task
    assert notes[0].cancelled()
