"""Operations of AI services: invocations, model calls and tool executions, with their spans and metrics.

Names and labels follow OpenTelemetry's conventions for generative AI, as of October 2026; texts of messages, arguments
and results are never recorded.

https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from bridge.telemetry.conventions import ERROR_TYPE, OPERATION, OTHER, TARGETS, TOOLS_CALL
from bridge.telemetry.operations import classify_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from opentelemetry.metrics import Histogram

    from bridge.telemetry.instruments import Instruments
    from bridge.telemetry.tracing import Tracing

MODEL_DURATION = "gen_ai.client.operation.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - no secret
TOOL_DURATION = "gen_ai.execute_tool.duration"
AGENT_DURATION = "gen_ai.invoke_agent.duration"

AGENT = "gen_ai.agent.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - no secret
CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"

_MODEL_BUCKETS_SECONDS = tuple(0.01 * 2**power for power in range(14))
_AGENT_BUCKETS_SECONDS = tuple(0.1 * 2**power for power in range(13))
_TOKEN_BUCKETS = tuple(4**power for power in range(14))

_PROVIDERS = {"bedrock": "aws.bedrock"}


class GenAiOperation:
    """One operation as a context manager; an exception that leaves the block is its failure.

    Args:
        tracer: Opens the span; None for none.
        histogram: Receives the duration.
        span_name: Name of the span.
        labels: Labels of the duration and attributes of the span.
        attributes: Further attributes of the span.
        is_client: The span's kind: True for a request to another process.
        pauses: Exceptions that are no failure.
        tokens: Receives the tokens that a model used.

    Attributes:
        error_type: Type of a failure that is no exception; None for none.
    """

    __slots__ = ("_attributes", "_histogram", "_is_client", "_labels", "_pauses", "_span", "_span_name", "_start",
                 "_tokens", "_tracer", "error_type")  # fmt: skip

    def __init__(
        self,
        tracer: Tracing | None,
        histogram: Histogram,
        span_name: str,
        labels: dict[str, str],
        attributes: Mapping[str, Any],
        *,
        is_client: bool = False,
        pauses: tuple[type[BaseException], ...] = (),
        tokens: Histogram | None = None,
    ) -> None:
        self.error_type: str | None = None
        self._tracer, self._histogram, self._span_name = tracer, histogram, span_name
        self._labels, self._attributes, self._is_client, self._pauses = labels, attributes, is_client, pauses
        self._tokens = tokens

    def __enter__(self) -> Self:
        attributes = {**self._labels, **self._attributes}
        self._span = None
        if self._tracer is not None:
            self._span = self._tracer.start(self._span_name, attributes, is_client=self._is_client)
        self._start = perf_counter()
        return self

    def add(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes to the span."""
        if self._span is not None:
            self._span.add(attributes)

    def answered(
        self, model: str | None, input_tokens: int | None, output_tokens: int | None, attributes: Mapping[str, Any]
    ) -> None:
        """Record a model's response: the model that answered, the tokens, and further attributes of the span."""
        if model is not None:
            self._labels[RESPONSE_MODEL] = model
            attributes = {**attributes, RESPONSE_MODEL: model}
        self.add(attributes)
        for kind, count in (("input", input_tokens), ("output", output_tokens)):
            if count is not None:
                self.add({f"gen_ai.usage.{kind}_tokens": count})
                if self._tokens is not None:
                    self._tokens.record(count, {**self._labels, TOKEN_TYPE: kind})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        seconds = perf_counter() - self._start
        error_type = self.error_type
        if error is not None and not isinstance(error, self._pauses):
            error_type, _code = classify_error(error)
        if self._span is not None:
            self._span.end(error_type, None, None)
        self._histogram.record(
            seconds, self._labels if error_type is None else {**self._labels, ERROR_TYPE: error_type}
        )


class GenAi:
    """Starts the operations of AI services."""

    def __init__(self, instruments: Instruments, tracer: Tracing | None) -> None:
        self._tracer = tracer
        histogram = instruments.histogram
        self._agents = histogram(AGENT_DURATION, "s", "Duration of an agent's invocation.", _AGENT_BUCKETS_SECONDS)
        self._models = histogram(MODEL_DURATION, "s", "Duration of a call of a model.", _MODEL_BUCKETS_SECONDS)
        self._tools = histogram(TOOL_DURATION, "s", "Duration of a tool's execution.", _MODEL_BUCKETS_SECONDS)
        self._tokens = histogram(TOKEN_USAGE, "{token}", "Input and output tokens used.", _TOKEN_BUCKETS)

    def agent(self, name: str, pauses: tuple[type[BaseException], ...]) -> GenAiOperation:
        """Start an invocation of a service, which is suspended by some exceptions (``pauses``)."""
        labels = {OPERATION: "invoke_agent", AGENT: name}
        return GenAiOperation(self._tracer, self._agents, f"invoke_agent {name}", labels, {}, pauses=pauses)

    def model(self, provider: str, model: str | None, attributes: Mapping[str, Any]) -> GenAiOperation:
        """Start a call of a chat model."""
        labels = {OPERATION: "chat", PROVIDER: _PROVIDERS.get(provider, provider)}
        if model is not None:
            labels[REQUEST_MODEL] = model
        span_name = "chat" if model is None else f"chat {model}"
        return GenAiOperation(
            self._tracer, self._models, span_name, labels, attributes, is_client=True, tokens=self._tokens
        )

    def tool(self, name: str | None, agent: str | None, call_id: str | None) -> GenAiOperation:
        """Start a tool execution by a service (``agent``).

        ``name`` is None if there is no such tool, since a model may write any name; ``call_id`` if the model gave
        none.
        """
        labels = {OPERATION: "execute_tool", TARGETS[TOOLS_CALL]: name or OTHER}
        if agent is not None:
            labels[AGENT] = agent
        attributes = {TOOL_TYPE: "function"} if call_id is None else {TOOL_TYPE: "function", CALL_ID: call_id}
        return GenAiOperation(self._tracer, self._tools, f"execute_tool {name or OTHER}", labels, attributes)
