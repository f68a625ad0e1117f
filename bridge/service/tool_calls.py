"""Tool calls of one response; compensation.

Tool calls: the tools that one response of the model wants run.

One after another by default; together, up to a limit, where the service wants that, and then in a streamed response
each as soon as its call is whole. Results come in the order of the calls. A tool that fails leaves the others alone,
and even an exception that stops the invocation waits for them; only who cancels the invocation cancels them all.

Compensation: what undoes a tool's success, where the invocation that it was for fails after all.

    tools = [compensated(book_flight, "cancel_flight"), cancel_flight, charge_card]

Where the invocation ends without an answer, what succeeded in it is undone in reverse, as far as it says how.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio import get_cancelled_exc_class

from bridge.errors import ArgumentProblem, ArgumentsError, DefinitionError
from bridge.service.approval import Decision, Verdict, approve_call
from bridge.service.events import BeforeToolExecution, ToolExecuted
from bridge.tools.arguments import parse_arguments
from bridge.tools.execution import LOCAL, execute, execute_timed
from bridge.tools.function import tools_from
from bridge.tools.tool import ReturnBehavior, Tool, ToolExecution, ToolExecutionRequest, ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.service.approval import ApprovalPolicy
    from bridge.service.events import Emit
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.toolbox import ToolBox

_T = TypeVar("_T")

Start = Callable[[int, "ToolExecutionRequest"], None]
"""Starts a call, by its place in the response."""

_logger = logging.getLogger("bridge.service")

UNDO_SECONDS = 60.0
"""How long all the undoing of an invocation may take; a cancelled one waits for it."""

Undo = Callable[[ToolExecution, "InvocationContext"], "Awaitable[None] | None"]
"""Undoes one execution of a tool."""


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """The calls of one response, and what has become of them by their place in it."""

    tools: ToolBox
    context: InvocationContext
    policy: ExecutionPolicy
    approval: ApprovalPolicy | None = None
    emit: Emit | None = None
    executed: dict[int, ToolExecution] = field(default_factory=dict)
    decisions: dict[int, Decision] = field(default_factory=dict)
    cut_off: int | None = None
    """The call that the end of the reply may have cut off, and that does not run therefore."""

    async def run(self, index: int, request: ToolExecutionRequest) -> None:
        """Run one call, or refuse it where that was decided."""
        decision = self.decisions.get(index)
        if decision is not None and decision.verdict is Verdict.NO:
            execution = _refused(request, decision.words)
        else:
            if self.emit is not None:
                await self.emit(BeforeToolExecution(request))
            if decision is None:
                refusal = _cut_off(request) if index == self.cut_off else None
                execution = await execute_timed(self.tools, request, self.context, self.policy, refusal=refusal)
            else:
                with approve_call(request):
                    execution = await execute_timed(self.tools, request, self.context, self.policy)
        self.executed[index] = execution
        if self.emit is not None:
            await self.emit(ToolExecuted(execution))

    def may_start(self, request: ToolExecutionRequest) -> bool:
        """Whether a call may run without being approved."""
        tool = self.tools.find(request.name)
        return self.approval is None or tool is None or not self.approval.applies(tool)

    async def decide(self, requests: Sequence[ToolExecutionRequest]) -> bool:
        """Ask for approval of all that need it, in the order of the calls; whether everything is decided."""
        if self.approval is None:
            return True
        for index, request in enumerate(requests):
            known = self.decisions.get(index)
            tool = self.tools.find(request.name)
            if index in self.executed or tool is None or (known and known.verdict is not Verdict.LATER):
                continue
            if index == self.cut_off:
                continue
            decision = await self.approval.decide(request, tool, self.context)
            if decision is not None:
                self.decisions[index] = decision
        return all(each.verdict is not Verdict.LATER for each in self.decisions.values())

    def missing(self, requests: Sequence[ToolExecutionRequest]) -> Mapping[int, ToolExecutionRequest]:
        """The calls that have not run yet."""
        return {index: request for index, request in enumerate(requests) if index not in self.executed}


async def run_concurrently(calls: ToolCalls, limit: float, body: Callable[[Start], Awaitable[_T]]) -> _T:
    """Run calls at the same time, while something else goes on.

    Args:
        calls: The calls.
        limit: How many run at once.
        body: What goes on; it gets what starts a call, once.

    Returns:
        What the body returned, when all that was started is done.

    Raises:
        BaseException: What the body raised, in which case all that was started is cancelled; else what the first of
            the calls raised, when the others are done.
    """
    limiter = anyio.CapacityLimiter(limit)
    errors: dict[int, BaseException] = {}
    failure: BaseException | None = None
    started: set[int] = set()

    async def run(index: int, request: ToolExecutionRequest) -> None:
        try:
            async with limiter:
                await calls.run(index, request)
        except get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised when the others are done
            errors[index] = error

    async with anyio.create_task_group() as group:

        def start(index: int, request: ToolExecutionRequest) -> None:
            if index not in started:
                started.add(index)
                group.start_soon(run, index, request)

        try:
            value = await body(start)
        except get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised outside the group, which would wrap it
            failure = error
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if errors:
        raise errors[min(errors)]
    return value


def _refused(request: ToolExecutionRequest, words: str) -> ToolExecution:
    result = ToolExecutionResult.error(words)
    return ToolExecution(request=request, result=result, started_at=datetime.now(UTC), duration_seconds=0.0)


def _cut_off(request: ToolExecutionRequest) -> ArgumentsError:
    expected = (
        "your reply broke off, at its limit of tokens or by a filter, and this call may be incomplete: it was not run; "
        "call the tool again, with less text before it and in it"
    )
    return ArgumentsError(request.name, [ArgumentProblem("", expected)])


def returns_immediately(tools: ToolBox, executions: Sequence[ToolExecution]) -> bool:
    """Whether the results are the answer: LangChain4j's truth table of return behaviours.

    That is so where no tool failed, and the last is IMMEDIATE_IF_LAST or all are IMMEDIATE or IMMEDIATE_IF_LAST.
    """
    if any(execution.result.is_error for execution in executions):
        return False
    behaviors = [_behavior(tools.find(execution.request.name)) for execution in executions]
    return behaviors[-1] is ReturnBehavior.IMMEDIATE_IF_LAST or ReturnBehavior.TO_LLM not in behaviors


def _behavior(tool: Tool | None) -> ReturnBehavior:
    return ReturnBehavior.TO_LLM if tool is None else tool.return_behavior


@dataclass(frozen=True, slots=True)
class CompensatedTool(Tool):
    """A tool whose successes can be undone; see `compensated`."""

    undo: Undo | str = field(kw_only=True)
    """What undoes a success, or the name of the tool that does."""


def compensated(source: object, undo: Undo | str) -> CompensatedTool:
    """A tool whose successes are undone where the invocation fails after all.

    Args:
        source: The tool: a Tool, or a function.
        undo: A function that gets the execution and the context; or the name of another tool of the service, which the
            model does not see. That one is called with the arguments of the call and the fields of its structured
            result, by name; those that are not among its parameters are left out, unless it takes any.

    Raises:
        DefinitionError: It is not one tool.
    """
    tools = tools_from(source)
    if len(tools) != 1:
        raise DefinitionError(f"compensated takes one tool, and {source!r} holds {len(tools)}; name one of them")
    values = {each.name: getattr(tools[0], each.name) for each in fields(Tool)}
    return CompensatedTool(values.pop("specification"), values.pop("executor"), undo=undo, **values)


def undoing_names(tools: Collection[Tool], *, may_miss: bool) -> frozenset[str]:
    """The names of the tools that undo others: a model neither sees nor calls them.

    Args:
        tools: All tools of a service.
        may_miss: A tool that undoes another may come later.

    Raises:
        DefinitionError: A tool is to be undone by one that is not there.
    """
    undone = {
        tool.undo: tool.name for tool in tools if isinstance(tool, CompensatedTool) and isinstance(tool.undo, str)
    }
    missing = [] if may_miss else sorted(undone.keys() - {tool.name for tool in tools})
    if missing:
        raise DefinitionError(
            f"the tool {undone[missing[0]]!r} is to be undone by {missing[0]!r}, which is no tool of the service; "
            "give that tool too, or a function"
        )
    return frozenset(undone)


class Compensations:
    """What has succeeded in one invocation and can be undone."""

    __slots__ = ("_context", "_done")

    def __init__(self, context: InvocationContext) -> None:
        self._context = context
        self._done: list[tuple[Undo | str, ToolExecution]] = []

    def note(self, tool: Tool | None, execution: ToolExecution) -> None:
        """A tool has run."""
        if isinstance(tool, CompensatedTool) and not execution.result.is_error:
            self._done.append((tool.undo, execution))

    async def undo(self, tools: ToolBox, cause: BaseException) -> None:
        """Undo all of it, last first; what cannot be undone is logged, and noted on the cause."""
        if not self._done:
            return
        with anyio.move_on_after(UNDO_SECONDS, shield=True) as scope:
            while self._done:
                how, execution = self._done.pop()
                try:
                    await self._undo(how, execution, tools)
                except Exception as error:  # noqa: BLE001 - the others are undone nevertheless
                    _note(execution, f"{error!s} ({type(error).__name__})", cause, error)
        if scope.cancelled_caught:
            _note(execution, f"no end within {UNDO_SECONDS:g} seconds", cause, None)

    async def _undo(self, how: Undo | str, execution: ToolExecution, tools: ToolBox) -> None:
        if not isinstance(how, str):
            answer = how(execution, self._context)
            if inspect.isawaitable(answer):
                await answer
            return
        values = {**_arguments(execution), **_structured(execution)}
        parameters = tools.get(how).specification.parameters
        if parameters.get("additionalProperties") is False:
            values = {name: value for name, value in values.items() if name in parameters.get("properties", {})}
        request = ToolExecutionRequest(how, values)
        with approve_call(request):  # whoever approved the call approved this
            result = await execute(tools, request, self._context, LOCAL)
        if result.is_error:
            raise RuntimeError(result.text)


def _arguments(execution: ToolExecution) -> Mapping[str, Any]:
    arguments = execution.request.arguments
    return parse_arguments(execution.request.name, arguments) if isinstance(arguments, str) else arguments


def _structured(execution: ToolExecution) -> Mapping[str, Any]:
    content = execution.result.structured_content
    return content if isinstance(content, Mapping) else {}


def _note(execution: ToolExecution, why: str, cause: BaseException, error: Exception | None) -> None:
    said = f"the success of the tool {execution.request.name!r} could not be undone: {why}"
    cause.add_note(said)
    _logger.error("%s", said, exc_info=error)
