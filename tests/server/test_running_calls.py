from __future__ import annotations

import asyncio

import pytest

from bridge.server.running_calls import RunningCalls

pytestmark = pytest.mark.anyio


async def test_calls_that_are_ended_know_it_and_go_on_uncancelled() -> None:
    running, started, told = RunningCalls(), asyncio.Event(), []

    async def call() -> str:
        with running.entered():
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append(running.was_ended())
        await asyncio.sleep(0)
        return "an error"

    task = asyncio.create_task(call())
    await started.wait()
    assert len(running) == 1
    assert (running.end(), running.end()) == (1, 0)
    assert await task == "an error"
    assert told == [True]
    assert len(running) == 0


async def test_whoever_waits_until_nobody_is_asked_waits_for_the_last_answer() -> None:
    running, order = RunningCalls(), list[str]()

    async def wait() -> None:
        await running.answered()
        order.append("waited")

    await running.answered()
    with running.asking():
        waiting = asyncio.create_task(wait())
        with running.asking():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        order.append("answered")
    await waiting
    assert order == ["answered", "waited"]


async def test_a_call_that_somebody_else_cancels_was_not_ended() -> None:
    running, started, told = RunningCalls(), asyncio.Event(), []

    async def call() -> None:
        with running.entered():
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                told.append(running.was_ended())

    task = asyncio.create_task(call())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == [False]


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_on_another_event_loop_nothing_is_entered() -> None:
    running = RunningCalls()
    with running.entered():
        assert len(running) == 0
