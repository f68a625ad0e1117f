"""Results, events and listeners of invocations.

Events extend those of `bridge.service.chat_model` (LangChain4j's TokenStream). Listeners follow LangChain4j's
AiServiceListener and ChatModelListener, `Result` its Result.

`ToolLogger`, `ToolPerformance` and `ToolRequestInspector` are ready-made listeners. Their methods also work as
callbacks of an `ExecutionPolicy`:

    performance = ToolPerformance()
    assistant = ai_service(Assistant, chat_model=model, tools=tools, listeners=[performance])
    policy = ExecutionPolicy(after=(performance.after_tool,))
    print(performance.report())
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from pydantic_core import to_json

from bridge.errors import UnknownToolError
from bridge.service.chat_model import (
    CompleteResponse,
    CompleteToolCall,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    TokenUsage,
)
from bridge.tools.checks import listed, require_callable, require_count, require_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.service.chat_model import ChatRequest, ChatResponse, FinishReason
    from bridge.service.messages import UserMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class IntermediateResponse:
    """A response with tool calls is complete."""

    response: ChatResponse


@dataclass(frozen=True, slots=True)
class BeforeToolExecution:
    """A tool is about to run; its arguments are parsed."""

    request: ToolExecutionRequest


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A running tool reports progress with `bridge.InvocationContext.progress`."""

    request: ToolExecutionRequest
    """The call that reports."""
    progress: float
    """Amount of work done, in the tool's unit."""
    total: float | None = None
    """Total amount of work in the same unit, if known."""
    message: str | None = None
    """Description of the current step, for people."""


@dataclass(frozen=True, slots=True)
class ToolExecuted:
    """A tool has a result."""

    execution: ToolExecution


ServiceEvent = (
    PartialResponse
    | PartialThinking
    | PartialToolCall
    | CompleteToolCall
    | IntermediateResponse
    | BeforeToolExecution
    | ToolProgress
    | ToolExecuted
    | CompleteResponse
)
"""Events of a `TokenStream`; the last one is `CompleteResponse`."""


Emit = Callable[[ServiceEvent], Awaitable[None]]
"""Sends an event to its receiver and waits until it is received."""


class ProgressEvents:
    """Emits the progress of one call until the call ends, also for reports of a worker thread."""

    def __init__(self, request: ToolExecutionRequest, emit: Emit) -> None:
        self._request = request
        self._emit = emit
        self._reports: set[anyio.CancelScope] = set()
        self._is_over = False

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Emit one report; see `InvocationContext.progress`."""
        if self._is_over:
            return
        with anyio.CancelScope() as scope:
            self._reports.add(scope)
            try:
                await self._emit(ToolProgress(self._request, progress, total, message))
            finally:
                self._reports.discard(scope)

    def close(self) -> None:
        """Drop later reports, and those that no receiver has taken."""
        self._is_over = True
        for scope in self._reports:
            scope.cancel()


class InvocationListener:
    """Receives the events of a service's invocations. Override methods as needed, synchronous or asynchronous.

    Invocations may run concurrently; the context identifies them. An exception raised by `before_tool` stops the
    invocation; exceptions of all other methods are logged.
    """

    def on_invocation_started(self, message: UserMessage, context: InvocationContext) -> Awaitable[None] | None:
        """Called when an invocation starts."""

    def on_model_request(self, request: ChatRequest, context: InvocationContext) -> Awaitable[None] | None:
        """Called before each request to the model."""

    def on_model_response(
        self, response: ChatResponse, request: ChatRequest, context: InvocationContext
    ) -> Awaitable[None] | None:
        """Called after each response of the model."""

    def before_tool(self, request: ToolExecutionRequest, context: InvocationContext) -> Awaitable[None] | None:
        """Called before a tool runs, with parsed arguments."""

    def after_tool(self, execution: ToolExecution, context: InvocationContext) -> Awaitable[None] | None:
        """Called after a tool has run, with its result, duration and, if it failed in this process, exception."""

    def on_invocation_completed(self, result: Result[Any], context: InvocationContext) -> Awaitable[None] | None:
        """Called when an invocation has its answer and the memory is written."""

    def on_invocation_failed(self, error: BaseException, context: InvocationContext) -> Awaitable[None] | None:
        """Called when an invocation ends without an answer: it failed, was cancelled, or is suspended."""


class Listeners:
    """The overridden methods of several listeners by event, so that other events cost nothing."""

    __slots__ = ("after_tool", "before_tool", "completed", "failed", "model_request", "model_response", "started")

    def __init__(self, listeners: Iterable[InvocationListener] | InvocationListener = ()) -> None:
        listeners = listed(listeners, "listeners", "an InvocationListener")
        for listener in listeners:
            require_type(listener, InvocationListener, "an item of listeners", "an instance of an InvocationListener")
        self.started = _overridden(listeners, "on_invocation_started")
        self.model_request = _overridden(listeners, "on_model_request")
        self.model_response = _overridden(listeners, "on_model_response")
        self.before_tool = _overridden(listeners, "before_tool")
        self.after_tool = _overridden(listeners, "after_tool")
        self.completed = _overridden(listeners, "on_invocation_completed")
        self.failed = _overridden(listeners, "on_invocation_failed")


def _overridden(listeners: tuple[InvocationListener, ...], name: str) -> tuple[Callable[..., Any], ...]:
    inherited = getattr(InvocationListener, name)
    arguments = len(inspect.signature(inherited).parameters) - 1
    return tuple(
        require_callable(getattr(listener, name), arguments, f"{type(listener).__name__}.{name}", "see the base class")
        for listener in listeners
        if getattr(type(listener), name) is not inherited
    )


class ToolLogger(InvocationListener):
    """Logs each execution of a tool in one line: name, duration, outcome and size of the result.

    Arguments and results are only logged at level DEBUG, since they may be confidential.

    Args:
        logger: Destination. Defaults to ``bridge.tools.executions``.
        level: Level for successful calls; failed calls are logged as warnings.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        require_count(level, "level", least=0)
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
    """Statistics of the executions of one tool."""

    calls: int
    failures: int
    """Number of calls that ended with an error."""
    total_seconds: float
    min_seconds: float
    max_seconds: float

    @property
    def mean_seconds(self) -> float:
        """Mean duration of a call."""
        return self.total_seconds / self.calls


