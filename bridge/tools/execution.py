"""Execution of tool calls.

    look-up → arguments → (time limit) → executor → output budget → (spill) → result
                    ╰──────────── error policy ───────────╯

Servers, AI services and the gateway all call `execute`, so that they behave identically. Errors follow LangChain4j's
ToolArgumentsErrorHandler, ToolExecutionErrorHandler and HallucinatedToolNameStrategy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import anyio

from bridge.errors import (
    ArgumentsError,
    DefinitionError,
    ResultError,
    ToolCallError,
    ToolError,
    ToolTimeoutError,
    UnknownToolError,
)
from bridge.portal import runs_on_asyncio
from bridge.tools.calls import ToolExecution, ToolExecutionRequest, ToolExecutionResult
from bridge.tools.checks import listed, require_callable, require_count, require_seconds, require_type
from bridge.tools.content import Text, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.spill.spill import Spill
    from bridge.tools.tool import Tool, Tools

_logger = logging.getLogger("bridge.tools")


@runtime_checkable
class _ResultMessage(Protocol):
    """A result in the form that a model reads: a `bridge.service.ToolExecutionResultMessage`."""

    @property
    def content(self) -> Sequence[Content]:
        """The content blocks."""
        ...

    @property
    def is_error(self) -> bool:
        """True if the tool failed."""
        ...


Remedy = str | ToolExecutionResult | _ResultMessage | ToolExecutionRequest | None
"""Return value of an error handler: text for the model, None for no text, a result, its message, or a new request.

A new request is executed in place of the failed one.
"""

ErrorHandler = Callable[[Exception, ToolExecutionRequest, "InvocationContext", int], "Remedy | Awaitable[Remedy]"]
"""Receives the error, the request, the context and the attempt's number (from 1); may raise to stop the invocation."""

UnknownToolHandler = Callable[
    [UnknownToolError, ToolExecutionRequest, "InvocationContext"], "Remedy | Awaitable[Remedy]"
]
"""Receives the error, the request and the context (LangChain4j's HallucinatedToolNameStrategy); may raise to stop."""

BeforeTool = Callable[[ToolExecutionRequest, "InvocationContext"], "Awaitable[None] | None"]
"""Called before a tool runs, with parsed arguments; an exception stops the invocation."""
AfterTool = Callable[[ToolExecution, "InvocationContext"], "Awaitable[None] | None"]
"""Called with each result; an exception is logged. Cancelled calls have no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPolicy:
    """Limits, callbacks and error handling for tool calls. The defaults suit a local program."""

    on_arguments_error: ErrorHandler | None = None
    """Replaces the default, which sends the argument problems to the model."""
    on_execution_error: ErrorHandler | None = None
    """Replaces the default, which sends the tool's exception to the model."""
    on_unknown_tool: UnknownToolHandler | None = None
    """Replaces the default, an error for the model that suggests the nearest names."""
    before: tuple[BeforeTool, ...] = ()
    after: tuple[AfterTool, ...] = ()
    timeout_seconds: float | None = None
    """Maximum duration of one call; the tool's own limit and the context's deadline apply as well."""
    max_output_chars: int | None = None
    """Maximum characters of text that a model reads of a result, unless the tool has its own limit."""
    spill: Spill | None = None
    """Keeps large results aside, and lets the model read a part; see `bridge.tools.Spill`. None leaves them whole.

    A server or an AI service with it has a tool that reads the rest. So has one with a tool that has ``spill_chars``.
    """
    max_attempts: int = 3
    """Maximum attempts per request if handlers return corrected requests."""
    propagate: bool = False
    """Let a tool's exceptions other than ToolCallError stop the invocation instead of becoming a result."""
    reveal_errors: bool = True
    """Send the text of any exception to the model, which may run at a provider.

    If False, only the text of `ToolError` is sent; other exceptions are logged and described generically.
    """

    def __post_init__(self) -> None:
        parts = "the error, the request and the context"
        for name, count in (("on_arguments_error", 4), ("on_execution_error", 4), ("on_unknown_tool", 3)):
            if (handler := getattr(self, name)) is not None:
                require_callable(handler, count, name, f"{parts} and the attempt" if count > 3 else parts)  # noqa: PLR2004
        for name, received in (("before", "the request and the context"), ("after", "the execution and the context")):
            callbacks = listed(getattr(self, name), name, f"a function of {received}")
            object.__setattr__(self, name, callbacks)
            for callback in callbacks:
                require_callable(callback, 2, f"a callback in {name}", received)
        require_seconds(self.timeout_seconds, "timeout_seconds")
        require_count(self.max_output_chars, "max_output_chars", optional=True)
        if self.spill is not None:
            from bridge.tools.spill.spill import Spill  # noqa: PLC0415 - only with one

            require_type(self.spill, Spill, "spill", "a Spill, or None")
        require_count(self.max_attempts, "max_attempts")
        require_type(self.propagate, bool, "propagate", "True or False")
        require_type(self.reveal_errors, bool, "reveal_errors", "True or False")

    @property
    def runs_directly(self) -> bool:
        """True if it neither limits, changes nor observes calls: executors may be called without `execute`."""
        handlers = (self.on_arguments_error, self.on_execution_error, self.timeout_seconds, self.max_output_chars)
        return handlers == (None,) * 4 and not (self.before or self.after)


