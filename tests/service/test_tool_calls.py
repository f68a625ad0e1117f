from __future__ import annotations

from contextlib import aclosing
from itertools import product
from typing import Any

import anyio
import pytest

from bridge import ReturnBehavior, ToolError, tool
from bridge.errors import DefinitionError
from bridge.service.ai_service import ai_service
from bridge.service.chat_model import CompleteToolCall, PartialResponse
from bridge.service.events import ToolExecuted
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.messages import AiMessage, ToolExecutionResultMessage
from bridge.tools.execution import ExecutionPolicy
from tests.service.fakes import DEADLINE_SECONDS, Assistant, FakeModel, ask, assistant, call, calls

pytestmark = pytest.mark.anyio

TO_LLM, IMMEDIATE, IF_LAST = ReturnBehavior


def expected_to_end(behaviors: tuple[ReturnBehavior, ...], failing: int | None) -> bool:
    """LangChain4j's table: the last is IMMEDIATE_IF_LAST, or all are immediate; and none failed."""
    if failing is not None:
        return False
    return behaviors[-1] is IF_LAST or all(each in (IMMEDIATE, IF_LAST) for each in behaviors)


TABLE = [
    (behaviors, failing)
    for length in (1, 2, 3)
    for behaviors in product(ReturnBehavior, repeat=length)
    for failing in (None, *range(length))
]


@tool(return_behavior=TO_LLM)
async def to_llm(fail: bool) -> str:
    return said("to_llm", fail)


@tool(return_behavior=IMMEDIATE)
async def immediate(fail: bool) -> str:
    return said("immediate", fail)


@tool(return_behavior=IF_LAST)
async def immediate_if_last(fail: bool) -> str:
    return said("immediate_if_last", fail)


def said(name: str, fail: bool) -> str:
    if fail:
        raise ToolError("no")
    return name


@pytest.mark.parametrize(("behaviors", "failing"), TABLE)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_truth_table_of_return_behaviours(
    way: str, behaviors: tuple[ReturnBehavior, ...], failing: int | None
) -> None:
    names = [behavior.value for behavior in behaviors]
    wanted = calls(*[call(name, str(i), fail=i == failing) for i, name in enumerate(names)])
    model = FakeModel(wanted, "the model's words")
    memory = ChatMemory()
    service = ai_service(Assistant, chat_model=model, tools=[to_llm, immediate, immediate_if_last], memory=memory)
    result = await ask(service, way)
    ends = expected_to_end(behaviors, failing)
    assert len(model.requests) == (1 if ends else 2)
    assert result.content == ("\n".join(names) if ends else "the model's words")
    assert [each.request.name for each in result.tool_executions] == names
    last = (await memory.messages())[-1]
    assert isinstance(last, ToolExecutionResultMessage if ends else AiMessage)


