from __future__ import annotations

import json
from collections.abc import Sequence
from threading import get_ident
from typing import Any, Protocol

import pytest

from bridge import InvocationContext, guarded, renamed, tool
from bridge.errors import DefinitionError, NameClashError
from bridge.service.ai_service import ai_service
from bridge.service.memory.chat_memory import ChatMemory, message_window
from bridge.service.messages import ToolExecutionResultMessage
from bridge.service.tool_search import ToolSearch, ToolSearchRequest, by_embedding, by_words
from bridge.tools import InvocationParameters
from bridge.tools.schema.json_schema import JsonObjectSchema
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult
from tests.service.fakes import Assistant, FakeModel, ask, assistant, call, calls

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
async def test_tools_are_found_by_words(query: str, found: list[str]) -> None:
    searched = by_words()(ToolSearchRequest(query=query, tools=MANY, context=InvocationContext()))
    assert not isinstance(searched, Sequence)
    names = await searched
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


async def test_an_asynchronous_strategy_sees_the_invocation_and_unknown_names_are_dropped() -> None:
    asked: list[tuple[str, int, object]] = []

    async def strategy(request: ToolSearchRequest) -> list[str]:
        asked.append((request.query, len(request.tools), request.context.parameters["user"]))
        return ["list_bookings", "nosuch", "list_bookings"]

    class Desk(Protocol):
        async def chat(self, message: str, data: InvocationParameters) -> str: ...

    model = FakeModel(calls(call("search_tools", query="anything")), "ok")
    service = ai_service(Desk, chat_model=model, tools=many(), tool_search=ToolSearch(strategy=strategy))
    await service.chat("Hi", InvocationParameters(user="ada"))
    assert asked == [("anything", 5, "ada")]
    assert names_in(model)[1] == ["search_tools", "list_bookings"]


async def test_a_marked_tool_is_always_shown_and_is_not_searched() -> None:
    @tool(always_visible=True)
    async def help_me() -> str:
        """Help with everything."""
        return "ok"

    seen: list[str] = []

    def strategy(request: ToolSearchRequest) -> list[str]:
        seen.extend(each.name for each in request.tools)
        return []

    model = FakeModel(calls(call("search_tools", query="anything")), "ok")
    tools = [*many(), guarded(renamed(help_me, "helper"))]
    await ai_service(Assistant, chat_model=model, tools=tools, tool_search=ToolSearch(strategy=strategy)).chat("Hi")
    assert names_in(model) == [["search_tools", "helper"]] * 2
    assert seen == [each.name for each in MANY]


VECTORS = {"weather": (4.0, 0.0), "currency": (0.0, 2.0), "booking": (-1.0, 1.0)}


def vector(text: str) -> tuple[float, float]:
    return next((each for word, each in VECTORS.items() if word in text.lower()), (-1.0, -1.0))


@pytest.mark.parametrize("is_async", [False, True])
async def test_tools_are_found_by_the_similarity_of_vectors_that_are_asked_for_once(is_async: bool) -> None:
    asked: list[int] = []
    threads: set[int] = set()

    def embed(texts: Sequence[str]) -> list[tuple[float, float]]:
        asked.append(len(texts))
        threads.add(get_ident())
        return [vector(text) for text in texts]

    async def embed_later(texts: Sequence[str]) -> list[tuple[float, float]]:
        return embed(texts)

    search = ToolSearch(strategy=by_embedding(embed_later if is_async else embed, min_similarity=0.5, words=False))
    model = FakeModel(
        calls(call("search_tools", query="weather")), calls(call("search_tools", query="a currency, booking")), "ok"
    )
    result = await ai_service(Assistant, chat_model=model, tools=many(), tool_search=search).chat("Hi")
    assert [[found["name"] for found in json.loads(each.result.text)] for each in result.tool_executions] == [
        ["get_weather"],
        ["getExchangeRate", "cancel_booking", "list_bookings"],
    ]
    assert asked == [1 + len(MANY), 1]
    assert (get_ident() in threads) is is_async


async def test_vectors_that_do_not_fit_are_an_error_of_the_search() -> None:
    search = ToolSearch(strategy=by_embedding(lambda _: [[1.0]]))
    service = assistant(calls(call("search_tools", query="x")), "ok", tools=many(), tool_search=search)
    (execution,) = (await service.chat("Hello")).tool_executions
    assert execution.result.is_error
    assert execution.result.text == "the embedding function must return 6 vectors of one length"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"strategy": lambda query, tools: []}, "strategy is called with 1 argument, the ToolSearchRequest"),
        ({"strategy": None}, "strategy must be a function of the ToolSearchRequest, not None"),
        ({"always": ["send_mail"]}, "always must be a function of the tool"),
        ({"max_results": 0}, "max_results must be a whole number of at least 1, not 0"),
        ({"tool_name": None}, "name must be"),
    ],
)
def test_a_wrong_search_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        ToolSearch(**options)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("embed", "least"), [("model", 0.0), (lambda *, texts: [texts], 0.0), (lambda _: [], 2.0), (len, None)]
)
def test_a_wrong_embedding_is_refused(embed: Any, least: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^(embed|min_similarity)"):
        by_embedding(embed, min_similarity=least)


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
