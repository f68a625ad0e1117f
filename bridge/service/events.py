"""Result and events of an invocation; listeners.

Events: what an invocation tells while it runs (LangChain4j's TokenStream and its callbacks).

The pieces of the model's replies are those of `bridge.service.chat_model`; here is what a loop adds to them.

Listeners: who is told what an AI service does (LangChain4j's AiServiceListener and ChatModelListener).

Monitors: ready-made listeners that show what tools do (LangChain4j's debugging examples, ready to use).

Each is a listener of an AI service, and each of its methods is a callback of the execution path as well:

    performance = ToolPerformance()
    assistant = ai_service(Assistant, chat_model=model, tools=tools, listeners=[performance])
    policy = ExecutionPolicy(after=(performance.after_tool,))
    print(performance.report())

Result: what an invocation of an AI service gave beside its content (LangChain4j's Result).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic_core import to_json

from bridge.errors import ArgumentsError
from bridge.service.chat_model import (
    CompleteResponse,
    CompleteToolCall,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    TokenUsage,
)
from bridge.tools.arguments import parse_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.service.chat_model import ChatRequest, ChatResponse, FinishReason
    from bridge.service.messages import UserMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class IntermediateResponse:
    """A response of the model is whole, and calls tools."""

    response: ChatResponse


@dataclass(frozen=True, slots=True)
class BeforeToolExecution:
    """A tool is about to run."""

    request: ToolExecutionRequest


@dataclass(frozen=True, slots=True)
class ToolExecuted:
    """There is a tool's result."""

    execution: ToolExecution


ServiceEvent = (
    PartialResponse
    | PartialThinking
    | PartialToolCall
    | CompleteToolCall
    | IntermediateResponse
    | BeforeToolExecution
    | ToolExecuted
    | CompleteResponse
)
"""What a `TokenStream` yields; `CompleteResponse` comes once, as the last."""


Emit = Callable[[ServiceEvent], Awaitable[None]]
"""Takes an event to whoever listens, and waits until it is taken."""


class InvocationListener:
    """Is told what happens in the invocations of a service; override what is wanted, as a plain or async method.

    A listener may be told of several invocations at once: the context tells them apart. What it raises stops the
    invocation.
    """

    def on_invocation_started(self, message: UserMessage, context: InvocationContext) -> Awaitable[None] | None:
        """An invocation begins."""

    def on_model_request(self, request: ChatRequest, context: InvocationContext) -> Awaitable[None] | None:
        """The model is about to be asked."""

    def on_model_response(
        self, response: ChatResponse, request: ChatRequest, context: InvocationContext
    ) -> Awaitable[None] | None:
        """The model has answered."""

    def before_tool(self, request: ToolExecutionRequest, context: InvocationContext) -> Awaitable[None] | None:
        """A tool is about to run."""

    def after_tool(self, execution: ToolExecution, context: InvocationContext) -> Awaitable[None] | None:
        """There is a tool's result, with its time and, where it failed here, its error."""

    def on_invocation_completed(self, result: Result[Any], context: InvocationContext) -> Awaitable[None] | None:
        """An invocation has its answer, and its memory is written."""

    def on_invocation_failed(self, error: BaseException, context: InvocationContext) -> Awaitable[None] | None:
        """An invocation ends without an answer: it failed, was cancelled, or is suspended."""


class Listeners:
    """The methods of some listeners by the event that they want: an event that nobody wants costs nothing."""

    __slots__ = ("after_tool", "before_tool", "completed", "failed", "model_request", "model_response", "started")

    def __init__(self, listeners: Iterable[InvocationListener] = ()) -> None:
        listeners = tuple(listeners)
        self.started = _overridden(listeners, "on_invocation_started")
        self.model_request = _overridden(listeners, "on_model_request")
        self.model_response = _overridden(listeners, "on_model_response")
        self.before_tool = _overridden(listeners, "before_tool")
        self.after_tool = _overridden(listeners, "after_tool")
        self.completed = _overridden(listeners, "on_invocation_completed")
        self.failed = _overridden(listeners, "on_invocation_failed")


async def notify(methods: tuple[Callable[..., Any], ...], *arguments: Any) -> None:
    """Tell all who want to know, one after another."""
    for method in methods:
        answer = method(*arguments)
        if inspect.isawaitable(answer):
            await answer


def _overridden(listeners: tuple[InvocationListener, ...], name: str) -> tuple[Callable[..., Any], ...]:
    plain = getattr(InvocationListener, name)
    return tuple(getattr(each, name) for each in listeners if getattr(type(each), name, None) is not plain)


