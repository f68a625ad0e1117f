"""Large results in the loop of a service: the model reads a part, the program has the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import ExecutionPolicy, NameClashError, ToolSearch, ai_service, tool
from bridge.service.messages import ToolExecutionResultMessage
from bridge.tools import Spill, ToolProviderRequest
from tests.service.fakes import DEADLINE_SECONDS, Assistant, FakeModel, ask, call, calls

if TYPE_CHECKING:
    from bridge import AiMessage, ChatRequest

pytestmark = pytest.mark.anyio
WAYS = pytest.mark.parametrize("way", ["whole", "stream"])


def lines(count: int) -> str:
    return "\n".join(f"line {number}" for number in range(count))


@tool
async def log(count: int) -> str:
    """Return text."""
    return lines(count)


@tool(spill_chars=100)
async def small(count: int) -> str:
    """Have a limit of its own."""
    return lines(count)


def last_result(request: ChatRequest) -> str:
    message = request.messages[-1]
    assert isinstance(message, ToolExecutionResultMessage)
    return message.text


async def read_line_700(request: ChatRequest) -> AiMessage:
    """Read the rest, as a model does that has found the URI in the result."""
    uri = last_result(request).partition("kept-result:///")[2].partition(" ")[0].partition(";")[0]
    return calls(call("read_result", uri=f"kept-result:///{uri}", first_line=701, lines=1))


@WAYS
@pytest.mark.parametrize("spill", [Spill(chars=1000), None], ids=["of the service", "of the tool"])
async def test_a_model_reads_a_part_and_asks_for_another(way: str, spill: Spill | None) -> None:
    name = "log" if spill is not None else "small"
    model = FakeModel(calls(call(name, count=1000)), read_line_700, "done")
    service = ai_service(Assistant, chat_model=model, tools=[log, small], policy=ExecutionPolicy(spill=spill))
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await ask(service, way)
    shown = last_result(model.requests[1])
    assert shown.startswith("line 0\n")
    assert "line 700\n" not in shown
    assert len(shown) < 1500
    assert last_result(model.requests[2]).endswith("line 700\n")
    assert result.tool_executions[0].result.text == lines(1000)
    assert [each.name for each in model.requests[0].tool_specifications] == ["log", "small", "read_result"]


async def test_without_a_limit_there_is_no_further_tool() -> None:
    model = FakeModel(calls(call("log", count=1000)), "done")
    await ask(ai_service(Assistant, chat_model=model, tools=[log]), "whole")
    assert [each.name for each in model.requests[0].tool_specifications] == ["log"]
    assert last_result(model.requests[1]) == lines(1000)


async def test_tools_of_providers_have_limits() -> None:
    def provide(_: ToolProviderRequest) -> object:
        return small

    model = FakeModel(calls(call("small", count=1000)), read_line_700, "done")
    await ask(ai_service(Assistant, chat_model=model, tool_providers=[provide]), "whole")
    assert last_result(model.requests[2]).endswith("line 700\n")


async def test_a_model_that_searches_for_tools_sees_the_one_that_reads() -> None:
    model = FakeModel("done")
    await ask(ai_service(Assistant, chat_model=model, tools=[small], tool_search=ToolSearch()), "whole")
    assert "read_result" in [each.name for each in model.requests[0].tool_specifications]


async def test_measuring_changes_nothing() -> None:
    spill = Spill(chars=100, mode="measure")
    model = FakeModel(calls(call("log", count=1000)), "done")
    await ask(ai_service(Assistant, chat_model=model, tools=[log], policy=ExecutionPolicy(spill=spill)), "whole")
    assert last_result(model.requests[1]) == lines(1000)
    assert [each.name for each in model.requests[0].tool_specifications] == ["log"]
    assert spill.usage.by_tool()["log"]["kept"] == 1


async def test_a_tool_of_the_same_name_is_refused() -> None:
    @tool
    async def read_result() -> str:
        return ""

    with pytest.raises(NameClashError):
        ai_service(Assistant, chat_model=FakeModel(), tools=[small, read_result])
