"""Providers of MCP servers as tools of an AI service, in the portal's event loop and in others."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import anyio
import pytest

import bridge
from bridge import InvocationContext, McpToolProvider, TokenStream, ai_service, tool
from bridge.service import ToolProgress
from bridge.service.loop import InvocationLimits
from bridge.testing import ScriptedChatModel
from bridge.tools.tool import ToolExecutionRequest
from tests.client.test_provider import add, memory_config

DEADLINE_SECONDS = 60
WANTED = ToolExecutionRequest("add", {"a": 1, "b": 2}, "1")


class Assistant(Protocol):
    """Interface with a method for each way to answer."""

    def chat(self, message: str) -> str: ...

    async def ask(self, message: str) -> str: ...

    def stream(self, message: str) -> TokenStream: ...


@tool
def local() -> str:
    """Do nothing."""
    return "local"


def answers() -> ScriptedChatModel:
    """Model that calls add, and answers with the result."""
    return ScriptedChatModel(
        lambda request: WANTED if len(request.messages) == 1 else f"It is {request.messages[-1].text}."
    )


def test_a_blocking_provider_is_a_source_of_tools_that_follows_its_servers() -> None:
    model = answers()
    with bridge.connect(memory_config("one", add)) as servers:
        service = ai_service(Assistant, chat_model=model, tools=[servers, local])
        assert service.chat("1 + 2?") == "It is 3."
        assert [each.name for each in model.requests[-1].tool_specifications] == ["local", "add"]
        servers.set_filter(lambda *_: False)
        service = ai_service(Assistant, chat_model=model, tools=servers)
        assert service.chat("1 + 2?").startswith("It is there is no tool named 'add'")


@pytest.mark.anyio
async def test_a_provider_is_a_source_of_tools_beside_others() -> None:
    async with McpToolProvider(memory_config("one", add)) as provider:
        service = ai_service(Assistant, chat_model=answers(), tools=[local, provider])
        assert await service.ask("1 + 2?") == "It is 3."


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_in_another_event_loop_a_blocking_providers_tools_report_progress_and_keep_deadlines() -> None:
    seconds_left: list[float] = []

    @tool(name="add")
    async def slowly(a: int, b: int, context: InvocationContext) -> int:
        await context.progress(1, 2, "halfway")
        return a + b

    def note(_: str, context: InvocationContext) -> dict[str, str]:
        if context.deadline is not None:
            seconds_left.append(context.deadline - anyio.current_time())
        return {}

    servers = await anyio.to_thread.run_sync(partial(bridge.connect, memory_config("one", slowly), meta_supplier=note))
    service = ai_service(
        Assistant, chat_model=answers(), tools=servers, limits=InvocationLimits(timeout_seconds=DEADLINE_SECONDS)
    )
    with anyio.fail_after(DEADLINE_SECONDS):
        stream = service.stream("1 + 2?")
        progress = [event async for event in stream if isinstance(event, ToolProgress)]
        await anyio.to_thread.run_sync(servers.close)
    assert progress == [ToolProgress(WANTED, 1, 2, "halfway")]
    assert stream.result.content == "It is 3."
    assert [0 < seconds <= DEADLINE_SECONDS for seconds in seconds_left] == [True]
