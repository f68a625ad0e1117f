"""Traces through a gateway: real processes, which export their spans to a collector."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client
from mcp_types import ElicitResult

from tests.collector import collecting
from tests.gateway.conftest import write_config
from tests.processes import ROOT, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

    from tests.collector import CollectedSpan, Collector

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
TRACE_ID, CALLER_SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACE = {"traceparent": f"00-{TRACE_ID}-{CALLER_SPAN_ID}-01", "tracestate": "vendor=1"}
TOOLS = """
from bridge import InvocationContext, ToolError, tool

@tool
async def add(a: int, b: int) -> int:
    "Add."
    return a + b

@tool
async def add_and_tell(a: int, b: int, context: InvocationContext) -> int:
    "Add, and say so."
    await context.log("info", "adding")
    return a + b

@tool
async def add_if_so(a: int, b: int, context: InvocationContext) -> int:
    "Ask, and add."
    schema = {"type": "object", "properties": {"so": {"type": "boolean"}}}
    return a + b if (await context.elicit("Shall I?", schema, key="so")).accepted else 0

@tool
async def fail() -> int:
    "Fail."
    raise ToolError("it does")
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def config(tmp_path: Path, collector: Collector) -> str:
    tools = tmp_path / "upstream.py"
    tools.write_text(TOOLS, encoding="utf-8")
    entry = {
        "command": sys.executable,
        "args": ["-m", "bridge", "serve", str(tools)],
        "cwd": str(ROOT),
        "env": collector.environment,
    }
    return write_config(tmp_path / "mcp.json", sums=entry)


async def traced_calls(config: str, collector: Collector, mode: str, *calls: tuple[str, dict[str, Any]]) -> None:
    """Make calls of one trace through a gateway, and wait until all processes have ended."""
    with serving(
        "-m", "bridge", "serve", config, "--transport", "http", "--port", "0", environment=collector.environment
    ) as server:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with Client(server.origin + "/mcp", mode=mode) as client:
                for name, arguments in calls:
                    await client.call_tool(name, arguments, meta=TRACE)  # type: ignore[arg-type]  # any key may stand there


def chain(spans: list[CollectedSpan], tool: str) -> list[tuple[str, str, str]]:
    """Return the spans of a tool's call, each followed by its child: service, kind and name."""
    of_tool = [span for span in spans if span.attributes.get("gen_ai.tool.name") == tool]
    found, parent = [], CALLER_SPAN_ID
    while children := [span for span in of_tool if span.parent_id == parent]:
        (child,) = children
        found.append((child.service, child.kind, child.name))
        parent = child.span_id
    assert len(found) == len(of_tool), of_tool
    return found


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_call_through_a_gateway_is_one_trace(config: str, collector: Collector, mode: str) -> None:
    plain, talkative = ("add", {"a": 1, "b": 2}), ("add_and_tell", {"a": 1, "b": 2})
    await traced_calls(config, collector, mode, plain, talkative, ("fail", {}))
    spans = collector.of(TRACE_ID)
    for tool in ("add", "add_and_tell", "fail"):
        name = f"tools/call {tool}"
        assert chain(spans, tool) == [
            ("mcp", "server", name),
            ("mcp", "client", name),
            ("upstream", "server", name),
        ]
    assert {span.attributes["error.type"] for span in spans if span.is_error} == {"tool_error"}
    assert {span.attributes["gen_ai.tool.name"] for span in spans if span.is_error} == {"fail"}
    assert not [span.name for span in collector.spans if "MCP send" in span.name]


async def test_what_the_caller_is_asked_belongs_to_its_trace(config: str, collector: Collector) -> None:
    said: list[Any] = []

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        said.append(params.meta)
        return ElicitResult(action="accept", content={"so": True})

    with serving(
        "-m", "bridge", "serve", config, "--transport", "http", "--port", "0", environment=collector.environment
    ) as server:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with Client(server.origin + "/mcp", mode="legacy", elicitation_callback=answer) as client:
                await client.call_tool("add_if_so", {"a": 1, "b": 2}, meta=TRACE)  # type: ignore[arg-type]  # as above
    ((_, trace_id, asking_span_id, _),) = [meta["traceparent"].split("-") for meta in said]
    assert trace_id == TRACE_ID
    assert asking_span_id in {span.span_id for span in collector.of(TRACE_ID)}
