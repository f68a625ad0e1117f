"""A call of this package that is cancelled cancels the tool of the framework that it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from agents import function_tool
from langchain_core.tools import StructuredTool
from pydantic_ai import Tool as PydanticAiTool

from bridge import Tool, ToolBox
from bridge.adapters import from_langchain, from_openai_agents, from_pydantic_ai
from tests.adapters.tools import Waiting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


async def of_langchain(wait: Callable[[], Awaitable[str]]) -> list[Tool]:
    return from_langchain(StructuredTool.from_function(coroutine=wait, name="wait", description="Wait."))


async def of_pydantic_ai(wait: Callable[[], Awaitable[str]]) -> list[Tool]:
    return await from_pydantic_ai(PydanticAiTool(wait, takes_ctx=False, name="wait"))


async def of_openai_agents(wait: Callable[[], Awaitable[str]]) -> list[Tool]:
    return from_openai_agents(function_tool(wait, name_override="wait", failure_error_function=None))


@pytest.mark.parametrize("theirs", [of_langchain, of_pydantic_ai, of_openai_agents])
async def test_a_cancelled_call_cancels_their_tool(
    theirs: Callable[[Callable[[], Awaitable[str]]], Awaitable[list[Tool]]],
) -> None:
    waiting = Waiting()

    async def wait() -> str:
        """Wait."""
        return str(await ToolBox(waiting).call("wait"))

    box = ToolBox(await theirs(wait))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.call, "wait")
        await waiting.started.wait()
        tasks.cancel_scope.cancel()
    await waiting.cancelled.wait()
