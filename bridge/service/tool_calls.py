"""Execution of the tool calls of one response.

Calls run one after another by default, or concurrently up to a limit. With streaming, concurrent calls start as soon as
they are complete. Results keep the order of the calls. A failing tool does not affect the others, and an exception that
stops the invocation is raised after they finish; only cancellation stops them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import get_cancelled_exc_class

from bridge.errors import ArgumentProblem, ArgumentsError, UnknownToolError
from bridge.service.approval import Decision, Verdict, approve_call, with_parsed_arguments
from bridge.service.events import BeforeToolExecution, ProgressEvents, ToolExecuted
from bridge.service.observation import observed_execution
from bridge.telemetry import current
from bridge.tools.execution import execute_timed
from bridge.tools.executors import late_results
from bridge.tools.threads import own_executor
from bridge.tools.tool import ReturnBehavior, Tool, ToolExecution, ToolExecutionRequest, ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from bridge.service.approval import ApprovalPolicy
    from bridge.service.compensation import Compensations
    from bridge.service.events import Emit
    from bridge.service.toolset import Offer
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.toolbox import ToolBox

_T = TypeVar("_T")

Start = Callable[[int, "ToolExecutionRequest"], None]
"""Starts a call by its index in the response."""


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """The calls of one response, with results and decisions by index."""

    offer: Offer
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
    tools: ToolBox = field(init=False)
    _uses_own_threads: bool = field(init=False)
    """True if functions in threads have an executor or an observer that the context variables do not contain."""
    _runs_directly: bool = field(init=False)
    """True if a call is nothing but the execution of a tool."""

    def __post_init__(self) -> None:
        self.tools = self.offer.box
        self._uses_own_threads = (
            self.offer.has_undo or self.executor is not own_executor.get() or late_results.get() is not None
        )
        self._runs_directly = (
            not self._uses_own_threads
            and self.approval is None
            and self.emit is None
            and not self.decisions
            and current.observer() is None
        )

    async def run(self, index: int, request: ToolExecutionRequest) -> None:
        """Run one call, or refuse it if that was decided."""
        if self._runs_directly and index != self.cut_off:
            self.executed[index] = await execute_timed(self.tools, request, self.context, self.policy)
            return
        request = with_parsed_arguments(request) or request
        decision = self.decisions.get(index)
        if decision is None:
            execution = await self._execute(request, _cut_off(request) if index == self.cut_off else None)
        elif decision.verdict is Verdict.NO:
            execution = _refused(request, decision.words)
        else:
            with approve_call(request):
                execution = await self._execute(request)
        self.executed[index] = execution
        if self.emit is not None:
            await self.emit(ToolExecuted(execution))

    async def _execute(self, request: ToolExecutionRequest, refusal: ArgumentsError | None = None) -> ToolExecution:
        tool = self.tools.find(request.name)
        if not self._uses_own_threads:
            return await self._execute_with_events(request, tool, refusal)
        late = late_results.set(self.compensations.late_observer(tool, self.offer.undoing))
        executor = own_executor.set(self.executor)
        try:
            return await self._execute_with_events(request, tool, refusal)
        finally:
            own_executor.reset(executor)
            late_results.reset(late)

    async def _execute_with_events(
        self, request: ToolExecutionRequest, tool: Tool | None, refusal: ArgumentsError | None
    ) -> ToolExecution:
        context, events, observer = self.context, None, current.observer()
        if self.emit is not None:
            await self.emit(BeforeToolExecution(request))
            if tool is not None and tool.interactive:
                events = ProgressEvents(request, self.emit)
                context = context.fork(on_progress=events.report)
        record = partial(self.compensations.note, tool) if self.offer.has_undo else None
        try:
            execution = execute_timed(self.tools, request, context, self.policy, refusal=refusal, record=record)
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

    @property
    def has_failed(self) -> bool:
        """True if a tool ran and failed."""
        return any(
            execution.result.is_error and not isinstance(execution.error, ArgumentsError | UnknownToolError)
            for index, execution in self.executed.items()
            if (decision := self.decisions.get(index)) is None or decision.verdict is not Verdict.NO
        )

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
    found = [tools.find(execution.request.name) for execution in executions]
    behaviors = [ReturnBehavior.TO_LLM if tool is None else tool.return_behavior for tool in found]
    return behaviors[-1] is ReturnBehavior.IMMEDIATE_IF_LAST or ReturnBehavior.TO_LLM not in behaviors
