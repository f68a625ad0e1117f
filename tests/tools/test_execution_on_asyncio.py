"""What only asyncio has: awaiting something that somebody else cancels."""

from __future__ import annotations

import asyncio

import pytest

from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.function import tool
from bridge.tools.model import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.toolbox import ToolBox

pytestmark = pytest.mark.anyio


async def test_what_a_tool_waits_for_being_cancelled_is_the_tools_failure() -> None:
    @tool
    async def wait() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    result = await execute(ToolBox(wait), ToolExecutionRequest("wait"), InvocationContext())
    assert result == ToolExecutionResult.error("what the tool was waiting for was cancelled")


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
