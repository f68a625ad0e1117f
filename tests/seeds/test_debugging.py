"""Debugging: calls of tools are logged, measured and inspected; tools for debugging."""

from __future__ import annotations

import logging
import re
from typing import Annotated, Any, Protocol

import pytest

from bridge import MemoryId, ToolBox, ToolError, ai_service, tool
from bridge.service.events import ToolLogger, ToolPerformance, ToolRequestInspector
from bridge.testing import ScriptedChatModel
from tests.seeds.services import assistant, call, told

pytestmark = pytest.mark.anyio


@tool
def add(a: float, b: float) -> float:
    return a + b


@tool
def divide(a: float, b: float) -> float:
    if b == 0:
        raise ToolError("b must not be zero")
    return a / b


async def test_executions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("the.programs.own")
    service, _ = assistant(call("add", a=1, b=2), "3", tools=[add], listeners=[ToolLogger(logger)])
    with caplog.at_level(logging.DEBUG, logger.name):
        await service.chat("1 + 2?")
    line, details = [record for record in caplog.records if record.name == logger.name]
    assert re.fullmatch(r"tool add succeeded in \d+\.\d ms, 3 characters", line.getMessage())
    assert (line.levelno, details.levelno) == (logging.INFO, logging.DEBUG)
    assert details.getMessage() == "tool add: arguments {'a': 1, 'b': 2}, result 3.0"


async def test_the_performance_of_tools_is_reported() -> None:
    monitor = ToolPerformance()
    wanted = [call("add", a=1, b=2), call("add", a=3, b=4), call("divide", a=1, b=0)]
    service, _ = assistant(wanted, "Done.", tools=[add, divide], listeners=[monitor])
    await service.chat("Calculate")
    counted = {name: (known.calls, known.failures) for name, known in monitor.statistics.items()}
    assert counted == {"add": (2, 0), "divide": (1, 1)}
    known = monitor.statistics["add"]
    assert known.min_seconds <= known.mean_seconds <= known.max_seconds
    assert [line.split()[:3] for line in monitor.report().splitlines()[1:]] == [["add", "2", "0"], ["divide", "1", "1"]]


class Conversation(Protocol):
    async def chat(self, user_id: Annotated[str, MemoryId], message: str) -> str: ...


async def test_requests_are_inspected_with_the_memory_id_and_the_type_of_each_argument() -> None:
    shown: list[str] = []
    model = ScriptedChatModel([call("add", a=1, b=2.5), "3.5"])
    inspector = ToolRequestInspector(shown.append)
    service = ai_service(Conversation, chat_model=model, tools=[add], listeners=[inspector])
    await service.chat("user123", "1 + 2.5?")
    assert shown == ["add (memory id 'user123')\n  a: 1 (int)\n  b: 2.5 (float)"]


class DebugTools:
    def __init__(self) -> None:
        self.box = ToolBox(add, divide, self)

    @tool("Debug: List available tools")
    def list_tools(self) -> str:
        return f"Available tools: {', '.join(each.name for each in self.box)}"

    @tool("Debug: Echo arguments")
    def echo(self, message: str) -> str:
        return f"You said: {message}"

    @tool("Debug: Test argument parsing")
    def test_parsing(self, text: str, num: int, flag: bool, items: list[str], mapping: dict[str, Any]) -> str:
        return f"Received: text={text}, num={num}, flag={flag}, items={items}, mapping={mapping}"


async def test_tools_for_debugging_stand_beside_the_others() -> None:
    parsing = call("test_parsing", text="a", num="5", flag="true", items='["x"]', mapping='{"k": 1}')
    service, model = assistant(call("list_tools"), call("echo", message="hi"), parsing, "Fine.", tools=DebugTools().box)
    await service.chat("Debug yourself")
    assert told(model) == [
        "Available tools: add, divide, list_tools, echo, test_parsing",
        "You said: hi",
        "Received: text=a, num=5, flag=True, items=['x'], mapping={'k': 1}",
    ]
