"""Turns: a caller that waits for places of its own does not take those of others."""

from __future__ import annotations

import anyio
import pytest

from bridge.server.limits.shares import Turns
from tests.processes import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio


async def test_a_caller_waits_for_its_own_places_while_others_take_theirs() -> None:
    turns, taken = Turns(4, 2), list[str]()
    may_end = anyio.Event()

    async def take(caller: str) -> None:
        async with turns.taken(caller):
            taken.append(caller)
            await may_end.wait()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(take, "ada")
            await anyio.wait_all_tasks_blocked()
            assert taken == ["ada", "ada"]
            tasks.start_soon(take, "bob")
            tasks.start_soon(take, "eve")
            tasks.start_soon(take, "eve")
            await anyio.wait_all_tasks_blocked()
            assert sorted(taken) == ["ada", "ada", "bob", "eve"]
            may_end.set()
    assert sorted(taken) == ["ada"] * 10 + ["bob"] + ["eve"] * 2


async def test_nothing_is_kept_of_callers_without_places() -> None:
    turns = Turns(4, 2)
    for number in range(100):
        async with turns.taken(str(number)):
            assert len(turns._of) == 1
    assert len(turns._of) == 0
