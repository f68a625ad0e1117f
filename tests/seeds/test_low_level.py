"""The low level: a chat request with tool specifications, the model's requests, and messages with their results."""

from __future__ import annotations

import math
from enum import Enum
from typing import Annotated

import pytest

from bridge import (
    AiMessage,
    ChatRequest,
    InvocationContext,
    P,
    ToolBox,
    ToolExecutionRequest,
    ToolSpecification,
    UserMessage,
    execute,
    tool,
    tools_from,
)
from bridge.service import ToolExecutionResultMessage
from bridge.service.chat_model import FinishReason
from bridge.testing import ScriptedChatModel
from bridge.tools import JsonObjectSchema

pytestmark = pytest.mark.anyio

SQUARE_ROOT = "What is the square root of 475695037565?"
CITY = "The city for which the weather forecast should be returned"
LONDON = UserMessage.of("What will the weather be like in London tomorrow?")

BY_HAND = ToolSpecification(
    name="getWeather",
    description="Returns the weather forecast for a given city",
    parameters=(
        JsonObjectSchema()
        .string("city", CITY)
        .enum("temperatureUnit", ["CELSIUS", "FAHRENHEIT"])
        .required("city")  # the required properties should be specified explicitly
        .build()
    ),
)


class TemperatureUnit(Enum):
    CELSIUS = "CELSIUS"
    FAHRENHEIT = "FAHRENHEIT"


class WeatherTools:
    @staticmethod
    @tool("Returns the weather forecast for a given city", name="getWeather")
    def get_weather(
        city: Annotated[str, P(CITY)], unit: Annotated[TemperatureUnit | None, P(name="temperatureUnit")] = None
    ) -> str:
        return f"It is expected to rain in {city} tomorrow."


def add_up(a: float, b: float) -> float:
    return a + b


def square_root(x: float) -> float:
    return math.sqrt(x)


MATH = ToolBox(
    tool("Sums 2 given numbers", name="sum")(add_up),
    tool("Returns a square root of a given number", name="squareRoot")(square_root),
)


async def test_without_tools_the_model_guesses() -> None:
    model = ScriptedChatModel(["The square root of 475695037565 is approximately 689710."])
    response = await model.chat(ChatRequest(messages=(UserMessage.of(SQUARE_ROOT),)))
    assert response.message == AiMessage("The square root of 475695037565 is approximately 689710.")
    assert response.finish_reason is FinishReason.STOP


async def test_with_tools_two_requests_give_the_answer() -> None:
    wanted = ToolExecutionRequest("squareRoot", {"x": 475695037565}, id="call_1")
    model = ScriptedChatModel([wanted, "The square root of 475695037565 is 689706.486532."])
    specifications = tuple(each.specification for each in MATH)
    assert [(each.name, each.description) for each in specifications] == [
        ("sum", "Sums 2 given numbers"),
        ("squareRoot", "Returns a square root of a given number"),
    ]
    question = UserMessage.of(SQUARE_ROOT)
    first = await model.chat(ChatRequest(messages=(question,), tool_specifications=specifications))
    assert first.message.tool_execution_requests == (wanted,)

    result = await execute(MATH, wanted, InvocationContext())
    message = ToolExecutionResultMessage.of(wanted, result)
    assert message.text.startswith("689706.486532")
    second = await model.chat(
        ChatRequest(messages=(question, first.message, message), tool_specifications=specifications)
    )
    assert second.message.text == "The square root of 475695037565 is 689706.486532."


def test_a_specification_is_made_by_hand() -> None:
    assert BY_HAND.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": CITY},
            "temperatureUnit": {"type": "string", "enum": ["CELSIUS", "FAHRENHEIT"]},
        },
        "required": ["city"],
    }


@pytest.mark.parametrize("source", [WeatherTools, WeatherTools(), WeatherTools.get_weather])
def test_specifications_are_made_of_a_class_an_object_and_a_function(source: object) -> None:
    (specification,) = (each.specification for each in tools_from(source))
    assert (specification.name, specification.description) == (BY_HAND.name, BY_HAND.description)
    assert specification.parameters["properties"]["city"] == BY_HAND.parameters["properties"]["city"]
    assert list(specification.parameters["properties"]) == ["city", "temperatureUnit"]
    assert specification.parameters["required"] == ["city"]
    assert str(specification.parameters).count("'CELSIUS', 'FAHRENHEIT'") == 1


async def test_the_models_requests_are_read_from_its_message() -> None:
    wanted = ToolExecutionRequest("getWeather", '{"city": "London", "temperatureUnit": "CELSIUS"}', id="call_1")
    model = ScriptedChatModel([wanted])
    response = await model.chat(ChatRequest(messages=(LONDON,), tool_specifications=(BY_HAND,)))
    message = response.message
    assert message.has_tool_execution_requests
    assert response.finish_reason is FinishReason.TOOL_EXECUTION
    assert [(each.id, each.name) for each in message.tool_execution_requests] == [("call_1", "getWeather")]


async def test_results_written_by_hand_are_sent_with_all_previous_messages() -> None:
    wanted = ToolExecutionRequest("getWeather", {"city": "London"})  # some models give no id
    model = ScriptedChatModel([wanted, "Take an umbrella."])
    first = await model.chat(ChatRequest(messages=(LONDON,), tool_specifications=(BY_HAND,)))
    result = ToolExecutionResultMessage.of(wanted, "It is expected to rain in London tomorrow.")
    assert (result.id, result.tool_name, result.is_error) == (None, "getWeather", False)
    messages = (LONDON, first.message, result)
    second = await model.chat(ChatRequest(messages=messages, tool_specifications=(BY_HAND,)))
    assert second.message == AiMessage("Take an umbrella.")
    assert model.requests[1].messages == messages


async def test_several_tools_may_be_wanted_at_once() -> None:
    wanted = [ToolExecutionRequest("getWeather", {"city": city}, id=city) for city in ("London", "Paris")]
    model = ScriptedChatModel([wanted])
    response = await model.chat(ChatRequest(messages=(LONDON,), tool_specifications=(BY_HAND,)))
    results = [
        ToolExecutionResultMessage.of(each, await execute(ToolBox(WeatherTools), each, InvocationContext()))
        for each in response.message.tool_execution_requests
    ]
    assert [(each.id, each.text) for each in results] == [
        ("London", "It is expected to rain in London tomorrow."),
        ("Paris", "It is expected to rain in Paris tomorrow."),
    ]
