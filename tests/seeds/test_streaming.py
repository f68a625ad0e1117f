"""Streaming: the pieces of tool calls, one after another, and the callbacks of a TokenStream."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import pytest

from bridge import AiMessage, ChatRequest, ToolExecutionRequest, ToolSpecification, UserMessage, ai_service, tool
from bridge.service.chat_model import (
    CompleteResponse,
    CompleteToolCall,
    PartialResponse,
    PartialToolCall,
)
from bridge.testing import ScriptedChatModel
from tests.models import openai_wire
from tests.models.provider import running_provider
from tests.seeds.services import call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge import TokenStream
    from bridge.models.openai.model import OpenAiChatModel
    from bridge.tools import ToolExecution
    from tests.models.provider import Answer

pytestmark = pytest.mark.anyio

PIECES = ['{"', "city", '":"', "London", '"}']
LONDON = UserMessage.of("What will the weather be like in London tomorrow?")
GET_WEATHER = ToolSpecification(name="get_weather", description="Returns the weather forecast for a given city")
WANTED = ToolExecutionRequest("get_weather", '{"city":"London"}', id="call_abc")


def pieces_of_a_call(index: int, call_id: str) -> list[dict[str, object]]:
    head, *rest = PIECES
    first = openai_wire.chunk(openai_wire.call(index, head, "get_weather", call_id))
    return [first, *(openai_wire.chunk(openai_wire.call(index, piece)) for piece in rest)]


@asynccontextmanager
async def answering(*answers: Answer) -> AsyncIterator[OpenAiChatModel]:
    """Return a model behind a provider that streams these responses."""
    with running_provider() as provider:
        provider.will_answer(*answers)
        model = openai_wire.model(provider)
        try:
            yield model
        finally:
            await model.aclose()


async def test_a_streamed_call_comes_in_pieces_and_then_whole() -> None:
    answer = openai_wire.streamed(*pieces_of_a_call(0, "call_abc"), openai_wire.chunk(reason="tool_calls"))
    async with answering(answer) as model:
        request = ChatRequest(messages=(LONDON,), tool_specifications=(GET_WEATHER,))
        *events, last = [event async for event in model.stream(request)]
    assert events == [
        PartialToolCall(0, "call_abc", "get_weather", '{"'),
        PartialToolCall(0, "call_abc", "get_weather", "city"),
        PartialToolCall(0, "call_abc", "get_weather", '":"'),
        PartialToolCall(0, "call_abc", "get_weather", "London"),
        PartialToolCall(0, "call_abc", "get_weather", '"}'),
        CompleteToolCall(0, WANTED),
    ]
    assert isinstance(last, CompleteResponse)
    assert last.response.message == AiMessage(tool_execution_requests=(WANTED,))


async def test_the_index_tells_the_calls_of_a_stream_apart() -> None:
    both = [*pieces_of_a_call(0, "call_abc"), *pieces_of_a_call(1, "call_def")]
    async with answering(openai_wire.streamed(*both, openai_wire.chunk(reason="tool_calls"))) as model:
        request = ChatRequest(messages=(LONDON,), tool_specifications=(GET_WEATHER,))
        *events, last = [event async for event in model.stream(request)]
    for index, call_id in enumerate(["call_abc", "call_def"]):
        mine = [event for event in events if isinstance(event, PartialToolCall) and event.index == index]
        assert [event.partial_arguments for event in mine] == PIECES
        assert {(event.id, event.name) for event in mine} == {(call_id, "get_weather")}
    whole = [event for event in events if isinstance(event, CompleteToolCall)]
    assert [event.index for event in whole] == [0, 1]
    assert isinstance(last, CompleteResponse)
    assert last.response.message.tool_execution_requests == tuple(event.request for event in whole)


class Streaming(Protocol):
    def chat(self, message: str) -> TokenStream: ...


async def test_a_token_stream_calls_back_with_the_same_pieces_and_runs_the_tool() -> None:
    @tool
    def get_weather(city: str) -> str:
        return f"Rain in {city}."

    heard: list[object] = []
    calls = openai_wire.streamed(*pieces_of_a_call(0, "call_abc"), openai_wire.chunk(reason="tool_calls"))
    words = openai_wire.streamed(
        openai_wire.chunk({"content": "It will "}), openai_wire.chunk({"content": "rain."}, "stop")
    )
    async with answering(calls, words) as model:
        stream = ai_service(Streaming, streaming_chat_model=model, tools=[get_weather]).chat(LONDON.text)
        await (
            stream.on_partial_tool_call(lambda partial: heard.append(partial.partial_arguments))
            .on_complete_tool_call(lambda complete: heard.append(complete.request.arguments))
            .on_tool_executed(lambda execution: heard.append(execution.result.text))
            .on_partial_response(lambda partial: heard.append(partial.text))
            .on_complete_response(lambda response: heard.append(response.message.text))
            .start()
        )
    assert heard == [*PIECES, '{"city":"London"}', "Rain in London.", "It will ", "rain.", "It will rain."]


@tool
def cancel_booking(number: str) -> str:
    return f"{number} is cancelled"


async def test_executed_tools_are_told_while_streaming() -> None:
    executed: list[ToolExecution] = []
    errors: list[Exception] = []
    model = ScriptedChatModel([call("cancel_booking", number="123-456"), "Done."])
    stream = ai_service(Streaming, streaming_chat_model=model, tools=[cancel_booking]).chat("Cancel my booking")
    result = await stream.on_tool_executed(executed.append).on_error(errors.append).start()
    assert result is not None
    assert list(result.tool_executions) == executed
    assert [(each.request.name, each.result.text) for each in executed] == [("cancel_booking", "123-456 is cancelled")]
    assert errors == []


async def test_an_error_of_the_model_goes_to_on_error() -> None:
    errors: list[Exception] = []
    failure = ConnectionError("gone")
    stream = ai_service(Streaming, streaming_chat_model=ScriptedChatModel([failure])).chat("Cancel my booking")
    assert await stream.on_error(errors.append).start() is None
    assert errors == [failure]


def test_synchronous_code_takes_the_events_too() -> None:
    service = ai_service(Streaming, streaming_chat_model=ScriptedChatModel(["It will rain."]))
    texts = [event.text for event in service.chat("?") if isinstance(event, PartialResponse)]
    assert "".join(texts) == "It will rain."
