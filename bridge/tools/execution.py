"""The one way from a request to a result.

    look-up → arguments → (time limit) → executor → output budget → result
                    ╰──────────── error policy ───────────╯

A server, an AI service's loop and a gateway all go through `execute`, so they cannot differ. What a call does not need
is not built: no cancel scope without a time limit, no clock without a callback. Errors follow LangChain4j's
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
from bridge.tools.arguments import parse_arguments
from bridge.tools.content import Text, text_of
from bridge.tools.tool import ToolExecution, ToolExecutionRequest, ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.tools.toolbox import ToolBox

_logger = logging.getLogger("bridge.tools")


@runtime_checkable
class _ResultMessage(Protocol):
    """A result as a model reads it: a `bridge.ToolExecutionResultMessage`."""

    @property
    def content(self) -> Sequence[Content]:
        """The blocks."""
        ...

    @property
    def is_error(self) -> bool:
        """The tool failed."""
        ...


Remedy = str | ToolExecutionResult | _ResultMessage | ToolExecutionRequest | None
"""What a handler can answer: words for the model, None for none, a whole result or its message, or a corrected request.

A corrected request is tried.
"""

ErrorHandler = Callable[[Exception, ToolExecutionRequest, "InvocationContext", int], "Remedy | Awaitable[Remedy]"]
"""Gets the error, the request, the context and the attempt's number (from 1); may raise to stop the invocation."""

UnknownToolHandler = Callable[
    [UnknownToolError, ToolExecutionRequest, "InvocationContext"], "Remedy | Awaitable[Remedy]"
]
"""Gets the error, the request and the context (LangChain4j's HallucinatedToolNameStrategy); may raise to stop."""

BeforeTool = Callable[[ToolExecutionRequest, "InvocationContext"], "Awaitable[None] | None"]
"""Called before a tool runs; what it raises stops the invocation."""

AfterTool = Callable[[ToolExecution, "InvocationContext"], "Awaitable[None] | None"]
"""Called when there is a result; what it raises stops the invocation. A cancelled call has no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPolicy:
    """How whoever runs tools wants calls and their failures treated. The defaults suit a local program."""

    on_arguments_error: ErrorHandler | None = None
    """Instead of telling the model what is wrong with its arguments."""
    on_execution_error: ErrorHandler | None = None
    """Instead of telling the model what the tool raised."""
    on_unknown_tool: UnknownToolHandler | None = None
    """Instead of telling the model that there is no such tool, and what the nearest names are."""
    before: tuple[BeforeTool, ...] = ()
    after: tuple[AfterTool, ...] = ()
    timeout_seconds: float | None = None
    """How long one call may take, beside the tool's own limit and the context's deadline; the earliest counts."""
    max_output_chars: int | None = None
    """How many characters of text a model reads of a result, where the tool does not say."""
    max_attempts: int = 3
    """How often one request is tried at most where handlers answer with corrected requests."""
    propagate: bool = False
    """An exception of a tool that is not a ToolCallError stops the invocation instead of becoming a result."""
    reveal_errors: bool = True
    """Send the text of any exception to the model, which may run at a provider.

    Else only of those that an author raised for it (`ToolError`); the others are logged, and named generically.
    """


LOCAL = ExecutionPolicy()
"""The policy of a local program."""


async def execute(
    tools: ToolBox, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy = LOCAL
) -> ToolExecutionResult:
    """Run one request.

    Args:
        tools: Where the tool is looked up, by the request's name.
        request: What is asked.
        context: What surrounds the call.
        policy: How failures are treated.

    Returns:
        The tool's result; a failure is a result with ``is_error``, unless the policy says otherwise.

    Raises:
        InputRequired: The tool asked something that only a later round can answer.
        Exception: What a handler or callback raised; what the tool raised, where it is to propagate.
    """
    if policy.before or policy.after:
        return (await execute_timed(tools, request, context, policy)).result
    return (await _run(tools, request, context, policy))[0]


async def execute_timed(
    tools: ToolBox,
    request: ToolExecutionRequest,
    context: InvocationContext,
    policy: ExecutionPolicy = LOCAL,
    *,
    refusal: ArgumentsError | None = None,
) -> ToolExecution:
    """Run one request as `execute` does, and tell when, how long and with which error it ran.

    Args:
        tools: As for `execute`; likewise those that follow.
        request: What is asked.
        context: What surrounds the call.
        policy: How failures are treated.
        refusal: What is known to be wrong with the arguments before anybody has read them: the tool does not run.
    """
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
    for observer in policy.after:
        await _call(observer, execution, context)
    return execution


async def _run(
    tools: ToolBox,
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
                raise refusal  # noqa: TRY301 - it goes the way of all errors
            if isinstance(request.arguments, str):
                request = replace(request, arguments=parse_arguments(request.name, request.arguments))
            seconds = _seconds_left(tool, context, policy)
            if seconds is None:
                result = await tool.executor.execute(request, context)
            else:
                result = await _execute_within(seconds, tool, request, context)
        except BaseException as raised:  # noqa: BLE001 - what is no failure of the tool is raised again
            error = _failure(raised, request.name)
            remedy = await _settle(error, tool, request, context, policy, attempt)
            if isinstance(remedy, ToolExecutionResult):
                return _within_budget(remedy, tool, policy), error
            request, attempt = remedy, attempt + 1
        else:
            return _within_budget(result, tool, policy), None


def _seconds_left(tool: Tool, context: InvocationContext, policy: ExecutionPolicy) -> float | None:
    own, general, deadline = tool.policy.timeout_seconds, policy.timeout_seconds, context.deadline
    if own is None and general is None and deadline is None:
        return None
    left = None if deadline is None else max(0.0, deadline - anyio.current_time())
    return min(limit for limit in (own, general, left) if limit is not None)


async def _execute_within(
    seconds: float, tool: Tool, request: ToolExecutionRequest, context: InvocationContext
) -> ToolExecutionResult:
    if seconds > 0:  # else the tool would run up to its first checkpoint
        with anyio.move_on_after(seconds):
            return await tool.executor.execute(request, context)
    raise ToolTimeoutError(request.name, seconds)


def _failure(raised: BaseException, name: str) -> Exception:
    """What a tool's failure is, without the groups that task groups put around it.

    Raises:
        BaseException: It is none: the call was cancelled, asks something, or the process is to end.
    """
    while isinstance(raised, BaseExceptionGroup) and len(raised.exceptions) == 1:
        raised = raised.exceptions[0]
    if isinstance(raised, ArgumentsError) and raised.tool != name:
        return ArgumentsError(name, raised.problems)  # a caller knows the name that a wrapper gave
    if isinstance(raised, Exception):
        return raised
    if isinstance(raised, SystemExit) or (isinstance(raised, KeyboardInterrupt) and not _may_be_a_signal()):
        return ToolError("the tool tried to end the process")
    if isinstance(raised, asyncio.CancelledError) and not _is_cancelled():
        return ToolError("what the tool was waiting for was cancelled")
    raise raised


def _may_be_a_signal() -> bool:
    """A KeyboardInterrupt may come from Ctrl+C, rather than from a tool that raises it.

    Servers, and `asyncio.run`, handle the signal themselves; then no code is interrupted by it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio raises it in whatever runs
        return True
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return is_default and threading.current_thread() is threading.main_thread()


