from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextvars import ContextVar

import anyio
import pytest

from bridge import portal


async def double(number: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 2 * number


def test_plain_code_gets_what_an_asynchronous_function_returns() -> None:
    assert portal.call_blocking(double, 21) == 42


def test_there_is_one_portal_thread() -> None:
    async def thread() -> threading.Thread:
        return threading.current_thread()

    assert portal.call_blocking(thread) is portal.call_blocking(thread) is not threading.current_thread()


class Outcome(BaseException):
    """BaseException that is no Exception, like the one of a suspension."""


@pytest.mark.parametrize("error", [KeyError("x"), Outcome("x")])
def test_what_the_function_raises_is_raised_and_the_portal_goes_on(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        portal.call_blocking(fail)
    assert caught.value is error
    assert portal.call_blocking(double, 1) == 2


def test_the_callers_context_variables_are_seen() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("the caller's")

    async def read() -> str:
        return variable.get()

    assert portal.call_blocking(read) == "the caller's"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_in_a_worker_thread_the_event_loop_that_waits_for_it_is_used() -> None:
    seen: list[threading.Thread] = []

    async def note() -> None:
        seen.append(threading.current_thread())

    await anyio.to_thread.run_sync(portal.call_blocking, note)
    assert seen == [threading.current_thread()]


def test_the_portals_own_thread_is_told_that_it_would_wait_for_itself() -> None:
    async def nested() -> int:
        return portal.call_blocking(double, 1)

    with pytest.raises(RuntimeError, match="use its asynchronous form there"):
        portal.call_blocking(nested)


def test_a_process_ends_although_something_still_runs_in_the_portal() -> None:
    program = """
import anyio, threading
from bridge import portal
running = threading.Event()
async def forever():
    running.set()
    try:
        await anyio.sleep_forever()
    finally:
        print("stopped")
threading.Thread(target=lambda: portal.call_blocking(forever), daemon=True).start()
running.wait()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "stopped\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_a_portal_of_its_own() -> None:
    program = """
import os
from bridge import portal
async def pid():
    return os.getpid()
portal.call_blocking(pid)
child = os.fork()
assert portal.call_blocking(pid) == os.getpid()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


def test_an_interrupted_caller_cancels_what_it_waited_for() -> None:
    program = """
import anyio, os, signal, threading
from bridge import portal
cancelled = threading.Event()
async def forever():
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.set()
try:
    portal.call_blocking(forever)
except KeyboardInterrupt:
    assert cancelled.wait(30)
    print("interrupted")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "interrupted\n"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_detached_tasks_and_scheduled_functions_see_the_context_variables(anyio_backend: str) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    seen: list[str] = []
    ended, called = anyio.Event(), anyio.Event()
    token = anyio.lowlevel.current_token()

    async def note() -> None:
        seen.append(variable.get())
        variable.set("of the task")
        ended.set()

    def note_and_set() -> None:
        seen.append(variable.get())
        called.set()

    def schedule() -> None:
        variable.set("of the thread")
        portal.call_soon(token, note_and_set)

    variable.set(f"of {anyio_backend}")
    portal.start_detached(note, "note")
    await ended.wait()
    await anyio.to_thread.run_sync(schedule)
    await called.wait()
    assert [*seen, variable.get()] == [f"of {anyio_backend}", "of the thread", f"of {anyio_backend}"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_another_event_loop_awaits_the_portal_without_blocking() -> None:
    assert await portal.await_in_portal(double, 21) == 42
    assert not portal.is_here()

    async def nested() -> bool:
        return portal.is_here() and await portal.await_in_portal(double, 1) == 2

    assert await portal.await_in_portal(nested)

    async def fail() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await portal.await_in_portal(fail)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_what_another_event_loop_awaits_in_the_portal_is_cancelled_with_it() -> None:
    started, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(portal.await_in_portal, wait)
        assert await anyio.to_thread.run_sync(started.wait, 20)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(ended.wait, 20)
