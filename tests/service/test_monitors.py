"""Listeners that report the calls of tools."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from bridge import (
    ExecutionPolicy,
    InvocationContext,
    ToolBox,
    ToolError,
    ToolExecutionRequest,
    ai_service,
    execute,
    tool,
)
from bridge.models.scripted import ScriptedChatModel
from bridge.service.events import ToolLogger, ToolPerformance, ToolRequestInspector

if TYPE_CHECKING:
    from bridge.service.events import InvocationListener


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail() -> None:
    """Fail."""
    raise ToolError("no")


BOX = ToolBox(add, fail)
SECRET = {"a": 4711, "b": 2}


async def run(policy: ExecutionPolicy, *requests: ToolExecutionRequest) -> None:
    for request in requests:
        await execute(BOX, request, InvocationContext(memory_id="m-1"), policy)


@pytest.mark.anyio
async def test_performance_counts_and_times_each_tool() -> None:
    performance = ToolPerformance()
    policy = ExecutionPolicy(after=(performance.after_tool,))
    await run(policy, *[ToolExecutionRequest("add", SECRET)] * 3, ToolExecutionRequest("fail"))
    await run(policy, ToolExecutionRequest("invented"))
    counts = {name: (known.calls, known.failures) for name, known in performance.statistics.items()}
    assert counts == {"add": (3, 0), "fail": (1, 1)}
    known = performance.statistics["add"]
    assert 0 < known.min_seconds <= known.mean_seconds <= known.max_seconds <= known.total_seconds
    head, add_row, fail_row = performance.report().splitlines()
    assert head.split() == ["tool", "calls", "failures", "mean", "ms", "min", "ms", "max", "ms"]
    assert add_row.split()[:3] == ["add", "3", "0"]
    assert fail_row.split()[:3] == ["fail", "1", "1"]
    assert len({len(head), len(add_row), len(fail_row)}) == 1


@pytest.mark.anyio
async def test_the_logger_tells_outcome_and_size_and_keeps_values_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = ExecutionPolicy(after=(ToolLogger().after_tool,))
    with caplog.at_level(logging.INFO, "bridge.tools.executions"):
        await run(policy, ToolExecutionRequest("add", SECRET), ToolExecutionRequest("fail"))
    succeeded, failed = caplog.records
    assert re.fullmatch(r"tool add succeeded in \d+\.\d ms, 4 characters", succeeded.getMessage())
    assert (succeeded.levelno, failed.levelno) == (logging.INFO, logging.WARNING)
    assert failed.getMessage().startswith("tool fail failed")
    assert "4711" not in caplog.text
    with caplog.at_level(logging.DEBUG, "bridge.tools.executions"):
        await run(policy, ToolExecutionRequest("add", SECRET))
    assert "arguments {'a': 4711, 'b': 2}, result 4713" in caplog.text


@pytest.mark.anyio
async def test_the_inspector_shows_each_argument_with_its_type() -> None:
    shown: list[str] = []
    inspect = ToolRequestInspector(shown.append).before_tool
    await run(
        ExecutionPolicy(before=(inspect,)),
        ToolExecutionRequest("add", SECRET),
        ToolExecutionRequest("add", '{"a": 1, "b": "x"}'),
        ToolExecutionRequest("add", "{oh no"),
    )
    assert shown == [
        "add (memory id 'm-1')\n  a: 4711 (int)\n  b: 2 (int)",
        "add (memory id 'm-1')\n  a: 1 (int)\n  b: \"x\" (str)",
        "add (memory id 'm-1')\n  not a JSON object: {oh no",
    ]


class Assistant(Protocol):
    async def chat(self, message: str) -> str: ...


@pytest.mark.anyio
async def test_monitors_are_listeners_of_a_service() -> None:
    shown: list[str] = []
    performance = ToolPerformance()
    listeners: list[InvocationListener] = [performance, ToolRequestInspector(shown.append)]
    script: list[Any] = [ToolExecutionRequest("add", SECRET), "4713"]
    assistant = ai_service(Assistant, chat_model=ScriptedChatModel(script), tools=[add], listeners=listeners)
    assert await assistant.chat("add") == "4713"
    assert performance.statistics["add"].calls == 1
    assert len(shown) == 1
