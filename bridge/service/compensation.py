"""Compensation: the successful calls of an invocation that fails are undone, in reverse order.

    tools = [compensated(book_flight, "cancel_flight"), cancel_flight, charge_card]

With ``compensate_on_tool_errors`` they are undone as soon as a tool fails, and the model goes on. A call that succeeds
after its time limit is undone at once in any case: the model has received it as a failure.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import current_token

from bridge.errors import DefinitionError, ToolError
from bridge.portal import call_soon, run_in_portal, start_detached
from bridge.service.approval import approve_call
from bridge.service.messages import ToolExecutionResultMessage
from bridge.tools.checks import require_callable
from bridge.tools.content import Text
from bridge.tools.execution import LOCAL, execute
from bridge.tools.function import one_tool
from bridge.tools.tool import Tool, ToolExecution, ToolExecutionRequest, ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.tools.context import InvocationContext
    from bridge.tools.executors import LateResult
    from bridge.tools.toolbox import ToolBox


_logger = logging.getLogger("bridge.service")

UNDO_SECONDS = 60.0
"""Maximum duration of all compensation in an invocation, in seconds; cancellation waits for it."""

UNDONE = "undone"
"""Attribute of the last result of a response after which the calls were undone: their tools, last first."""

Undo = Callable[[ToolExecution, "InvocationContext"], "Awaitable[None] | None"]
"""Undoes one execution of a tool."""

_Done = tuple[Undo | str, "ToolExecution"]
"""A successful call, and what undoes it."""


@dataclass(frozen=True, slots=True)
class CompensatedTool(Tool):
    """A tool whose successful calls can be undone; see `compensated`."""

    undo: Undo | str = field(kw_only=True)
    """Function that undoes a successful call, or the name of a tool."""


def compensated(source: object, undo: Undo | str) -> CompensatedTool:
    """Undo a tool's successful calls if the invocation fails later.

    Args:
        source: A Tool or a function.
        undo: A function of the execution and the context, or the name of another tool of the service, which is then
            hidden from the model. That tool is called with the arguments of the call and the fields of its structured
            result, by name; unknown ones are dropped if it does not accept them.

    Raises:
        DefinitionError: The source is not one tool, or ``undo`` is neither a name nor a function of two values.
    """
    tool = one_tool(source)
    if not isinstance(undo, str):
        require_callable(undo, 2, "undo that is not the name of a tool", "the execution and the context")
    values = {attribute.name: getattr(tool, attribute.name) for attribute in fields(Tool)}
    return CompensatedTool(values.pop("specification"), values.pop("executor"), undo=undo, **values)


def undoing_names(tools: Collection[Tool], *, may_miss: bool) -> frozenset[str]:
    """Return the names of tools that undo others; they are hidden from the model.

    Args:
        tools: All tools of a service.
        may_miss: Accept missing tools, since a provider may add them later.

    Raises:
        DefinitionError: A tool that is needed to undo another one is missing.
    """
    tool_by_undo_name = {
        tool.undo: tool.name for tool in tools if isinstance(tool, CompensatedTool) and isinstance(tool.undo, str)
    }
    missing = [] if may_miss else sorted(tool_by_undo_name.keys() - {tool.name for tool in tools})
    if missing:
        raise DefinitionError(
            f"the tool {tool_by_undo_name[missing[0]]!r} is undone by {missing[0]!r}, which the service does not have; "
            "add that tool, or give a function"
        )
    return frozenset(tool_by_undo_name)


class Compensations:
    """Successful calls of one invocation that can be undone."""

    __slots__ = ("_context", "_done")

    def __init__(self, context: InvocationContext) -> None:
        self._context = context
        self._done: list[_Done] = []

    def note(self, tool: Tool | None, execution: ToolExecution) -> None:
        """Record an execution."""
        if isinstance(tool, CompensatedTool) and not execution.result.is_error:
            self._done.append((tool.undo, execution))

    def late_observer(self, tool: Tool | None, tools: ToolBox) -> LateResult | None:
        """Return a function that undoes a call which succeeds after its caller left; None if not needed.

        A function in a worker thread outlives its time limit. The model has received the call as a failure.

        Args:
            tool: The tool that runs.
            tools: The tools, those that undo others included.
        """
        if not isinstance(tool, CompensatedTool):
            return None
        undo, started_at, start, token = tool.undo, datetime.now(UTC), perf_counter(), current_token()

        def undo_late(request: ToolExecutionRequest, result: ToolExecutionResult) -> None:
            if result.is_error:
                return
            execution = ToolExecution(
                request=request, result=result, started_at=started_at, duration_seconds=perf_counter() - start
            )
            run = partial(self._undo_all, [(undo, execution)], tools)
            try:
                call_soon(token, lambda: start_detached(run, "undo of a late tool call"))
            except RuntimeError:  # the event loop is closed
                run_in_portal(run)

        return undo_late

    async def undo_after_errors(
        self, tools: ToolBox, messages: Sequence[ToolExecutionResultMessage]
    ) -> Sequence[ToolExecutionResultMessage]:
        """Undo all calls while the invocation goes on, and add that to the last of the results.

        Args:
            tools: The tools, those that undo others included.
            messages: The results of the response in which a tool failed.
        """
        if not self._done:
            return messages
        names = [execution.request.name for _, execution in reversed(self._done)]
        failure = ToolError(f"Since a tool failed, the earlier successful calls were undone: {', '.join(names)}.")
        await self._undo_all(self._done, tools, failure)
        text = "\n".join([str(failure), *getattr(failure, "__notes__", ())])
        *others, last = messages
        attributes = {**last.attributes, UNDONE: names}
        return [*others, replace(last, content=(*last.content, Text(text)), attributes=attributes)]

    async def undo(self, tools: ToolBox, cause: BaseException) -> None:
        """Undo all calls, last first. Failures are logged and added as notes to the cause."""
        if self._done:
            await self._undo_all(self._done, tools, cause)

    async def _undo_all(self, done: list[_Done], tools: ToolBox, cause: BaseException | None = None) -> None:
        with anyio.move_on_after(UNDO_SECONDS, shield=True) as scope:
            while done:
                undo, execution = done.pop()
                try:
                    await self._undo(undo, execution, tools)
                except Exception as error:  # noqa: BLE001 - continue with the other calls
                    _report_failure(execution, f"{error!s} ({type(error).__name__})", cause, error)
        if scope.cancelled_caught:
            for each in (execution, *(execution for _, execution in reversed(done))):
                _report_failure(each, f"not finished within {UNDO_SECONDS:g} seconds", cause, None)
            done.clear()

    async def _undo(self, undo: Undo | str, execution: ToolExecution, tools: ToolBox) -> None:
        if not isinstance(undo, str):
            outcome = undo(execution, self._context)
            if inspect.isawaitable(outcome):
                await outcome
            return
        sources = (execution.request.arguments, execution.result.structured_content)
        values = {name: value for source in sources if isinstance(source, Mapping) for name, value in source.items()}
        parameters = tools.get(undo).specification.parameters
        if parameters.get("additionalProperties") is False:
            values = {name: value for name, value in values.items() if name in parameters.get("properties", {})}
        request = ToolExecutionRequest(undo, values)
        context = self._context.fork()
        context.deadline = None  # it may have passed; the undo has a limit of its own
        with approve_call(request):  # covered by the approval of the original call
            result = await execute(tools, request, context, LOCAL)
        if result.is_error:
            raise RuntimeError(result.text)


def _report_failure(
    execution: ToolExecution, reason: str, cause: BaseException | None, error: Exception | None
) -> None:
    message = f"the call of the tool {execution.request.name!r} could not be undone: {reason}"
    if cause is not None:
        cause.add_note(message)
    _logger.error("%s", message, exc_info=error)


def not_undone(executions: Sequence[ToolExecution], turn: Sequence[object]) -> Sequence[ToolExecution]:
    """Return the executions of a suspended turn, one for each of its results, that were not undone yet."""
    results = [message for message in turn if isinstance(message, ToolExecutionResultMessage)]
    undone = max((index + 1 for index, message in enumerate(results) if UNDONE in message.attributes), default=0)
    return executions[undone:]
