from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge import tool
from bridge.errors import NameClashError
from bridge.service.ai_service import ai_service
from bridge.service.memory import ChatMemory, message_window
from bridge.service.messages import ToolExecutionResultMessage
from bridge.service.toolset import ToolSearch, match_words
from bridge.tools.schema.json_schema import JsonObjectSchema
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult
from tests.service.fakes import Assistant, FakeModel, ask, assistant, call, calls

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio


def specification(name: str, description: str = "", *parameters: str) -> ToolSpecification:
    schema = JsonObjectSchema()
    for parameter in parameters:
        schema.string(parameter)
    return ToolSpecification(name=name, description=description, parameters=schema.build())


MANY = [
    specification("get_weather", "The forecast for a city", "city"),
    specification("getExchangeRate", "What one currency is worth in another"),
    specification("cancel_booking", "Cancel a booking of a flight"),
    specification("list_bookings", "All bookings"),
    specification("send_mail", "Send a message", "recipient"),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("weather", ["get_weather"]),
        ("weather forecast in a city", ["get_weather"]),
        ("exchange", ["getExchangeRate"]),
        ("CURRENCY", ["getExchangeRate"]),
        ("bookings", ["cancel_booking", "list_bookings"]),
        ("cancel the booking", ["cancel_booking", "list_bookings"]),
        ("send_mail", ["send_mail"]),
        ("recipient", ["send_mail"]),
        ("?!", []),
        ("", []),
    ],
)
def test_tools_are_found_by_words(query: str, found: list[str]) -> None:
    names = match_words(query, MANY)
    assert names[: len(found)] == found or set(names[: len(found)]) == set(found)
    assert bool(names) == bool(found)


class Noted:
    """Says that it ran."""

    async def execute(self, request: Any, context: Any) -> ToolExecutionResult:
        return ToolExecutionResult.of_text("ran")


def many() -> list[Tool]:
    return [Tool(each, Noted()) for each in MANY]


def names_in(model: FakeModel) -> list[list[str]]:
    return [[each.name for each in request.tool_specifications] for request in model.requests]


async def test_the_model_is_shown_what_it_has_found(way: str) -> None:
    model = FakeModel(calls(call("search_tools", "1", query="weather")), calls(call("get_weather", "2")), "Sunny.")
    service = ai_service(Assistant, chat_model=model, tools=many(), tool_search=ToolSearch())
    result = await ask(service, way)
    assert names_in(model) == [["search_tools"], ["search_tools", "get_weather"], ["search_tools", "get_weather"]]
    found = model.requests[1].messages[-1]
    assert isinstance(found, ToolExecutionResultMessage)
    assert json.loads(found.text)[0] == {"name": "get_weather", "description": "The forecast for a city"}
    assert [each.result.text for each in result.tool_executions][1] == "ran"


async def test_found_tools_stay_while_they_are_in_memory() -> None:
    search = calls(call("search_tools", "1", query="weather"))
    model = FakeModel(search, "found", "still there", "x" * 10, "gone")
    memory = ChatMemory(window=message_window(6))
    service = ai_service(
        Assistant, chat_model=model, tools=many(), tool_search=ToolSearch(max_results=1), memory=memory
    )
    for question in ("1", "2", "3", "4"):
        await service.chat(question)
    assert names_in(model)[2:] == [["search_tools", "get_weather"], ["search_tools"], ["search_tools"]]


async def test_some_tools_are_always_shown_and_one_search_finds_only_so_many() -> None:
    model = FakeModel(calls(call("search_tools", "1", query="booking")), "ok")
    search = ToolSearch(max_results=1, always=lambda tool: tool.name == "send_mail", tool_name="search_tools")
    await ai_service(Assistant, chat_model=model, tools=many(), tool_search=search).chat("Hello")
    assert names_in(model)[0] == ["search_tools", "send_mail"]
    assert len(names_in(model)[1]) == 3


async def test_a_strategy_of_ones_own_finds_the_tools() -> None:
    asked: list[tuple[str, int]] = []

    def strategy(query: str, tools: Sequence[ToolSpecification]) -> list[str]:
        asked.append((query, len(tools)))
        return ["list_bookings"]

    model = FakeModel(calls(call("search_tools", query="anything")), "ok")
    await ai_service(Assistant, chat_model=model, tools=many(), tool_search=ToolSearch(strategy=strategy)).chat("Hi")
    assert asked == [("anything", 5)]
    assert names_in(model)[1] == ["search_tools", "list_bookings"]


@pytest.mark.parametrize(
    ("arguments", "words", "is_error"),
    [
        ({"query": "zebra"}, "no tool fits 'zebra'; use other words", False),
        ({"query": " "}, "query: should be text that says what the tool should do", True),
        ({}, "query: should be text that says what the tool should do", True),
    ],
)
async def test_a_search_without_success_says_so(arguments: dict[str, Any], words: str, is_error: bool) -> None:
    service = assistant(calls(call("search_tools", **arguments)), "ok", tools=many(), tool_search=ToolSearch())
    (execution,) = (await service.chat("Hello")).tool_executions
    assert (execution.result.text, execution.result.is_error) == (words, is_error)


async def test_the_search_tool_needs_a_name_of_its_own() -> None:
    @tool
    def search_tools() -> None: ...

    with pytest.raises(NameClashError, match="the tool search"):
        assistant(tools=[search_tools], tool_search=ToolSearch())