LOCAL = ExecutionPolicy()
"""Default policy, for a local program."""


async def execute(
    tools: Tools, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy = LOCAL
) -> ToolExecutionResult:
    """Run one request.

    Args:
        tools: The tools by name.
        request: The tool's name and arguments.
        context: Context of the call.
        policy: Limits, callbacks and error handling.

    Returns:
        The tool's result. A failure is a result with ``is_error`` unless the policy propagates it.

    Raises:
        InputRequired: The tool asked a question that only a later run can answer.
        Exception: Raised by a handler or before-callback, or by a tool whose exceptions propagate.
    """
    if policy.before or policy.after or isinstance(request.arguments, str):
        return (await execute_timed(tools, request, context, policy)).result
    return (await _run(tools, request, context, policy))[0]


async def result_of_failure(
    raised: BaseException, tool: Tool, arguments: Mapping[str, Any], policy: ExecutionPolicy, context: InvocationContext
) -> ToolExecutionResult:
    """Return the result of a call whose executor raised an exception, as `execute` does if the policy `runs_directly`.

    Raises:
        BaseException: The tool did not fail: the call was cancelled, asks a question, or its exceptions propagate.
    """
    error, request = _failure(raised, tool.name), ToolExecutionRequest(tool.name, arguments)
    remedy = await _handle_failure(error, tool, request, context, policy, policy.max_attempts)
    assert isinstance(remedy, ToolExecutionResult), "no handler returns another request"
    return remedy


async def execute_timed(
    tools: Tools,
    request: ToolExecutionRequest,
    context: InvocationContext,
    policy: ExecutionPolicy = LOCAL,
    *,
    refusal: ArgumentsError | None = None,
    record: Callable[[ToolExecution], object] | None = None,
) -> ToolExecution:
    """Run one request like `execute`; return the result with its start time, duration and error.

    Args:
        tools: The tools by name.
        request: The tool's name and arguments.
        context: Context of the call.
        policy: Limits, callbacks and error handling.
        refusal: Known argument problems; if given, the tool does not run.
        record: Receives the execution before the callbacks of the policy, which may be cancelled.

    Raises:
        Exception: See `execute`.
    """
    try:
        request = request.parsed()
    except ArgumentsError as unreadable:
        refusal = refusal or unreadable
        if isinstance(request.arguments, str):
            request = replace(request, arguments_text=request.arguments)
    for callback in policy.before:
        await _call(callback, request, context)
    started_at, start = datetime.now(UTC), perf_counter()
    result, error = await _run(tools, request, context, policy, refusal)
    execution = ToolExecution(
        request=request,
        result=result,
        started_at=started_at,
        duration_seconds=perf_counter() - start,
        error=error,
    )
    if record is not None:
        record(execution)
    if policy.after:
        await notify(policy.after, execution, context)
    return execution


async def notify(observers: Iterable[Callable[..., Any]], *arguments: Any) -> None:
    """Call observers one after another; their exceptions are logged."""
    for observer in observers:
        try:
            answer = observer(*arguments)
            if answer is not None and inspect.isawaitable(answer):
                await answer
        except Exception:
            _logger.exception("the observer %r failed; what it observed continues", observer)


async def _run(
    tools: Tools,
    request: ToolExecutionRequest,
    context: InvocationContext,
    policy: ExecutionPolicy,
    refusal: ArgumentsError | None = None,
) -> tuple[ToolExecutionResult, Exception | None]:
    attempt = 1
    while True:
        tool: Tool | None = None
        try:
            tool = tools.get(request.name)
            if refusal is not None and attempt == 1:
                raise refusal  # noqa: TRY301 - handled like any other error
            if isinstance(request.arguments, str):
                request = request.parsed()
            seconds = _seconds_left(tool, context, policy)
            if seconds is None:
                result = await tool.executor.execute(request, context)
            else:
                result = await _execute_within(seconds, tool, request, context)
        except BaseException as raised:  # noqa: BLE001 - _failure raises it again unless the tool failed
            error = _failure(raised, request.name)
            remedy = await _handle_failure(error, tool, request, context, policy, attempt)
            if isinstance(remedy, ToolExecutionResult):
                return await _for_model(remedy, tool, context, policy), error
            request, attempt = remedy, attempt + 1
        else:
            return await _for_model(result, tool, context, policy), None


def _seconds_left(tool: Tool, context: InvocationContext, policy: ExecutionPolicy) -> float | None:
    own, general, deadline = tool.policy.timeout_seconds, policy.timeout_seconds, context.deadline
    if own is None and general is None and deadline is None:
        return None
    left = None if deadline is None else max(0.0, deadline - anyio.current_time())
    return min(limit for limit in (own, general, left) if limit is not None)


