"""Structured data in both directions: tools that take nested types and enums, and an answer that is no text.

python examples/weather.py                     # offline: a script plays the model
python examples/weather.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY
"""

import sys
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Protocol

import anyio

from bridge import (
    ChatModel,
    ChatRequest,
    OpenAiChatModel,
    P,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    tool,
    user_message,
)
from bridge.testing import Reply, ScriptedChatModel


class TemperatureUnit(Enum):
    """Unit of temperatures."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


# The text below a field is what the model reads about it.
@dataclass
class Place:
    """Where."""

    city: str
    """The city's name in English."""
    country: str | None = None
    """Its country, where several cities have that name."""


@dataclass
class Forecast:
    """The weather of one day."""

    place: Place
    day: date
    temperature: float
    unit: TemperatureUnit
    rain: bool


# The function gets real objects, whatever the model wrote: dates from text, enums from their names in any case.
@tool
def get_weather(
    places: Annotated[list[Place], P("The cities for which the forecast should be returned")],
    day: Annotated[date, P("The day of the forecast")],
    unit: TemperatureUnit = TemperatureUnit.CELSIUS,
) -> list[Forecast]:
    """Returns the weather forecast for given cities."""
    celsius = {"London": 11.0, "Madrid": 24.0}
    return [Forecast(place, day, told_in(unit, celsius[place.city]), unit, place.city == "London") for place in places]


def told_in(unit: TemperatureUnit, celsius: float) -> float:
    """A temperature in some unit."""
    return celsius if unit is TemperatureUnit.CELSIUS else celsius * 9 / 5 + 32


class Garment(Enum):
    """Piece of clothing."""

    COAT = "coat"
    SHIRT = "shirt"


@dataclass
class Advice:
    """Packing list for a city."""

    city: str
    garments: list[Garment]
    umbrella: bool


# The answer is data as well: its type becomes a schema that the model is held to, and the reply becomes the objects.
class Packer(Protocol):
    """Helps to pack."""

    @user_message("I travel on {day} to: {{cities}}. Look up the weather, in Fahrenheit, and say what to wear in each.")
    async def pack(self, cities: list[str], day: date) -> list[Advice]:
        """Say what to pack."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model, which does not have to be exact."""
    if isinstance(request.messages[-1], UserMessage):
        arguments = """{"places": [{"city": "London", "country": "United Kingdom"}, {"city": "Madrid"}],
                        "day": "2031-05-04", "unit": "Fahrenheit"}"""
        return ToolExecutionRequest("get_weather", arguments, id="call_1")
    return """```json
        {"value": [{"city": "London", "garments": ["coat"], "umbrella": true},
                   {"city": "Madrid", "garments": ["SHIRT"], "umbrella": "false"}]}
        ```"""


def chat_model() -> ChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


async def main() -> None:
    """Pack for two cities."""
    packer = ai_service(Packer, chat_model=chat_model(), tools=[get_weather])
    advice = await packer.pack(["London", "Madrid"], date(2031, 5, 4))
    for each in advice:
        print(each)

    assert [each.city for each in advice] == ["London", "Madrid"]
    assert advice[0].umbrella
    assert Garment.SHIRT in advice[1].garments


if __name__ == "__main__":
    anyio.run(main)
