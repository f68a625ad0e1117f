from __future__ import annotations

import math
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.client.connection.running_call import Call, Deadlines
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]
SOON_SECONDS = 0.02
LATER_SECONDS = 0.1
NEVER_SECONDS = math.inf


@pytest.fixture
async def deadlines() -> AsyncIterator[Deadlines]:
    deadlines = Deadlines()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deadlines.watch)
        await anyio.wait_all_tasks_blocked()
        yield deadlines
        tasks.cancel_scope.cancel()


def call(deadlines: Deadlines, idle_seconds: float, max_seconds: float = NEVER_SECONDS) -> Call:
    return Call(deadlines, InvocationContext(), idle_seconds, max_seconds)


async def under_way(this: Call) -> None:
    with this:
        await anyio.sleep_forever()


async def test_a_call_that_is_due_before_the_others_ends_before_them(deadlines: Deadlines) -> None:
    patient = call(deadlines, NEVER_SECONDS)
    with patient:
        await anyio.wait_all_tasks_blocked()
        await under_way(call(deadlines, SOON_SECONDS))
        assert not patient.scope.cancel_called


async def test_a_sign_of_life_puts_the_end_off(deadlines: Deadlines) -> None:
    lively, silent = call(deadlines, SOON_SECONDS), call(deadlines, LATER_SECONDS)
    with lively:
        lively.idle_seconds = NEVER_SECONDS
        lively.touch()
        await under_way(silent)
        assert not lively.scope.cancel_called
    assert silent.is_idle_too_long


async def test_no_sign_of_life_puts_the_end_off_beyond_the_cap(deadlines: Deadlines) -> None:
    lively = call(deadlines, NEVER_SECONDS, SOON_SECONDS)
    with lively:
        lively.touch()
        await anyio.sleep_forever()
    assert not lively.is_idle_too_long


async def test_while_somebody_thinks_the_time_stands_still_and_afterwards_it_begins_anew(deadlines: Deadlines) -> None:
    asking = call(deadlines, SOON_SECONDS)
    with asking:
        with asking.asking():
            await under_way(call(deadlines, LATER_SECONDS))
            assert not asking.scope.cancel_called
        await anyio.sleep_forever()
    assert asking.is_idle_too_long


async def test_a_call_has_a_timer_of_its_own_where_nobody_watches() -> None:
    await under_way(call(Deadlines(), SOON_SECONDS))


async def test_the_watch_takes_calls_over_and_hands_them_back() -> None:
    deadlines = Deadlines()
    early = call(deadlines, 1000.0)
    with early:
        own_timers = [early.scope.deadline]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deadlines.watch)
            await anyio.wait_all_tasks_blocked()
            own_timers.append(early.scope.deadline)
            tasks.cancel_scope.cancel()
        own_timers.append(early.scope.deadline)
    assert own_timers == [early.deadline, math.inf, early.deadline]
