"""Spans and metrics of AI services."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge import ApprovalPolicy, ChatModelError, InvocationSuspended, ToolError, ai_service, enable_telemetry, tool
from bridge.service import ChatRequestParameters, Decision, TokenUsage, for_tools
from bridge.telemetry import current
from bridge.telemetry.observer import Observer
from bridge.telemetry.tracing import Tracing
from tests.service.fakes import Assistant, FakeModel, ask, call, calls, response_of
from tests.telemetry.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = pytest.mark.anyio


class Observed(Measured):
    """An observer, and the spans and metrics that it recorded."""

    def __init__(self) -> None:
        super().__init__()
        provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = Observer(self.instruments, tracer=Tracing(provider))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def attributes(self) -> list[tuple[str, dict[str, Any]]]:
        return [(span.name, dict(span.attributes or {})) for span in self.spans]


@pytest.fixture
def observed() -> Iterator[Observed]:
    observed = Observed()
    with current.enabled(observed.observer):
        yield observed


@tool
async def add(a: int, b: int) -> int:
    assert trace.get_current_span().get_span_context().is_valid
    return a + b


@tool
async def fail() -> str:
    raise ToolError("secret weather")


class Named(FakeModel):
    """A model of a provider."""

    provider = "bedrock"
    model_name = "sonnet"


MODEL = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "aws.bedrock", "gen_ai.request.model": "sonnet"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Assistant"}


def executed(name: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.agent.name": "Assistant", "gen_ai.tool.name": name}


async def test_an_invocation_is_one_trace_of_model_calls_and_tool_executions(way: str, observed: Observed) -> None:
    wanted = calls(call("add", "1", a=1, b=2), call("fail"), call("made_up", "3"))
    last = replace(response_of("done"), model_name="sonnet-4", id="r2", token_usage=TokenUsage(20, 3, 5))
    parameters = ChatRequestParameters(temperature=0.5, max_output_tokens=9, stop_sequences=(".",))
    service = ai_service(Assistant, chat_model=Named(wanted, last), tools=[add, fail], parameters=parameters)
    await ask(service, way, "Tell me a secret")
    sent = {
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stop_sequences": (".",),
    }
    function = {"gen_ai.tool.type": "function"}
    assert observed.attributes() == [
        (
            "chat sonnet",
            MODEL
            | sent
            | {"gen_ai.response.finish_reasons": ("tool_execution",)}
            | {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2},
        ),
        ("execute_tool add", executed("add") | function | {"gen_ai.tool.call.id": "1"}),
        ("execute_tool fail", executed("fail") | function | {"error.type": "ToolError"}),
        (
            "execute_tool _OTHER",
            executed("_OTHER") | function | {"gen_ai.tool.call.id": "3", "error.type": "UnknownToolError"},
        ),
        (
            "chat sonnet",
            MODEL
            | sent
            | {"gen_ai.response.model": "sonnet-4", "gen_ai.response.id": "r2"}
            | {"gen_ai.response.finish_reasons": ("stop",), "gen_ai.usage.cache_read.input_tokens": 5}
            | {"gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 3},
        ),
        ("invoke_agent Assistant", AGENT),
    ]
    *parts, whole = observed.spans
    assert [part.parent for part in parts] == [whole.context] * 5
    client, internal = trace.SpanKind.CLIENT, trace.SpanKind.INTERNAL
    assert [span.kind for span in observed.spans] == [client, internal, internal, internal, client, internal]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_durations_and_tokens_are_metrics(way: str, observed: Observed) -> None:
    last = replace(response_of("done"), model_name="sonnet-4", token_usage=TokenUsage(20, None))
    service = ai_service(Assistant, chat_model=Named(calls(call("add", a=1, b=2)), last), tools=[add])
    await ask(service, way)
    answered = MODEL | {"gen_ai.response.model": "sonnet-4"}
    assert observed.counts("gen_ai.client.operation.duration") == sorted([(MODEL, 1), (answered, 1)], key=repr)
    assert {
        (str(labels.get("gen_ai.response.model")), str(labels["gen_ai.token.type"]))
        for labels, _ in observed.counts("gen_ai.client.token.usage")
    } == {("None", "input"), ("None", "output"), ("sonnet-4", "input")}
    assert sorted(point.sum for point in observed.points("gen_ai.client.token.usage")) == [2, 10, 20]
    assert observed.counts("gen_ai.execute_tool.duration") == [(executed("add"), 1)]
    assert observed.counts("gen_ai.invoke_agent.duration") == [(AGENT, 1)]


async def test_failures_have_a_type_and_a_suspension_is_none(observed: Observed) -> None:
    error = ChatModelError("busy", provider="test")
    with pytest.raises(ChatModelError):
        await ai_service(Assistant, chat_model=FakeModel(error)).chat("Hi")
    later = ApprovalPolicy(applies=for_tools("add"), approve=lambda *_: Decision.later())
    service = ai_service(Assistant, chat_model=FakeModel(calls(call("add", a=1, b=2))), tools=[add], approval=later)
    with pytest.raises(InvocationSuspended):
        await service.chat("Hi")

    async def never(_: object) -> Any:
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    with anyio.CancelScope() as scope:
        await ai_service(Assistant, chat_model=FakeModel(never)).chat("Hi")
    assert [(name, attributes.get("error.type")) for name, attributes in observed.attributes()] == [
        ("chat", "ChatModelError"),
        ("invoke_agent Assistant", "ChatModelError"),
        ("chat", None),
        ("invoke_agent Assistant", None),
        ("chat", "cancelled"),
        ("invoke_agent Assistant", "cancelled"),
    ]
    labels = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "FakeModel"}
    assert ({**labels, "error.type": "ChatModelError"}, 1) in observed.counts("gen_ai.client.operation.duration")


async def test_telemetry_is_enabled_with_the_providers_of_the_process_or_with_given_ones() -> None:
    observed = Measured()
    try:
        enable_telemetry(meter_provider=observed.provider)
        await ai_service(Assistant, chat_model=FakeModel("Hi")).chat("Hi")
        assert observed.counts("gen_ai.invoke_agent.duration") == [(AGENT, 1)]
        enable_telemetry()
        assert metrics.get_meter_provider() is not observed.provider
        await ai_service(Assistant, chat_model=FakeModel("Hi")).chat("Hi")
        assert observed.counts("gen_ai.invoke_agent.duration") == [(AGENT, 1)]
    finally:
        current.enable(None)
