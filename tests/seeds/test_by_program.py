"""Tools from data: functions as executors and providers, mappings, fallbacks, limits that wait, and blocking calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from bridge import (
    ChatRequest,
    ExecutionPolicy,
    InvocationContext,
    ToolBox,
    ToolExecutionRequest,
    ToolSpecification,
    UserMessage,
    execute,
    tool,
    tools_from,
)
from bridge.middleware import rate_limited
from bridge.service import call_blocking
from bridge.testing import ScriptedChatModel, recorded_all
from bridge.tools import JsonObjectSchema, ToolExecution, ToolProviderRequest, backed_up, specifications_from
from tests.seeds.services import assistant, call, told

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.anyio

BOOKINGS = {"B-12345": {"guest": "Klaus Heisler", "nights": 3}}
SPECIFICATION = ToolSpecification(
    name="get_booking_details",
    description="Returns booking details",
    parameters=JsonObjectSchema().string("bookingNumber", "Booking number in B-12345 format"),
)
WANTED = ToolExecutionRequest("get_booking_details", '{"bookingNumber": "B-12345"}', id="1")
JSON = '{"guest":"Klaus Heisler","nights":3}'


def details(request: ToolExecutionRequest, _: InvocationContext) -> dict[str, Any]:
    return BOOKINGS[request.argument("bookingNumber")]


async def details_later(request: ToolExecutionRequest, context: InvocationContext) -> dict[str, Any]:
    return details(request, context)


@pytest.mark.parametrize("executor", [details, details_later, lambda request, context: details(request, context)])  # noqa: PLW0108 - a lambda is shown
async def test_a_mapping_of_specifications_to_functions_is_a_source_of_tools(executor: Any) -> None:
    service, model = assistant(WANTED, "Klaus.", tools={SPECIFICATION: executor})
    await service.chat("Who is B-12345?")
    assert told(model) == [JSON]
    assert model.requests[0].tool_specifications == (SPECIFICATION,)


async def test_a_function_is_a_provider_and_returns_what_tools_takes() -> None:
    def provide(request: ToolProviderRequest) -> object:
        if "booking" not in request.user_message.text:
            return None
        assert isinstance(request.user_message, UserMessage)
        return {SPECIFICATION: details}

    async def provide_later(request: ToolProviderRequest) -> object:
        return provide(request)

    for provider in (provide, provide_later):
        service, model = assistant("Hello.", WANTED, "Klaus.", tool_providers=[provider])
        await service.chat("Good morning")
        await service.chat("Who is my booking B-12345 for?")
        assert [len(request.tool_specifications) for request in model.requests] == [0, 1, 1]
        assert model.requests[-1].messages[-1].text == JSON


async def test_callbacks_by_name_see_one_immutable_mapping_and_the_models_text() -> None:
    seen: list[object] = []

    def before(request: ToolExecutionRequest, _: InvocationContext) -> None:
        seen.append(request.arguments)
        with pytest.raises(TypeError, match="cannot be changed"):
            request.arguments["bookingNumber"] = "B-1"  # type: ignore[index]  # a program without types may try

    async def after(execution: ToolExecution, _: InvocationContext) -> None:
        seen.append(execution.request.arguments)
        seen.append(execution.request.arguments_text)
        raise RuntimeError("an observer stops nothing")

    policy = ExecutionPolicy(before=(before,), after=(after,))
    service, model = assistant(WANTED, "Klaus.", tools={SPECIFICATION: details}, policy=policy)
    assert (await service.chat("Who is B-12345?")).content == "Klaus."
    assert seen == [{"bookingNumber": "B-12345"}] * 2 + [WANTED.arguments]
    assert told(model) == [JSON]


class WeatherTools:
    @tool("Returns the weather forecast for a given city")
    def get_weather(self, city: str) -> str:
        return f"Rain in {city}"


def test_specifications_are_read_from_a_class_with_methods() -> None:
    sources: Iterable[object] = (WeatherTools, WeatherTools(), WeatherTools.get_weather)
    first, *others = [specifications_from(source) for source in sources]
    assert [each.name for each in first] == ["get_weather"]
    assert list(first[0].parameters["properties"]) == ["city"]
    assert others == [first, first]


def test_a_program_without_a_loop_asks_the_model_and_runs_the_tool() -> None:
    model = ScriptedChatModel([call("get_weather", city="London"), "It will rain."])
    tools, question = ToolBox(WeatherTools()), UserMessage.of("What will the weather be like in London tomorrow?")
    (wanted,) = call_blocking(model.chat, ChatRequest(messages=(question,))).message.tool_execution_requests
    assert call_blocking(execute, tools, wanted, InvocationContext()).text == "Rain in London"
    (made,) = tools_from(WeatherTools())
    text = ToolExecutionRequest("get_weather", '{"city": "London"}')
    assert call_blocking(made.executor.execute, text, InvocationContext()).text == "Rain in London"


async def test_an_executor_runs_tools_concurrently() -> None:
    with ThreadPoolExecutor(4) as pool:
        service, _ = assistant(
            [call("get_weather", city=city) for city in ("NYC", "London", "Tokyo")],
            "Rain.",
            tools=[WeatherTools()],
            execute_tools_concurrently=pool,
        )
        result = await service.chat("What's the weather in NYC, London, and Tokyo?")
    assert [each.result.text for each in result.tool_executions] == ["Rain in NYC", "Rain in London", "Rain in Tokyo"]


async def test_a_fallback_tool_answers_for_a_failing_one_and_text_in_the_end() -> None:
    @tool
    def get_weather(location: str) -> str:
        raise ConnectionError("primary")

    @tool
    def from_fallback(location: str) -> str:
        if location == "nowhere":
            raise ConnectionError("fallback")
        return f"Rain in {location}"

    box = ToolBox(backed_up(get_weather, from_fallback, "Weather data unavailable"))
    for location, text in (("London", "Rain in London"), ("nowhere", "Weather data unavailable")):
        assert (await box.call("get_weather", location=location)).text == text


async def test_a_rate_limit_waits_for_a_second() -> None:
    @tool
    def send_email(to: str) -> str:
        return "Email sent"

    box = ToolBox(rate_limited(send_email, 20, per_seconds=1, max_wait_seconds=1))
    assert [(await box.call("send_email", to="ada")).text for _ in range(22)] == ["Email sent"] * 22


async def test_the_order_over_several_tools_is_one_list() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    @tool
    def multiply(a: int, b: int) -> int:
        return a * b

    tools, invocations = recorded_all(add, multiply)
    service, _ = assistant(call("add", a=5, b=3), call("multiply", a=8, b=2), "16", tools=tools)
    await service.chat("Calculate 5 + 3, then multiply result by 2")
    assert [each.request.name for each in invocations] == ["add", "multiply"]
