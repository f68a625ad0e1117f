from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge import (
    ExecutionPolicy,
    InvocationContext,
    Text,
    ToolBox,
    ToolExecutionRequest,
    ToolExecutionResult,
    enable_telemetry,
)
from bridge.adapters.calls import box_of, by_safe_name, complete_result, run, shown_to_model
from bridge.errors import DefinitionError
from bridge.telemetry import current
from bridge.testing import connected
from tests.adapters.tools import add, box, count

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


async def result(name: str, **limits: Any) -> ToolExecutionResult:
    request = ToolExecutionRequest(name, {"city": "Oslo"})
    return (await run(box(), request, InvocationContext(), ExecutionPolicy(**limits))).result


async def test_a_result_over_the_budget_is_cut_for_the_model_and_complete_beside_it() -> None:
    chart = await result("chart", max_output_chars=6)
    text = shown_to_model(chart)[0]
    assert isinstance(text, Text)
    assert text.text == "A ch\n… 10 characters left out …\no."
    complete = complete_result(chart)
    assert complete is not None
    assert complete["content"][0] == {"type": "text", "text": "A chart of Oslo."}


async def test_a_remote_result_is_complete_without_the_metadata_of_the_protocol() -> None:
    async with connected(ToolBox(add, count)) as provider:
        complete = complete_result(await provider.call("add", a=1, b=2))
        assert complete_result(await provider.call("count")) is None
    assert complete == {
        "content": [{"type": "text", "text": '{"total":3}'}],
        "structuredContent": {"total": 3},
        "isError": False,
    }


async def test_calls_are_observed_like_those_of_a_service() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    try:
        enable_telemetry(tracer_provider=provider)
        await result("chart")
        await result("delete")
    finally:
        current.enable(None)
    spans = exporter.get_finished_spans()
    assert [(span.name, (span.attributes or {}).get("error.type")) for span in spans] == [
        ("execute_tool chart", None),
        ("execute_tool delete", "ArgumentsError"),
    ]


async def test_names_of_a_box_are_those_that_providers_accept() -> None:
    assert list(by_safe_name(box())) == ["add", "chart", "attach", "delete", "who_am_i", "count"]


async def test_a_box_is_followed_and_a_list_is_not() -> None:
    tools = ToolBox(add)
    assert box_of(tools) is tools
    assert box_of([add]) is not tools
    with pytest.raises(DefinitionError, match="no tools"):
        box_of(3)
