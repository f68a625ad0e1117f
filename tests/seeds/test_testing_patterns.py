"""Testing: doubles of tools, and programs that are tested with them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import pytest

from bridge import ExecutionPolicy, InvocationContext, P, ToolExecutionRequest, ai_service, tool
from bridge.testing import ScriptedChatModel, connected, failing, recorded
from tests.seeds.services import DEADLINE_SECONDS, Assistant, assistant, call, told

if TYPE_CHECKING:
    from bridge import ChatRequest
    from bridge.models.scripted import Reply

pytestmark = pytest.mark.anyio


class MockWeatherTools:
    answers = {"nyc": "Sunny, 72°F", "london": "Rainy, 55°F", "tokyo": "Cloudy, 68°F"}  # noqa: RUF012 - never changed

    @tool("Get weather")
    def get_weather(self, location: str) -> str:
        return self.answers.get(location.lower(), f"Weather data unavailable for {location}")


@pytest.mark.parametrize(
    ("location", "weather"), [("NYC", "Sunny, 72°F"), ("Oslo", "Weather data unavailable for Oslo")]
)
async def test_a_mock_answers_for_the_weather(location: str, weather: str) -> None:
    service, model = assistant(call("get_weather", location=location), "There it is.", tools=[MockWeatherTools()])
    await service.chat(f"What's the weather in {location}?")
    assert told(model) == [weather]


@tool("Add numbers")
def add(a: float, b: float) -> float:
    return a + b


@tool("Multiply numbers")
def multiply(a: float, b: float) -> float:
    return a * b


async def test_the_order_of_invocations_is_recorded() -> None:
    adding, added = recorded(add)
    multiplying, multiplied = recorded(multiply)
    service, _ = assistant(call("add", a=5, b=3), call("multiply", a=8, b=2), "16", tools=[adding, multiplying])
    result = await service.chat("Calculate 5 + 3, then multiply result by 2")
    assert [each.request.name for each in result.tool_executions] == ["add", "multiply"]
    invocations = [(each.request.arguments, each.result and each.result.text) for each in (*added, *multiplied)]
    assert invocations == [({"a": 5, "b": 3}, "8.0"), ({"a": 8, "b": 2}, "16.0")]


@tool("Flaky API call")
def flaky_api() -> str:
    return "Success"


async def test_a_tool_that_fails_at_first_is_recovered_from() -> None:
    errors: list[Exception] = []

    def handler(error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int) -> str:
        errors.append(error)
        return "Tool failed, please try again"

    service, model = assistant(
        *[call("flaky_api")] * 3,
        "It works.",
        tools=[failing(flaky_api, 2, RuntimeError("Temporary failure"))],
        policy=ExecutionPolicy(on_execution_error=handler),
    )
    assert (await service.chat("Call the flaky API")).content == "It works."
    assert [str(error) for error in errors] == ["Temporary failure", "Temporary failure"]
    assert told(model) == ["Tool failed, please try again", "Tool failed, please try again", "Success"]


async def test_the_arguments_of_a_tool_are_verified() -> None:
    @tool("Search documents")
    def search(keyword: Annotated[str, P("Search keyword")], max_results: Annotated[int, P("Max results")]) -> str:
        return f"Found {max_results} results"

    captor, calls = recorded(search)
    service, model = assistant(call("search", keyword="java", max_results=5), "Found.", tools=[captor])
    await service.chat("Search for 'java' with max 5 results")
    (captured,) = calls
    assert captured.request.arguments == {"keyword": "java", "max_results": 5}
    assert told(model) == ["Found 5 results"]


async def test_a_workflow_uses_several_tools_local_and_imported() -> None:
    saved: list[tuple[str, str]] = []

    @tool
    def save_weather(location: str, weather: str) -> None:
        saved.append((location, weather))

    def workflow(request: ChatRequest) -> Reply:
        last = request.messages[-1]
        match len(request.messages):
            case 1:
                return call("get_weather", location="NYC")
            case 3:
                return call("save_weather", location="NYC", weather=last.text)
        return "Saved."

    async with connected(MockWeatherTools()) as servers:
        service = ai_service(
            Assistant, chat_model=ScriptedChatModel(workflow), tools=[save_weather], tool_providers=[servers]
        )
        result = await service.chat("Get weather for NYC and save it to database")
    assert [each.request.name for each in result.tool_executions] == ["get_weather", "save_weather"]
    assert saved == [("NYC", "Sunny, 72°F")]


async def test_concurrent_execution_is_tested_without_a_clock() -> None:
    barrier = threading.Barrier(2, timeout=DEADLINE_SECONDS)

    class SlowTools:
        @tool("Slow operation 1")
        def slow1(self) -> str:
            barrier.wait()
            return "Result 1"

        @tool("Slow operation 2")
        def slow2(self) -> str:
            barrier.wait()
            return "Result 2"

    service, _ = assistant(
        [call("slow1"), call("slow2")], "Done.", tools=[SlowTools()], execute_tools_concurrently=True
    )
    result = await service.chat("Execute slow1 and slow2")
    assert [each.result.text for each in result.tool_executions] == ["Result 1", "Result 2"]
    assert not barrier.broken
