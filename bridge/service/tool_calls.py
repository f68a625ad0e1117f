"""Execution of the tool calls of one response, and compensation.

Calls run one after another by default, or concurrently up to a limit. With streaming, concurrent calls start as soon as
they are complete. Results keep the order of the calls. A failing tool does not affect the others, and an exception that
stops the invocation is raised after they finish; only cancellation stops them.

Compensation undoes the successful calls of an invocation that fails, in reverse order:

    tools = [compensated(book_flight, "cancel_flight"), cancel_flight, charge_card]
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio import get_cancelled_exc_class
from anyio.lowlevel import current_token

from bridge.errors import ArgumentProblem, ArgumentsError, DefinitionError
from bridge.portal import call_soon, run_in_portal, start_detached
from bridge.service.approval import Decision, Verdict, approve_call, with_parsed_arguments
from bridge.service.events import BeforeToolExecution, ProgressEvents, ToolExecuted
from bridge.service.observation import observed_execution
from bridge.telemetry import switch
from bridge.tools.execution import LOCAL, execute, execute_timed
from bridge.tools.executors import late_results
from bridge.tools.function import tools_from
from bridge.tools.threads import own_executor
from bridge.tools.tool import ReturnBehavior, Tool, ToolExecution, ToolExecutionRequest, ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from concurrent.futures import Executor

    from bridge.service.approval import ApprovalPolicy
    from bridge.service.events import Emit
    from bridge.telemetry.observer import Observer
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.executors import LateResult
    from bridge.tools.toolbox import ToolBox

_T = TypeVar("_T")

Start = Callable[[int, "ToolExecutionRequest"], None]
"""Starts a call by its index in the response."""


_logger = logging.getLogger("bridge.service")

UNDO_SECONDS = 60.0
"""Maximum duration of all compensation in an invocation, in seconds; cancellation waits for it."""
Undo = Callable[[ToolExecution, "InvocationContext"], "Awaitable[None] | None"]
"""Undoes one execution of a tool."""


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """The calls of one response, with results and decisions by index."""

    tools: ToolBox
    context: InvocationContext
    policy: ExecutionPolicy
    compensations: Compensations
    approval: ApprovalPolicy | None = None
    emit: Emit | None = None
    executor: Executor | None = None
    """Runs functions that are not asynchronous; None for the shared worker threads."""
    executed: dict[int, ToolExecution] = field(default_factory=dict)
    decisions: dict[int, Decision] = field(default_factory=dict)
    cut_off: int | None = None
    """Index of a call that may be truncated and therefore does not run."""

    async def run(self, index: int, request: ToolExecutionRequest) -> None:
        """Run one call, or refuse it if that was decided."""
        request = with_parsed_arguments(request) or request
        decision = self.decisions.get(index)
        if decision is not None and decision.verdict is Verdict.NO:
            execution = _refused(request, decision.words)
        else:
            observer = late_results.set(self.compensations.observer(self.tools.find(request.name)))
            executor = own_executor.set(self.executor)
            try:
                if decision is None:
                    execution = await self._execute(request, _cut_off(request) if index == self.cut_off else None)
                else:
                    with approve_call(request):
                        execution = await self._execute(request)
            finally:
                own_executor.reset(executor)
                late_results.reset(observer)
        self.executed[index] = execution
        if self.emit is not None:
            await self.emit(ToolExecuted(execution))

    def _execute(
        self, request: ToolExecutionRequest, refusal: ArgumentsError | None = None
    ) -> Awaitable[ToolExecution]:
        observer = switch.observer()
        if self.emit is None and observer is None:
            return execute_timed(self.tools, request, self.context, self.policy, refusal=refusal)
        return self._execute_with_events(request, refusal, observer)

    async def _execute_with_events(
        self, request: ToolExecutionRequest, refusal: ArgumentsError | None, observer: Observer | None
    ) -> ToolExecution:
        tool, context, events = self.tools.find(request.name), self.context, None
        if self.emit is not None:
            await self.emit(BeforeToolExecution(request))
            if tool is not None and tool.interactive:
                events = ProgressEvents(request, self.emit)
                context = context.fork(on_progress=events.report)
        try:
            execution = execute_timed(self.tools, request, context, self.policy, refusal=refusal)
            if observer is None:
                return await execution
            return await observed_execution(observer, execution, request, tool, context)
        finally:
            if events is not None:
                events.close()

    def may_start(self, request: ToolExecutionRequest) -> bool:
        """Return True if the call needs no approval."""
        tool = self.tools.find(request.name)
        return self.approval is None or tool is None or not self.approval.applies(tool)

    async def decide(self, requests: Sequence[ToolExecutionRequest]) -> bool:
        """Ask for missing approvals in the order of the calls; return True if all calls are decided."""
        if self.approval is None:
            return True
        for index, request in enumerate(requests):
            earlier = self.decisions.get(index)
            tool = self.tools.find(request.name)
            if index in self.executed or tool is None or (earlier and earlier.verdict is not Verdict.LATER):
                continue
            if index == self.cut_off:
                continue
            decision = await self.approval.decide(request, tool, self.context)
            if decision is not None:
                self.decisions[index] = decision
        return all(decision.verdict is not Verdict.LATER for decision in self.decisions.values())

    def missing(self, requests: Sequence[ToolExecutionRequest]) -> Mapping[int, ToolExecutionRequest]:
        """Return the calls without a result."""
        return {index: request for index, request in enumerate(requests) if index not in self.executed}


async def run_concurrently(calls: ToolCalls, limit: float, body: Callable[[Start], Awaitable[_T]]) -> _T:
    """Run calls concurrently with a body that starts them.

    Args:
        calls: The calls.
        limit: Maximum concurrent calls.
        body: Receives a function that starts a call; starting a call again has no effect.

    Returns:
        The body's result, after all started calls have finished.

    Raises:
        BaseException: Raised by the body, after the started calls were cancelled; or raised by a call (the first one by
            index), after the others have finished.
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
        except BaseException as error:  # noqa: BLE001 - raised after the others have finished
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
        except BaseException as error:  # noqa: BLE001 - raised outside the task group, which would wrap it
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
        "your reply was cut off, by its token limit or a filter, and this call may be incomplete: it was not run; "
        "call the tool again, with less text before it and in it"
    )
    return ArgumentsError(request.name, [ArgumentProblem("", expected)])


