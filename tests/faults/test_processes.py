"""Faults of the server's process."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.faults.trial import CROOKED, NETWORK, ROUTES, STDIO, Route, Stage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.trial import Trials

pytestmark = [pytest.mark.faults, pytest.mark.anyio]


async def held(stage: Stage, tasks: anyio.abc.TaskGroup) -> None:
    """Start a call that does not end by itself."""
    tasks.start_soon(lambda: stage.traffic.call("hold", port=stage.reports.port))
    await stage.reports.wait_for("holding")


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_a_server_that_is_killed_in_the_middle_of_calls(route: Route, trials: Trials) -> None:
    async with trials.trying("`kill -9` in the middle of calls", route) as stage, anyio.create_task_group() as tasks:
        await held(stage, tasks)
        await stage.kill()
        await stage.traffic.more()
        await stage.restart()
        await stage.traffic.more()


@pytest.mark.parametrize("route", STDIO, ids=str)
async def test_a_child_that_is_killed_and_leaves_children_of_its_own(route: Route, trials: Trials) -> None:
    fault = "`kill -9` of a child that has children of its own"
    async with trials.trying(fault, route) as stage, anyio.create_task_group() as tasks:
        await stage.ask("start_a_child")
        await held(stage, tasks)
        await stage.kill()
        await stage.traffic.more()


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_a_server_that_is_restarted_at_the_same_port(route: Route, trials: Trials) -> None:
    async with trials.trying("restarted at the same port", route) as stage:
        assert stage.remote is not None
        for _ in range(2):
            await stage.remote.end()
            await stage.restart()
            await stage.traffic.more()


@pytest.mark.parametrize("route", STDIO, ids=str)
async def test_a_child_that_is_stopped_and_never_answers(route: Route, trials: Trials) -> None:
    async with trials.trying("stopped, so that it never answers (`kill -STOP`)", route, timeout_seconds=3) as stage:
        os.kill(await stage.ask("pid"), signal.SIGSTOP)
        await stage.traffic.more()


@pytest.mark.parametrize("route", STDIO, ids=str)
async def test_a_child_that_reads_and_never_answers(route: Route, trials: Trials) -> None:
    fault = "a child that reads, and never answers"
    async with trials.trying(fault, route, child=CROOKED, timeout_seconds=3) as stage:
        await stage.provider.call("fall_silent", {})
        await stage.traffic.more()


@pytest.mark.parametrize("route", STDIO, ids=str)
async def test_a_child_whose_next_starts_fail_or_never_end(route: Route, trials: Trials, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    fault = "a child that dies as it starts, then never greets"
    options: dict[str, Any] = {"connect_timeout_seconds": 5, "timeout_seconds": 3}
    async with trials.trying(fault, route, child=(*CROOKED, str(starts)), **options) as stage:
        starts.write_text("die\ndie\ndeaf\n", encoding="utf-8")
        assert not await stage.traffic.call("die_within_a_frame")
        await stage.traffic.more()
    assert starts.read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("route", STDIO, ids=str)
async def test_a_child_that_dies_within_a_frame(route: Route, trials: Trials) -> None:
    async with trials.trying("stream cut after half a frame", route, child=CROOKED) as stage:
        for _ in range(3):
            assert not await stage.traffic.call("die_within_a_frame")
            await stage.traffic.more()


@pytest.mark.parametrize("route", STDIO, ids=str)
async def test_garbage_on_standard_output(route: Route, trials: Trials) -> None:
    async with trials.trying("garbage on stdout", route, child=CROOKED) as stage:
        await stage.provider.call("write_garbage", {"on": True})
        await stage.traffic.more(40)
        await stage.provider.call("write_garbage", {"on": False})


@pytest.mark.parametrize("route", STDIO, ids=str)
async def test_a_child_whose_answers_drip(route: Route, trials: Trials) -> None:
    async with trials.trying("slow drip, a byte at a time", route, child=CROOKED) as stage:
        await stage.provider.call("drip", {"on": True})
        await stage.traffic.more(40)
        await stage.provider.call("drip", {"on": False})
