from __future__ import annotations

import asyncio

import anyio
import pytest

from bridge.protocol.messages import ProtocolError
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
                told.append(running.reason_of_end())
        await asyncio.sleep(0)
        return "an error"

    task = asyncio.create_task(call())
    await started.wait()
    assert len(running) == 1
    assert (running.end(), running.end()) == (1, 0)
    assert await task == "an error"
    assert told == ["the server ended while {name!r} ran, and cancelled it: its outcome is unknown"]
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
                told.append(running.reason_of_end())

    task = asyncio.create_task(call())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == [None]


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_on_trio_a_call_is_cancelled_and_answered_by_an_error() -> None:
    running, started, errors = RunningCalls(), anyio.Event(), list[str]()

    async def call() -> None:
        try:
            with running.entered("ada"):
                started.set()
                await anyio.sleep_forever()
        except ProtocolError as error:
            errors.append(error.message)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await started.wait()
            assert (len(running), running.count_of("ada")) == (1, 1)
            assert running.end() == 1
    assert errors == ["the server ended while the call ran, and cancelled it: its outcome is unknown"]
    assert len(running) == 0
