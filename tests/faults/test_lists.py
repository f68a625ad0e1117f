"""Faults of a server's list of tools, which changes continuously, or during a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from tests.faults.trial import CROOKED, ROUTES, Route

if TYPE_CHECKING:
    from bridge import McpToolProvider
    from tests.faults.trial import Trials

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

CHANGES = 1000


async def offered(provider: McpToolProvider, name: str) -> None:
    """Wait until a tool is listed."""
    came = anyio.Event()
    stop = provider.on_change(lambda change: came.set() if name in provider.tools else None)
    if name not in provider.tools:
        await came.wait()
    stop()


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_a_thousand_changes_of_the_list(route: Route, trials: Trials) -> None:
    async with trials.trying("a thousand changes of the list", route) as stage:
        await stage.ask("change_the_list", times=CHANGES // 2)
        await offered(stage.provider, "extra")


async def test_a_thousand_announcements_at_once_are_not_answered_by_a_thousand_lists(trials: Trials) -> None:
    fault = "a thousand announcements of a change at once"
    async with trials.trying(fault, Route.STDIO_HANDSHAKE, child=CROOKED) as stage:
        await stage.provider.call("announce", {"times": CHANGES})
        await stage.traffic.more(40)
        await stage.provider.refresh()
        lists = int((await stage.provider.call("count_lists", {})).text)
    assert 2 <= lists < CHANGES // 2


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_a_server_that_renames_its_tools(route: Route, trials: Trials) -> None:
    async with trials.trying("tools renamed, and named back", route) as stage:
        for name in ("work_renamed", "work"):
            await stage.ask("rename_the_work")
            await offered(stage.provider, name)
            stage.traffic.tool = name
            await stage.traffic.more()