def returns_immediately(tools: ToolBox, executions: Sequence[ToolExecution]) -> bool:
    """Return True if the results are the answer, according to LangChain4j's rules for return behaviours.

    No tool failed, and either the last one is IMMEDIATE_IF_LAST or all are IMMEDIATE or IMMEDIATE_IF_LAST.
    """
    if any(execution.result.is_error for execution in executions):
        return False
    behaviors = [_behavior(tools.find(execution.request.name)) for execution in executions]
    return behaviors[-1] is ReturnBehavior.IMMEDIATE_IF_LAST or ReturnBehavior.TO_LLM not in behaviors


def _behavior(tool: Tool | None) -> ReturnBehavior:
    return ReturnBehavior.TO_LLM if tool is None else tool.return_behavior


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
        DefinitionError: The source is not one tool.
    """
    tools = tools_from(source)
    if len(tools) != 1:
        raise DefinitionError(f"expected one tool, but {source!r} has {len(tools)}; use compensated on one of them")
    values = {attribute.name: getattr(tools[0], attribute.name) for attribute in fields(Tool)}
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
    """Successful calls of one invocation that can be undone.

    A function in a worker thread may succeed after its call was given up because of a time limit. It is undone with the
    others, or at once if the invocation has failed already.
    """

    __slots__ = ("_context", "_done", "_lock", "_undo_late")

    def __init__(self, context: InvocationContext) -> None:
        self._context = context
        self._done: list[tuple[Undo | str, ToolExecution]] = []
        self._lock = Lock()
        self._undo_late: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Set once the invocation has failed and its calls were undone."""

    def note(self, tool: Tool | None, execution: ToolExecution) -> None:
        """Record an execution."""
        if isinstance(tool, CompensatedTool) and not execution.result.is_error:
            self._done.append((tool.undo, execution))

    def observer(self, tool: Tool | None) -> LateResult | None:
        """Return a function that records results which come after their call was given up; None if not needed."""
        if not isinstance(tool, CompensatedTool):
            return None
        started_at, start, token = datetime.now(UTC), perf_counter(), current_token()

        def note_late(request: ToolExecutionRequest, result: ToolExecutionResult) -> None:
            execution = ToolExecution(
                request=request, result=result, started_at=started_at, duration_seconds=perf_counter() - start
            )
            with self._lock:
                self.note(tool, execution)
                undo = self._undo_late
            if undo is None:
                return
            try:
                call_soon(token, lambda: start_detached(undo, "undo of a late tool call"))
            except RuntimeError:  # the event loop is closed
                run_in_portal(undo)

        return note_late

    async def undo(self, tools: ToolBox, cause: BaseException) -> None:
        """Undo all calls, last first, and late ones from now on.

        Failures are logged and added as notes to the cause.
        """
        await self._undo_all(tools, cause)
        with self._lock:
            self._undo_late = partial(self._undo_all, tools, cause)
            is_late = bool(self._done)
        if is_late:
            await self._undo_late()

    async def _undo_all(self, tools: ToolBox, cause: BaseException) -> None:
        if not self._done:
            return
        with anyio.move_on_after(UNDO_SECONDS, shield=True) as scope:
            while self._done:
                undo, execution = self._done.pop()
                try:
                    await self._undo(undo, execution, tools)
                except Exception as error:  # noqa: BLE001 - continue with the other calls
                    _report_failure(execution, f"{error!s} ({type(error).__name__})", cause, error)
        if scope.cancelled_caught:
            _report_failure(execution, f"not finished within {UNDO_SECONDS:g} seconds", cause, None)

    async def _undo(self, undo: Undo | str, execution: ToolExecution, tools: ToolBox) -> None:
        if not isinstance(undo, str):
            outcome = undo(execution, self._context)
            if inspect.isawaitable(outcome):
                await outcome
            return
        arguments = execution.request.arguments
        values = {**({} if isinstance(arguments, str) else arguments), **_structured(execution)}
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


def _structured(execution: ToolExecution) -> Mapping[str, Any]:
    content = execution.result.structured_content
    return content if isinstance(content, Mapping) else {}


def _report_failure(execution: ToolExecution, reason: str, cause: BaseException, error: Exception | None) -> None:
    message = f"the call of the tool {execution.request.name!r} could not be undone: {reason}"
    cause.add_note(message)
    _logger.error("%s", message, exc_info=error)
