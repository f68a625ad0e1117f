"""Execution: callbacks around it, and several tools at the same time."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import anyio
import pytest

from bridge import ExecutionPolicy, InvocationContext, ToolExecutionRequest, ai_service, tool
from bridge.service.chat_model import CompleteToolCall
from bridge.testing import ScriptedChatModel
from tests.seeds.services import DEADLINE_SECONDS, Assistant, assistant, call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import tzinfo

    from bridge import ChatRequest, TokenStream
    from bridge.service.chat_model import ChatEvent
    from bridge.tools import ToolExecution

pytestmark = pytest.mark.anyio


class CalculatorTools:
    @tool("Add two numbers")
    def add(self, a: float, b: float) -> float:
        return a + b


async def test_callbacks_are_called_before_and_after_a_tool() -> None:
    shown: list[str] = []

    def before(request: ToolExecutionRequest, context: InvocationContext) -> None:
        shown.append(f"About to execute: {request.name} {request.arguments}")

    async def after(execution: ToolExecution, context: InvocationContext) -> None:
        assert execution.duration_seconds > 0
        shown.append(f"Executed: {execution.request.name} → {execution.result.text}")

    policy = ExecutionPolicy(before=(before,), after=(after,))
    service, _ = assistant(call("add", a=10, b=5), "15", tools=[CalculatorTools()], policy=policy)
    await service.chat("Calculate 10 + 5")
    assert shown == ["About to execute: add {'a': 10, 'b': 5}", "Executed: add → 15.0"]


async def test_a_duration_is_not_negative_although_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(datetime(2026, 8, day, tzinfo=UTC) for day in range(31, 0, -1))

    class SetBack:
        @staticmethod
        def now(_: tzinfo) -> datetime:
            return next(times)

    monkeypatch.setattr("bridge.tools.execution.datetime", SetBack)
    service, _ = assistant(call("add", a=1, b=2), call("add", a=3, b=4), "7", tools=[CalculatorTools()])
    first, second = (await service.chat("1 + 2, 3 + 4?")).tool_executions
    assert first.started_at > second.started_at
    assert min(first.duration_seconds, second.duration_seconds) > 0


async def test_what_a_callback_raises_before_a_tool_stops_the_invocation() -> None:
    def refuse(request: ToolExecutionRequest, context: InvocationContext) -> None:
        raise PermissionError(request.name)

    service, _ = assistant(call("add", a=1, b=2), tools=[CalculatorTools()], policy=ExecutionPolicy(before=(refuse,)))
    with pytest.raises(PermissionError, match="add"):
        await service.chat("1 + 2?")


class Meeting:
    """Tools that wait for one another: they end only if they run concurrently."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=DEADLINE_SECONDS)
        self.threads: set[int] = set()

    @tool
    def get_weather(self, city: str) -> str:
        self.threads.add(threading.get_ident())
        self.barrier.wait()
        return f"{city}: sunny"


CITIES = ("NYC", "London", "Tokyo")
WANTED = [ToolExecutionRequest("get_weather", {"city": city}, id=city) for city in CITIES]


@pytest.mark.parametrize("concurrently", [True, 4])
async def test_several_tools_run_at_the_same_time_in_threads_of_their_own(concurrently: bool | int) -> None:
    meeting = Meeting(len(CITIES))
    service, _ = assistant(WANTED, "Sunny.", tools=[meeting], execute_tools_concurrently=concurrently)
    result = await service.chat("What's the weather in NYC, London, and Tokyo?")
    assert [each.result.text for each in result.tool_executions] == [f"{city}: sunny" for city in CITIES]
    assert len(meeting.threads) == len(CITIES)


async def test_by_default_one_tool_follows_the_other() -> None:
    running: list[str] = []

    @tool
    async def get_weather(city: str) -> str:
        running.append(f"{city} begins")
        await anyio.lowlevel.checkpoint()
        running.append(f"{city} ends")
        return "sunny"

    service, _ = assistant(WANTED, "Sunny.", tools=[get_weather])
    await service.chat("What's the weather in NYC, London, and Tokyo?")
    assert running == [f"{city} {what}" for city in CITIES for what in ("begins", "ends")]


async def test_a_number_limits_how_many_run_at_the_same_time() -> None:
    running, most = 0, 0

    @tool
    async def get_weather(city: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.wait_all_tasks_blocked()
        running -= 1
        return "sunny"

    service, _ = assistant(WANTED, "Sunny.", tools=[get_weather], execute_tools_concurrently=2)
    await service.chat("What's the weather in NYC, London, and Tokyo?")
    assert most == 2


async def test_a_single_tool_runs_in_the_task_of_its_caller() -> None:
    tasks: list[int] = []

    @tool
    async def get_weather(city: str) -> str:
        tasks.append(anyio.get_current_task().id)
        return "sunny"

    service, _ = assistant(WANTED[0], "Sunny.", tools=[get_weather], execute_tools_concurrently=True)
    await service.chat("What's the weather in NYC?")
    assert tasks == [anyio.get_current_task().id]


@pytest.mark.parametrize("wanted", [WANTED, WANTED[:1]], ids=["several", "single"])
async def test_a_streamed_call_runs_before_the_response_is_whole(wanted: list[ToolExecutionRequest]) -> None:
    ran = anyio.Event()

    @tool
    async def get_weather(city: str) -> str:
        ran.set()
        return f"{city}: sunny"

    class Hesitating(ScriptedChatModel):
        """Model that answers its second request only after the tool has run."""

        async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
            async for event in super().stream(request):
                yield event
                if isinstance(event, CompleteToolCall):
                    await ran.wait()

    class Streaming(Protocol):
        def chat(self, message: str) -> TokenStream: ...

    model = Hesitating([wanted, "Sunny."])
    service = ai_service(Streaming, streaming_chat_model=model, tools=[get_weather], execute_tools_concurrently=True)
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await service.chat("What's the weather in NYC, London, and Tokyo?").start()
    assert result is not None
    assert [each.result.text for each in result.tool_executions] == [f"{each.id}: sunny" for each in wanted]


async def test_tools_of_several_objects_run_at_the_same_time() -> None:
    barrier = threading.Barrier(2, timeout=DEADLINE_SECONDS)

    class WeatherTools:
        @tool("Get current weather")
        def get_weather(self, location: str) -> str:
            barrier.wait()
            return "Sunny"

    class DatabaseTools:
        @tool("Query database")
        def query_database(self, sql: str) -> str:
            barrier.wait()
            return "Rows"

    model = ScriptedChatModel([[call("get_weather", location="NYC"), call("query_database", sql="SELECT 1")], "Both."])
    service = ai_service(
        Assistant, chat_model=model, tools=[WeatherTools(), DatabaseTools()], execute_tools_concurrently=True
    )
    result = await service.chat("Both, please")
    assert [each.result.text for each in result.tool_executions] == ["Sunny", "Rows"]