class Meeting:
    """Tools that end only together: if they were not run concurrently, they would wait for ever."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.order: list[str] = []
        self.everybody = anyio.Event()

    @tool
    async def meet(self, who: str) -> str:
        self.order.append(who)
        if len(self.order) == self.expected:
            self.everybody.set()
        await self.everybody.wait()
        return who


@pytest.mark.parametrize("limit", [True, 3])
async def test_tools_run_together_where_that_is_wanted_and_results_come_in_call_order(
    way: str, limit: bool | int
) -> None:
    model = FakeModel(calls(*[call("meet", who, who=who) for who in "abc"]), "done")
    service = ai_service(Assistant, chat_model=model, tools=[Meeting(3)], execute_tools_concurrently=limit)
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await ask(service, way)
    assert [each.result.text for each in result.tool_executions] == ["a", "b", "c"]
    results = [each for each in model.requests[1].messages if isinstance(each, ToolExecutionResultMessage)]
    assert [each.id for each in results] == ["a", "b", "c"]


class Counting:
    """Counts how many run at once."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    @tool
    async def count(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        self.running -= 1


@pytest.mark.parametrize(("concurrently", "most"), [(False, 1), (2, 2), (True, 5)])
async def test_no_more_tools_run_at_once_than_the_limit_says(way: str, concurrently: bool | int, most: int) -> None:
    counting = Counting()
    service = assistant(calls(*[call("count")] * 5), "done", tools=[counting], execute_tools_concurrently=concurrently)
    await ask(service, way)
    assert counting.most <= most
    assert way == "streamed" or counting.most == most  # a stream that is read in step starts them as they arrive


async def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(DefinitionError, match="at least 1 or an Executor, not -1"):
        assistant(execute_tools_concurrently=-1)


async def test_one_that_fails_leaves_the_others_alone(way: str) -> None:
    failed = anyio.Event()

    @tool
    async def fail() -> str:
        failed.set()
        raise ToolError("no")

    @tool
    async def outlast() -> str:
        await failed.wait()
        return "still here"

    service = assistant(
        calls(call("fail"), call("outlast")), "done", tools=[fail, outlast], execute_tools_concurrently=True
    )
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await ask(service, way)
    assert [(each.result.is_error, each.result.text) for each in result.tool_executions] == [
        (True, "no"),
        (False, "still here"),
    ]


async def test_an_exception_that_stops_the_invocation_waits_for_the_others_and_comes_as_itself(way: str) -> None:
    failed, outlasted = anyio.Event(), anyio.Event()

    @tool(propagate=True)
    async def fail() -> str:
        failed.set()
        raise KeyError("stop")

    @tool
    async def outlast() -> None:
        await failed.wait()
        await anyio.lowlevel.checkpoint()
        outlasted.set()

    service = assistant(
        calls(call("outlast"), call("fail")), "never", tools=[fail, outlast], execute_tools_concurrently=True
    )
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(KeyError, match="stop"):
        await ask(service, way)
    assert outlasted.is_set()


@pytest.mark.parametrize("concurrently", [False, True])
async def test_cancelling_the_invocation_cancels_its_tools_and_leaves_memory_as_it_was(
    way: str, concurrently: bool
) -> None:
    cancelled: list[str] = []
    with anyio.CancelScope() as scope:

        @tool
        async def wait(who: str) -> None:
            try:
                if who == "b" or not concurrently:
                    scope.cancel()
                await anyio.sleep_forever()
            except BaseException:
                cancelled.append(who)
                raise

        memory = ChatMemory()
        service = assistant(
            calls(call("wait", who="a"), call("wait", who="b")),
            "never",
            tools=[wait],
            memory=memory,
            execute_tools_concurrently=concurrently,
        )
        with anyio.fail_after(DEADLINE_SECONDS):
            await ask(service, way)
    assert scope.cancelled_caught
    assert sorted(cancelled) == (["a", "b"] if concurrently else ["a"])
    assert await memory.messages() == ()


async def test_when_streaming_a_tool_starts_as_soon_as_its_call_is_whole() -> None:
    ran = anyio.Event()

    @tool
    async def run() -> str:
        ran.set()
        return "ran"

    class Slow(FakeModel):
        async def stream(self, request: Any) -> Any:
            async with aclosing(super().stream(request)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, CompleteToolCall):
                        await ran.wait()  # a loop that waits for the whole response would wait for ever

    service = ai_service(
        Assistant, chat_model=Slow(calls(call("run")), "done"), tools=[run], execute_tools_concurrently=True
    )
    with anyio.fail_after(DEADLINE_SECONDS):
        events = [event async for event in service.stream("Hello")]
    assert any(isinstance(event, ToolExecuted) for event in events)
    assert PartialResponse("done") in events


async def test_a_model_that_fails_while_tools_run_already_stops_them_and_comes_as_itself() -> None:
    stopped = anyio.Event()
    started = anyio.Event()

    @tool
    async def wait() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    class Breaking(FakeModel):
        async def stream(self, request: Any) -> Any:
            async with aclosing(super().stream(request)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, CompleteToolCall):
                        await started.wait()
                        raise ConnectionError("lost")

    service = ai_service(
        Assistant, chat_model=Breaking(calls(call("wait"))), tools=[wait], execute_tools_concurrently=True
    )
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ConnectionError, match="lost"):
        await ask(service, "streamed")
    assert stopped.is_set()


async def test_callbacks_before_and_after_each_tool_tell_the_request_and_the_time(way: str) -> None:
    told: list[str] = []
    policy = ExecutionPolicy(
        before=(lambda request, context: told.append(f"before {request.name}"),),
        after=(lambda execution, context: told.append(f"after {execution.duration_seconds >= 0}"),),
    )
    await ask(assistant(calls(call("to_llm", fail=False)), "done", tools=[to_llm], policy=policy), way)
    assert told == ["before to_llm", "after True"]