class ToolLogger(InvocationListener):
    """Logs every execution of a tool in a line: its name, time, outcome and the size of its result.

    Arguments and results are logged beside at level DEBUG, for they may hold what a log should not.

    Args:
        logger: Where to log.
        level: The level of a tool that succeeded; one that failed is logged as a warning.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or logging.getLogger("bridge.tools.executions")
        self._level = level

    def after_tool(self, execution: ToolExecution, context: InvocationContext) -> None:  # noqa: ARG002 - the base's
        """Log an execution."""
        request, result = execution.request, execution.result
        self._logger.log(
            logging.WARNING if result.is_error else self._level,
            "tool %s %s in %.1f ms, %d characters",
            request.name,
            "failed" if result.is_error else "succeeded",
            execution.duration_seconds * 1000,
            len(result.text),
        )
        self._logger.debug("tool %s: arguments %s, result %s", request.name, request.arguments, result.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatistics:
    """What is known of the executions of one tool."""

    calls: int
    failures: int
    """How many of the calls ended in an error."""
    total_seconds: float
    min_seconds: float
    max_seconds: float

    @property
    def mean_seconds(self) -> float:
        """The mean time of a call."""
        return self.total_seconds / self.calls


class ToolPerformance(InvocationListener):
    """Counts and times the executions of each tool; may be asked at any moment, from any thread."""

    def __init__(self) -> None:
        self._statistics: dict[str, ToolStatistics] = {}
        self._lock = Lock()

    def after_tool(self, execution: ToolExecution, context: InvocationContext) -> None:  # noqa: ARG002 - the base's
        """Count an execution."""
        name, seconds = execution.request.name, execution.duration_seconds
        with self._lock:
            known = self._statistics.get(name)
            self._statistics[name] = ToolStatistics(
                calls=1 + (known.calls if known else 0),
                failures=execution.result.is_error + (known.failures if known else 0),
                total_seconds=seconds + (known.total_seconds if known else 0.0),
                min_seconds=min(seconds, known.min_seconds) if known else seconds,
                max_seconds=max(seconds, known.max_seconds) if known else seconds,
            )

    @property
    def statistics(self) -> Mapping[str, ToolStatistics]:
        """What is known now, by the names of the tools in the order of their first calls."""
        with self._lock:
            return dict(self._statistics)

    def report(self) -> str:
        """The statistics as a table."""
        rows = [("tool", "calls", "failures", "mean ms", "min ms", "max ms")]
        for name, known in self.statistics.items():
            times = (known.mean_seconds, known.min_seconds, known.max_seconds)
            milliseconds = [f"{seconds * 1000:.1f}" for seconds in times]
            rows.append(
                (name, str(known.calls), str(known.failures), milliseconds[0], milliseconds[1], milliseconds[2])
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(line))
            for line in ([*zip(row, widths, strict=True)] for row in rows)
        )


class ToolRequestInspector(InvocationListener):
    """Shows every request before its tool runs: the name, the memory id, and each argument with its type.

    Args:
        show: What shows a text; prints by default.
    """

    def __init__(self, show: Callable[[str], object] = print) -> None:
        self._show = show

    def before_tool(self, request: ToolExecutionRequest, context: InvocationContext) -> None:
        """Show a request."""
        lines = [f"{request.name} (memory id {context.memory_id!r})"]
        arguments = _arguments(request)
        if isinstance(arguments, str):
            lines.append(f"  no JSON object: {arguments}")
        else:
            lines += [
                f"  {name}: {to_json(value, fallback=repr).decode()} ({type(value).__name__})"
                for name, value in arguments.items()
            ]
        self._show("\n".join(lines))


def _arguments(request: ToolExecutionRequest) -> Mapping[str, Any] | str:
    """The arguments by name, read from the text that a model wrote; that text where it cannot be read."""
    if not isinstance(request.arguments, str):
        return request.arguments
    try:
        return parse_arguments(request.name, request.arguments)
    except ArgumentsError:
        return request.arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T_co]):
    """The content, and how it came about. A method that returns ``Result[T]`` tells more than one that returns T."""

    content: T_co
    """What the model said, as the method wants it; where a tool's result is the answer: that."""
    tool_executions: tuple[ToolExecution, ...] = ()
    """The tools that ran, in the order in which the model called them, with their times."""
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    """The tokens of all the model's responses together."""
    intermediate_responses: tuple[ChatResponse, ...] = ()
    """The responses before the last."""
    final_response: ChatResponse
    """The last response; it calls tools where a tool's result is the answer."""

    @property
    def finish_reason(self) -> FinishReason:
        """Why the model stopped."""
        return self.final_response.finish_reason