_NO_CALLS = ToolStatistics(calls=0, failures=0, total_seconds=0.0, min_seconds=math.inf, max_seconds=0.0)


class ToolPerformance(InvocationListener):
    """Counts and times the executions of each tool; thread-safe."""

    def __init__(self) -> None:
        self._statistics: dict[str, ToolStatistics] = {}
        self._lock = Lock()

    def after_tool(self, execution: ToolExecution, context: InvocationContext) -> None:  # noqa: ARG002 - the base's
        """Add an execution to the statistics, unless there is no such tool: a model may write any name."""
        if isinstance(execution.error, UnknownToolError):
            return
        name, seconds = execution.request.name, execution.duration_seconds
        with self._lock:
            before = self._statistics.get(name, _NO_CALLS)
            self._statistics[name] = ToolStatistics(
                calls=before.calls + 1,
                failures=before.failures + execution.result.is_error,
                total_seconds=before.total_seconds + seconds,
                min_seconds=min(seconds, before.min_seconds),
                max_seconds=max(seconds, before.max_seconds),
            )

    @property
    def statistics(self) -> Mapping[str, ToolStatistics]:
        """Current statistics by tool, in order of their first calls."""
        with self._lock:
            return dict(self._statistics)

    def report(self) -> str:
        """Format the statistics as a table."""
        rows: list[tuple[str, ...]] = [("tool", "calls", "failures", "mean ms", "min ms", "max ms")]
        for name, statistics in self.statistics.items():
            times = (statistics.mean_seconds, statistics.min_seconds, statistics.max_seconds)
            milliseconds = (f"{seconds * 1000:.1f}" for seconds in times)
            rows.append((name, f"{statistics.calls}", f"{statistics.failures}", *milliseconds))
        first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join([name.ljust(first), *map(str.rjust, cells, others)]) for name, *cells in rows)


class ToolRequestInspector(InvocationListener):
    """Shows each request before its tool runs: tool name, memory id, and each argument with its type.

    Args:
        show: Prints a text. Defaults to `print`.
    """

    def __init__(self, show: Callable[[str], object] = print) -> None:
        self._show = show

    def before_tool(self, request: ToolExecutionRequest, context: InvocationContext) -> None:
        """Show a request."""
        lines = [f"{request.name} (memory id {context.memory_id!r})"]
        arguments = request.arguments
        if isinstance(arguments, str):
            lines.append(f"  not a JSON object: {arguments}")
        else:
            lines += [
                f"  {name}: {to_json(value, fallback=repr).decode()} ({type(value).__name__})"
                for name, value in arguments.items()
            ]
        self._show("\n".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T_co]):
    """Content and details of an invocation; the return type of methods declared as ``Result[T]``."""

    content: T_co
    """The reply in the method's return type, or a tool's result if that is the answer."""
    tool_executions: tuple[ToolExecution, ...] = ()
    """Executed tools in the order of the model's calls."""
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    """Total tokens of all responses."""
    intermediate_responses: tuple[ChatResponse, ...] = ()
    """All responses before the last."""
    final_response: ChatResponse
    """Last response; it contains tool calls if a tool's result is the answer."""

    @property
    def finish_reason(self) -> FinishReason:
        """Finish reason of the last response."""
        return self.final_response.finish_reason
