from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bridge.errors import ChatModelError
from bridge.models.openai.model import OpenAiChatModel
from bridge.service.chat_model import (
    ChatEvent,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    TokenUsage,
)
from bridge.service.messages import AiMessage
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.openai_wire import FINAL, call, chunk, streamed
from tests.models.provider import EVENT_STREAM, Answer, server_sent
from tests.models.requests import ADD, SEARCH, asking, events_of, final

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio
Maker = Callable[..., OpenAiChatModel]


async def streamed_events(provider: Provider, openai: Maker, answer: Answer) -> list[ChatEvent]:
    """The events of one streamed answer, with two tools offered."""
    provider.will_answer(answer)
    return await events_of(openai(), asking("Hello", tool_specifications=(ADD, SEARCH)))


async def test_a_streamed_text_comes_in_pieces_and_whole(provider: Provider, openai: Maker) -> None:
    answer = streamed(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": "Grö"}),
        chunk({"content": "ße 🦊"}),
        chunk(reason="stop"),
        FINAL,
    )
    events = await streamed_events(provider, openai, answer)
    assert events[:-1] == [PartialThinking("Hm."), PartialResponse("Grö"), PartialResponse("ße 🦊")]
    response = final(events)
    assert response.message == AiMessage(
        "Größe 🦊", thinking="Hm.", attributes={"openai": {"thinking_field": "reasoning_content"}}
    )
    assert response.token_usage == TokenUsage(20, 5, 16)
    assert response.finish_reason is FinishReason.STOP
    assert (response.model_name, response.id) == ("test-model-0801", "chatcmpl-1")
    assert len(response.raw) == 6
    assert provider.body["stream"] is True
    assert provider.body["stream_options"] == {"include_usage": True}


async def test_streamed_calls_are_joined_by_their_index(provider: Provider, openai: Maker) -> None:
    answer = streamed(
        chunk(call(0, "", "files_search", "x")),
        chunk(call(0, '{"te')),
        chunk(call(0, 'xt":"a"}')),
        chunk(call(1, "", "add", "y")),
        chunk(call(1, '{"a":1}')),
        chunk(reason="tool_calls"),
        FINAL,
    )
    first = ToolExecutionRequest("files.search", '{"text":"a"}', "x")
    second = ToolExecutionRequest("add", '{"a":1}', "y")
    events = await streamed_events(provider, openai, answer)
    assert events[:-1] == [
        PartialToolCall(0, "x", "files.search", ""),
        PartialToolCall(0, "x", "files.search", '{"te'),
        PartialToolCall(0, "x", "files.search", 'xt":"a"}'),
        CompleteToolCall(0, first),
        PartialToolCall(1, "y", "add", ""),
        PartialToolCall(1, "y", "add", '{"a":1}'),
        CompleteToolCall(1, second),
    ]
    assert final(events).message == AiMessage(tool_execution_requests=(first, second))
    assert final(events).finish_reason is FinishReason.TOOL_EXECUTION


async def test_calls_whose_pieces_alternate_are_whole_only_at_the_end(provider: Provider, openai: Maker) -> None:
    answer = streamed(
        chunk(call(0, '{"a"', "add", "x")),
        chunk(call(1, '{"b"', "add", "y")),
        chunk(call(0, ":1}")),
        chunk(call(1, ":2}")),
        chunk(reason="tool_calls"),
    )
    events = await streamed_events(provider, openai, answer)
    assert [event for event in events if isinstance(event, CompleteToolCall)] == [
        CompleteToolCall(0, ToolExecutionRequest("add", '{"a":1}', "x")),
        CompleteToolCall(1, ToolExecutionRequest("add", '{"b":2}', "y")),
    ]


async def test_servers_that_give_every_call_the_same_index_or_none_are_understood(
    provider: Provider, openai: Maker
) -> None:
    for index in (0, None):
        answer = streamed(
            chunk(call(index, '{"a":1}', "add", "x")),
            chunk(call(index, '{"a":2}', "add", "y")),
            chunk(reason="stop"),
        )
        events = await streamed_events(provider, openai, answer)
        assert final(events).message.tool_execution_requests == (
            ToolExecutionRequest("add", '{"a":1}', "x"),
            ToolExecutionRequest("add", '{"a":2}', "y"),
        )
        assert final(events).finish_reason is FinishReason.TOOL_EXECUTION


async def test_a_streamed_call_without_an_id_gets_one_and_keeps_it(provider: Provider, openai: Maker) -> None:
    answer = streamed(chunk(call(0, '{"a":1}', "add")), chunk(reason="tool_calls"))
    events = await streamed_events(provider, openai, answer)
    (request,) = final(events).message.tool_execution_requests
    assert request.id
    assert events[0] == PartialToolCall(0, request.id, "add", '{"a":1}')


async def test_the_nulls_of_a_strict_call_are_taken_back_when_it_is_whole(provider: Provider, openai: Maker) -> None:
    strict = ToolSpecification(name="search", parameters=SEARCH.parameters, strict=True)
    provider.will_answer(
        streamed(chunk(call(0, '{"text":"a","limit":null}', "search", "x")), chunk(reason="tool_calls"))
    )
    events = await events_of(openai(), asking("Hello", tool_specifications=(strict,)))
    assert final(events).message.tool_execution_requests[0].arguments == {"text": "a"}


async def test_a_streamed_refusal_is_the_text(provider: Provider, openai: Maker) -> None:
    answer = streamed(chunk({"refusal": "I will "}), chunk({"refusal": "not."}), chunk(reason="stop"))
    events = await streamed_events(provider, openai, answer)
    assert events[:-1] == [PartialResponse("I will "), PartialResponse("not.")]
    assert final(events).message == AiMessage("I will not.", attributes={"openai": {"refusal": "I will not."}})
    assert final(events).finish_reason is FinishReason.CONTENT_FILTER


async def test_an_error_within_a_stream_is_raised(provider: Provider, openai: Maker) -> None:
    error = {"error": {"message": "The server had an error.", "type": "server_error", "code": None}}
    provider.will_answer(Answer(headers=EVENT_STREAM, chunks=(server_sent([chunk({"content": "Hi"}), error]),)))
    with pytest.raises(ChatModelError, match=r"openai: The server had an error\.") as caught:
        await events_of(openai(), asking("Hello"))
    assert caught.value.retryable
