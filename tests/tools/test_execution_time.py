"""Calls that end early: time limits and cancellation."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import pytest

from bridge.errors import ToolTimeoutError
from bridge.tools.context import InvocationContext
from bridge.tools.execution import ExecutionPolicy, execute, execute_timed
from bridge.tools.function import tool
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PATIENCE_SECONDS = 60
SOON_SECONDS = 0.2


class Limit:
    """One way to limit the time of a call."""

    def __init__(self, kind: str) -> None:
        self.tool_seconds = SOON_SECONDS if kind == "tool" else PATIENCE_SECONDS
        self.policy = ExecutionPolicy(timeout_seconds=SOON_SECONDS if kind == "policy" else PATIENCE_SECONDS)
        self.deadline_seconds = SOON_SECONDS if kind == "deadline" else PATIENCE_SECONDS

    async def execute(self, function: Callable[..., Any]) -> ToolExecutionResult:
        context = InvocationContext(deadline=anyio.current_time() + self.deadline_seconds)
        with anyio.fail_after(PATIENCE_SECONDS):
            return await execute(ToolBox(function), ToolExecutionRequest("wait"), context, self.policy)


@pytest.fixture(params=["tool", "policy", "deadline"])
def limit(request: pytest.FixtureRequest) -> Limit:
    return Limit(request.param)


def says_that_time_ran_out(result: ToolExecutionResult) -> bool:
    return result.is_error and re.fullmatch(r"'wait' did not finish within 0\.\d+ seconds", result.text) is not None


async def test_a_coroutine_that_runs_out_of_time_is_cancelled(limit: Limit) -> None:
    ended: list[str] = []

    @tool(timeout_seconds=limit.tool_seconds)
    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    assert says_that_time_ran_out(await limit.execute(wait))
    assert ended == ["cancelled"]


async def test_a_function_in_a_thread_that_runs_out_of_time_is_abandoned_and_sees_it(limit: Limit) -> None:
    go_on, ended = threading.Event(), threading.Event()
    seen: list[bool] = []

    @tool(timeout_seconds=limit.tool_seconds)
    def wait(context: InvocationContext) -> None:
        seen.append(context.cancelled)
        go_on.wait(PATIENCE_SECONDS)
        seen.append(context.cancelled)
        ended.set()

    assert says_that_time_ran_out(await limit.execute(wait))
    assert not ended.is_set()
    go_on.set()
    assert await anyio.to_thread.run_sync(ended.wait, PATIENCE_SECONDS)
    assert seen == [False, True]


async def test_a_call_after_its_deadline_is_not_begun() -> None:
    calls: list[str] = []

    @tool
    async def wait() -> None:
        calls.append("begun")

    context = InvocationContext(deadline=anyio.current_time() - 1)
    execution = await execute_timed(ToolBox(wait), ToolExecutionRequest("wait"), context)
    assert isinstance(execution.error, ToolTimeoutError)
    assert execution.result == ToolExecutionResult.error("'wait' did not finish within 0 seconds")
    assert calls == []


async def test_a_call_that_ends_in_time_is_not_touched() -> None:
    @tool(timeout_seconds=PATIENCE_SECONDS)
    async def wait() -> str:
        await anyio.lowlevel.checkpoint()
        return "done"

    result = await execute(ToolBox(wait), ToolExecutionRequest("wait"), InvocationContext())
    assert result == ToolExecutionResult.of_text("done")


async def test_a_timeout_error_of_the_tool_itself_is_the_tools_failure() -> None:
    @tool(timeout_seconds=PATIENCE_SECONDS)
    async def wait() -> None:
        raise TimeoutError("the printer does not answer")

    result = await execute(ToolBox(wait), ToolExecutionRequest("wait"), InvocationContext())
    assert result == ToolExecutionResult.error("the printer does not answer")


async def test_a_handler_hears_that_time_ran_out() -> None:
    errors: list[Exception] = []

    def note(error: Exception, *_: Any) -> str:
        errors.append(error)
        return "too slow"

    @tool(timeout_seconds=SOON_SECONDS)
    async def wait() -> None:
        await anyio.sleep_forever()

    policy = ExecutionPolicy(on_execution_error=note)
    result = await execute(ToolBox(wait), ToolExecutionRequest("wait"), InvocationContext(), policy)
    assert result == ToolExecutionResult.error("too slow")
    assert [type(error) for error in errors] == [ToolTimeoutError]


@pytest.mark.parametrize("timeout_seconds", [None, PATIENCE_SECONDS])
async def test_cancellation_is_not_swallowed(timeout_seconds: float | None) -> None:
    begun, after, ended = anyio.Event(), [], []

    @tool(timeout_seconds=timeout_seconds)
    async def wait() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    def eat(*_: Any) -> str:
        after.append("handled")
        return "eaten"

    policy = ExecutionPolicy(on_execution_error=eat, after=(lambda *_: after.append("after"),))

    async def call() -> None:
        await execute(ToolBox(wait), ToolExecutionRequest("wait"), InvocationContext(), policy)
        after.append("returned")

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await begun.wait()
            tasks.cancel_scope.cancel()
    assert (ended, after) == (["cancelled"], [])


async def test_a_cancelled_call_leaves_its_thread_and_the_thread_sees_it() -> None:
    begun, go_on, ended = anyio.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    @tool
    def wait(context: InvocationContext) -> None:
        anyio.from_thread.run_sync(begun.set)
        go_on.wait(PATIENCE_SECONDS)
        seen.append(context.cancelled)
        ended.set()

    context = InvocationContext()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, ToolBox(wait), ToolExecutionRequest("wait"), context)
            await begun.wait()
            tasks.cancel_scope.cancel()
    go_on.set()
    assert await anyio.to_thread.run_sync(ended.wait, PATIENCE_SECONDS)
    assert seen == [True]
    assert not context.cancelled, "only the call was cancelled, not the invocation"