def _is_cancelled() -> bool:
    """Whether this task is being cancelled, rather than something that it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _settle(
    error: Exception,
    tool: Tool | None,
    request: ToolExecutionRequest,
    context: InvocationContext,
    policy: ExecutionPolicy,
    attempt: int,
) -> ToolExecutionResult | ToolExecutionRequest:
    """Turn a failure into what comes next: a result, or another request to try."""
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
        remedy = _described(error, request.name, policy)
    if remedy is None or isinstance(remedy, str):
        return ToolExecutionResult.error(remedy or "")
    if isinstance(remedy, ToolExecutionRequest) and attempt >= policy.max_attempts:
        last = _described(error, request.name, policy)
        return ToolExecutionResult.error(f"{request.name!r} failed {attempt} times; last: {last}")
    if isinstance(remedy, ToolExecutionResult | ToolExecutionRequest):
        return remedy
    if isinstance(remedy, _ResultMessage):
        return ToolExecutionResult(tuple(remedy.content), is_error=remedy.is_error)
    raise DefinitionError(
        f"a handler of errors of {request.name!r} answered {remedy!r}; it returns text, None for no text, a "
        "ToolExecutionResult, its message, or a corrected ToolExecutionRequest"
    )


def _described(error: Exception, name: str, policy: ExecutionPolicy) -> str:
    """What the model is told; what its author has to know is logged."""
    if not isinstance(error, ToolCallError) or isinstance(error, ResultError):
        _logger.error("the tool %r failed", name, exc_info=error)
    if isinstance(error, ToolCallError):
        return str(error)
    if policy.reveal_errors:
        return str(error) or type(error).__name__
    return f"the tool {name!r} failed; its server's log says why"


def _within_budget(result: ToolExecutionResult, tool: Tool | None, policy: ExecutionPolicy) -> ToolExecutionResult:
    """Let the model read head and tail of a text over the budget, and the result keep the whole."""
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
