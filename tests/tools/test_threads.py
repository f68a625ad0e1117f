"""Worker threads under one limit."""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from bridge import portal
from bridge.errors import DefinitionError
from bridge.tools.threads import DEFAULT_THREADS, run_in_thread, set_thread_limit, thread_limiter

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PATIENCE_SECONDS = 60


@pytest.fixture(autouse=True)
def the_limit_is_set_back() -> Iterator[None]:
    yield
    set_thread_limit(DEFAULT_THREADS)


class Work:
    """A function that waits until it is released."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.go_on = threading.Event()

    def __call__(self) -> str:
        anyio.from_thread.run_sync(self.started.set)
        assert self.go_on.wait(PATIENCE_SECONDS)
        return "done"


async def all_places_are_free() -> None:
    while thread_limiter().borrowed_tokens:
        await anyio.lowlevel.checkpoint()


async def test_a_function_runs_in_another_thread_and_its_place_is_free_afterwards() -> None:
    assert await run_in_thread(threading.get_ident) != threading.get_ident()
    assert thread_limiter().borrowed_tokens == 0


async def test_the_place_of_a_function_that_fails_is_free_afterwards() -> None:
    def fail() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await run_in_thread(fail)
    assert thread_limiter().borrowed_tokens == 0


async def test_no_more_functions_run_at_once_than_the_limit_allows() -> None:
    set_thread_limit(2)
    works = [Work() for _ in range(3)]
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for work in works[:2]:
                tasks.start_soon(run_in_thread, work)
                await work.started.wait()
            tasks.start_soon(run_in_thread, works[2])
            await anyio.wait_all_tasks_blocked()
            assert not works[2].started.is_set()
            assert thread_limiter().statistics().tasks_waiting == 1
            works[0].go_on.set()
            await works[2].started.wait()
            works[1].go_on.set()
            works[2].go_on.set()
    assert thread_limiter().borrowed_tokens == 0


async def test_an_abandoned_function_keeps_its_place_from_others() -> None:
    set_thread_limit(1)
    abandoned, other = Work(), Work()
    other.go_on.set()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, abandoned)
            await abandoned.started.wait()
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, other)
            await anyio.wait_all_tasks_blocked()
            assert not other.started.is_set()
            abandoned.go_on.set()
            await other.started.wait()
        await all_places_are_free()


async def test_callers_take_turns_at_scarce_places_however_many_calls_each_waits_for() -> None:
    set_thread_limit(1)
    first = Work()
    order: list[str] = []
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, first)
            await first.started.wait()
            for caller in ("ada",) * 20 + ("bob", "bob", None):
                run = functools.partial(run_in_thread, functools.partial(order.append, caller or "nobody"))
                tasks.start_soon(functools.partial(run, caller=caller))
                await anyio.wait_all_tasks_blocked()
            first.go_on.set()
    assert order[:5] == ["ada", "bob", "nobody", "ada", "bob"]
    assert order[5:] == ["ada"] * 18


async def test_what_an_abandoned_function_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    held = Work()

    def fail_late(code: int) -> None:
        held()
        raise KeyError(code)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, functools.partial(fail_late, 7))
            await held.started.wait()
            tasks.cancel_scope.cancel()
        held.go_on.set()
        await all_places_are_free()
    (record,) = caplog.records
    line = fail_late.__code__.co_firstlineno
    assert record.levelname == "WARNING"
    assert record.getMessage() == f"function 'fail_late' (test_threads.py:{line}) raised after its caller had left"
    assert record.exc_info is not None
    assert repr(record.exc_info[1]) == "KeyError(7)"


async def test_what_an_awaited_function_raises_is_its_callers_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await run_in_thread(fail)
    assert caplog.records == []


async def test_who_leaves_while_waiting_for_a_place_takes_none() -> None:
    set_thread_limit(1)
    work, waiting = Work(), Work()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, work)
            await work.started.wait()
            async with anyio.create_task_group() as others:
                others.start_soon(run_in_thread, waiting)
                await anyio.wait_all_tasks_blocked()
                others.cancel_scope.cancel()
            work.go_on.set()
        assert thread_limiter().borrowed_tokens == 0
        assert not waiting.started.is_set()


async def test_who_has_left_before_takes_no_place() -> None:
    called = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_in_thread(lambda: called.append(1))
    assert scope.cancelled_caught
    assert called == []
    assert thread_limiter().borrowed_tokens == 0


async def test_a_raised_limit_counts_at_once() -> None:
    set_thread_limit(1)
    first, second = Work(), Work()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, first)
            await first.started.wait()
            tasks.start_soon(run_in_thread, second)
            await anyio.wait_all_tasks_blocked()
            assert not second.started.is_set()
            set_thread_limit(2)
            await second.started.wait()
            first.go_on.set()
            second.go_on.set()


async def test_the_default_is_forty() -> None:
    assert thread_limiter().total_tokens == DEFAULT_THREADS == 40


@pytest.mark.parametrize("threads", [0, -1])
async def test_a_limit_below_one_is_refused(threads: int) -> None:
    with pytest.raises(DefinitionError, match=f"at least 1, not {threads}"):
        set_thread_limit(threads)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_function_that_outlives_its_event_loop_ends_quietly(anyio_backend: str, is_closed: bool) -> None:
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        assert go_on.wait(PATIENCE_SECONDS)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(run_in_thread, work, late=lambda _: ended.set()))
            while not started.is_set():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    if is_closed or anyio_backend == "trio":
        anyio.run(main, backend=anyio_backend)
        go_on.set()
        assert ended.wait(PATIENCE_SECONDS)
    else:  # stopped, as in a program that calls run_until_complete
        with closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(main())
            go_on.set()
            assert ended.wait(PATIENCE_SECONDS)


async def test_what_a_function_runs_in_the_event_loop_ends_when_its_caller_leaves_and_the_next_is_free() -> None:
    running, ended = anyio.Event(), threading.Event()
    outcomes: list[str] = []

    async def forever() -> None:
        running.set()
        await anyio.sleep_forever()

    async def answer() -> int:
        return 42

    def work() -> None:
        for function in (forever, answer):
            try:
                portal.call_blocking(function)
                outcomes.append("returned")
            except BaseException as error:  # noqa: BLE001 - whatever the event loop says
                outcomes.append("cancelled" if "Cancel" in type(error).__name__ else repr(error))
        ended.set()

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, work)
            await running.wait()
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(ended.wait, PATIENCE_SECONDS)
        assert outcomes == ["cancelled", "cancelled"]
        for _ in range(3):
            assert await run_in_thread(lambda: portal.call_blocking(answer)) == 42
            assert await anyio.to_thread.run_sync(lambda: portal.call_blocking(answer)) == 42
