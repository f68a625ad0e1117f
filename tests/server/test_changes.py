from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from bridge.server.changes import Change, Changes
from bridge.server.features import Features
from bridge.tools.toolbox import ToolBox
from tests.server.tools import ADD, GREET, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.context import InvocationContext

DEADLINE_SECONDS = 60


async def nothing(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
    return None


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.anyio
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_change_in_any_thread_is_told_on_the_loop_of_the_listener(in_thread: bool) -> None:
    tools, told, told_in = ToolBox(), anyio.Event(), 0

    def listener(_: frozenset[Change]) -> None:
        nonlocal told_in
        told_in = threading.get_ident()
        told.set()

    Changes(Features(tools=tools)).listen(listener)
    if in_thread:
        await anyio.to_thread.run_sync(tools.add, ADD)
    else:
        tools.add(ADD)
    with anyio.fail_after(DEADLINE_SECONDS):
        await told.wait()
    assert told_in == threading.get_ident()


@pytest.mark.anyio
async def test_changes_in_a_row_are_told_once() -> None:
    tools, told = ToolBox(), 0

    def listener(_: frozenset[Change]) -> None:
        nonlocal told
        told += 1

    changes = Changes(Features(tools=tools))
    changes.listen(listener)
    for number in range(50):
        tools.add(made(f"t{number}", nothing))
    # Callbacks that are scheduled after the notification run after it.
    after = anyio.Event()
    changes.listen(lambda _: after.set())
    changes.notify()
    with anyio.fail_after(DEADLINE_SECONDS):
        await after.wait()
    assert told == 1


@pytest.mark.anyio
async def test_a_change_while_a_change_is_told_is_told_too() -> None:
    tools, twice = ToolBox(), anyio.Event()

    def listener(_: frozenset[Change]) -> None:
        if GREET.name in tools:
            twice.set()
        else:
            tools.add(GREET)

    Changes(Features(tools=tools)).listen(listener)
    tools.add(ADD)
    with anyio.fail_after(DEADLINE_SECONDS):
        await twice.wait()


@pytest.mark.anyio
async def test_who_ended_listening_hears_no_more() -> None:
    tools = ToolBox()
    changes = Changes(Features(tools=tools))
    heard: list[str] = []
    end = changes.listen(lambda _: heard.append("ended"))
    end()
    end()
    after = anyio.Event()
    changes.listen(lambda _: after.set())
    tools.add(ADD)
    with anyio.fail_after(DEADLINE_SECONDS):
        await after.wait()
    assert heard == []
    assert len(changes) == 1


def test_a_listener_whose_loop_has_ended_disturbs_nobody() -> None:
    tools = ToolBox()
    changes = Changes(Features(tools=tools))

    async def listen() -> None:
        changes.listen(lambda _: None)

    anyio.run(listen)
    tools.add(ADD)
    assert ADD.name in tools


async def _listened_in_a_callback() -> None:
    tools, told = ToolBox(), anyio.Event()
    changes = Changes(Features(tools=tools))
    asyncio.get_running_loop().call_soon(changes.listen, lambda _: told.set())
    await anyio.lowlevel.checkpoint()
    assert len(changes) == 1
    tools.add(ADD)
    with anyio.fail_after(DEADLINE_SECONDS):
        await told.wait()


def test_a_callback_of_asyncio_may_listen() -> None:
    anyio.run(_listened_in_a_callback, backend="asyncio")
