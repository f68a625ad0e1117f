"""Cancellation that exists on asyncio only: awaiting a task that another one cancels."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.function import tool
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


async def test_what_a_tool_waits_for_being_cancelled_is_the_tools_failure() -> None:
    @tool
    async def wait() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    result = await execute(ToolBox(wait), ToolExecutionRequest("wait"), InvocationContext())
    assert result == ToolExecutionResult.error("an operation that the tool awaited was cancelled")


async def test_the_cancellation_of_a_task_is_not_swallowed() -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(execute(ToolBox(wait), ToolExecutionRequest("wait"), InvocationContext()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
def handled_signal() -> Iterator[None]:
    """SIGINT is handled, as it is in a server."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handled_signal")
async def test_a_tool_that_raises_what_a_signal_raises_only_fails_where_signals_are_handled() -> None:
    @tool
    async def interrupt() -> None:
        raise KeyboardInterrupt

    result = await execute(ToolBox(interrupt), ToolExecutionRequest("interrupt"), InvocationContext())
    assert result == ToolExecutionResult.error("the tool tried to end the process")


async def test_what_a_signal_raised_is_raised_where_no_signal_is_handled() -> None:
    @tool
    async def interrupt() -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            await execute(ToolBox(interrupt), ToolExecutionRequest("interrupt"), InvocationContext())
    finally:
        signal.signal(signal.SIGINT, before)