async def _execute_within(
    seconds: float, tool: Tool, request: ToolExecutionRequest, context: InvocationContext
) -> ToolExecutionResult:
    if seconds > 0:  # with an expired scope the tool would still run up to its first checkpoint
        with anyio.move_on_after(seconds):
            return await tool.executor.execute(request, context)
    raise ToolTimeoutError(request.name, seconds)


def _failure(raised: BaseException, name: str) -> Exception:
    """Return the tool's failure; raise the exception if the call was cancelled, asks, or the process is to end."""
    while isinstance(raised, BaseExceptionGroup) and len(raised.exceptions) == 1:
        raised = raised.exceptions[0]
    if isinstance(raised, ArgumentsError) and raised.tool != name:
        return ArgumentsError(name, raised.problems)  # the caller only knows the name that a wrapper gave
    if isinstance(raised, Exception):
        return raised
    if isinstance(raised, SystemExit) or (isinstance(raised, KeyboardInterrupt) and not _may_be_a_signal()):
        return ToolError("the tool tried to end the process")
    if isinstance(raised, asyncio.CancelledError) and not _is_cancelled():
        return ToolError("an operation that the tool awaited was cancelled")
    raise raised


def _may_be_a_signal() -> bool:
    """Return True if a KeyboardInterrupt may come from Ctrl+C rather than from the tool."""
    # Servers and `asyncio.run` handle SIGINT themselves, so that it never interrupts running code.
    if not runs_on_asyncio():  # trio raises KeyboardInterrupt in the running task
        return True
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return is_default and threading.current_thread() is threading.main_thread()


def _is_cancelled() -> bool:
    """Return True if this task is being cancelled, rather than something that it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _handle_failure(
    error: Exception,
    tool: Tool | None,
    request: ToolExecutionRequest,
    context: InvocationContext,
    policy: ExecutionPolicy,
    attempt: int,
) -> ToolExecutionResult | ToolExecutionRequest:
    """Apply the error policy: return a result, or a corrected request to run."""
    handler: Callable[..., Any] | None
    remedy: Any
    if tool is None and isinstance(error, UnknownToolError):
        handler = policy.on_unknown_tool
        remedy = str(error) if handler is None else await _call(handler, error, request, context)
    elif isinstance(error, ArgumentsError):
        handler = policy.on_arguments_error
        remedy = str(error) if handler is None else await _call(handler, error, request, context, attempt)
    elif policy.on_execution_error is not None:
        remedy = await _call(policy.on_execution_error, error, request, context, attempt)
    else:
        if not isinstance(error, ToolCallError) and (policy.propagate or (tool is not None and tool.policy.propagate)):
            raise error
        remedy = _described(error, request.name, policy, context)
    if remedy is None or isinstance(remedy, str):
        return ToolExecutionResult.error(remedy or "")
    if isinstance(remedy, ToolExecutionRequest) and attempt >= policy.max_attempts:
        last = _described(error, request.name, policy, context)
        return ToolExecutionResult.error(f"{request.name!r} failed {attempt} times; last: {last}")
    if isinstance(remedy, ToolExecutionResult | ToolExecutionRequest):
        return remedy
    if isinstance(remedy, _ResultMessage):
        return ToolExecutionResult(tuple(remedy.content), is_error=remedy.is_error)
    raise DefinitionError(
        f"an error handler for {request.name!r} returned {remedy!r}; return text, None for no text, a "
        "ToolExecutionResult, its message, or a corrected ToolExecutionRequest"
    )


def _described(error: Exception, name: str, policy: ExecutionPolicy, context: InvocationContext) -> str:
    """Return the error text for the model; log errors that the tool's author must see."""
    if not isinstance(error, ToolCallError) or isinstance(error, ResultError):
        _logger.error("the tool %r failed", name, exc_info=error, extra={"request_id": context.request_id})
    if isinstance(error, ToolCallError):
        return str(error)
    if policy.reveal_errors:
        return str(error) or type(error).__name__
    return f"the tool {name!r} failed; its server's log says why"


async def _for_model(
    result: ToolExecutionResult, tool: Tool | None, context: InvocationContext, policy: ExecutionPolicy
) -> ToolExecutionResult:
    """Return a result within the output budget, and with its text kept aside if it is large."""
    result = _within_budget(result, tool, policy)
    return result if policy.spill is None or tool is None else await policy.spill.fitted(tool, result, context)


def _within_budget(result: ToolExecutionResult, tool: Tool | None, policy: ExecutionPolicy) -> ToolExecutionResult:
    """Reduce text over the budget to head and tail for the model; the result keeps the full text."""
    max_chars = (tool.policy.max_output_chars if tool is not None else None) or policy.max_output_chars
    if max_chars is None or result.model_content is not None or len(text := text_of(result.content)) <= max_chars:
        return result
    head, tail = max_chars - max_chars // 3, max_chars // 3
    cut = f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[len(text) - tail :]}"
    others: tuple[Content, ...] = tuple(block for block in result.content if not isinstance(block, Text))
    return replace(result, model_content=(Text(cut), *others))


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    answer = function(*arguments)
    return await answer if inspect.isawaitable(answer) else answer
