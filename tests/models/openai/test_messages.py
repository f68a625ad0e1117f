from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import ChatModelError
from bridge.models.conversation import conversation_of
from bridge.models.openai.messages import MessageWriter
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
from bridge.service.messages import AiMessage, ChatMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Audio, Content, File, Image, ResourceLink, Text
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.openai_wire import FINAL, call, chunk, streamed
from tests.models.provider import EVENT_STREAM, Answer, server_sent
from tests.models.requests import ADD, CONVERSATION, PDF_BASE64, PIXEL, PIXEL_BASE64, SEARCH, asking, events_of, final

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio

PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL_BASE64}"}}


def written(*messages: ChatMessage, images_in_tool_results: bool = False) -> list[dict[str, Any]]:
    """Return the messages on the wire."""
    conversation = conversation_of(asking(*messages, tool_specifications=(SEARCH,)))
    writer = MessageWriter(conversation, images_in_tool_results=images_in_tool_results, send_thinking=False)
    return list(writer.written())


def test_a_whole_conversation_is_written_as_the_api_documents_it() -> None:
    assert written(*CONVERSATION) == [
        {"role": "system", "content": "You are brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Was ist größer, 🦊?"},
                PICTURE,
                {
                    "type": "file",
                    "file": {"filename": "report.pdf", "file_data": f"data:application/pdf;base64,{PDF_BASE64}"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "one",
                    "type": "function",
                    "function": {"name": "files_search", "arguments": '{"text":"größe"}'},
                },
                {"id": "two", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
                {"id": "three", "type": "function", "function": {"name": "chart", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "one", "content": "Error: nothing found 🦊"},
        {"role": "tool", "tool_call_id": "two", "content": '{"sum": 3}'},
        {"role": "tool", "tool_call_id": "three", "content": "A chart.\n(shown in the next user message)"},
        {"role": "user", "content": [{"type": "text", "text": "From the result of chart (three):"}, PICTURE]},
        {"role": "assistant", "content": "It is 3."},
        {"role": "user", "content": "Thanks", "name": "Ann_Lee"},
    ]


def test_pictures_stay_in_the_tool_s_result_where_the_server_takes_them() -> None:
    result = ToolExecutionResultMessage("one", "chart", (Text("A chart."), Image(PIXEL)))
    assert written(result, images_in_tool_results=True) == [
        {"role": "tool", "tool_call_id": "one", "content": [{"type": "text", "text": "A chart."}, PICTURE]}
    ]


def test_pictures_of_several_results_follow_the_last_of_them() -> None:
    results = [ToolExecutionResultMessage(name, name, (Image(PIXEL),)) for name in ("a", "b")]
    assert written(*results) == [
        {"role": "tool", "tool_call_id": "a", "content": "(shown in the next user message)"},
        {"role": "tool", "tool_call_id": "b", "content": "(shown in the next user message)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of a (a):"},
                PICTURE,
                {"type": "text", "text": "From the result of b (b):"},
                PICTURE,
            ],
        },
    ]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (Audio(b"abc"), {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}),
        (Audio(b"abc", "audio/mpeg"), {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}}),
        (Audio(b"abc", "audio/ogg"), {"type": "text", "text": "[audio/ogg: 3 bytes, not shown]"}),
        (File("file:///a.txt", "größe", "text/plain"), {"type": "text", "text": "file:///a.txt:\ngröße"}),
        (File("file:///a.png", PIXEL, "image/png"), PICTURE),
        (
            File("file:///a.zip", b"PK", "application/zip"),
            {"type": "text", "text": "[file:///a.zip: 2 bytes of application/zip, not shown]"},
        ),
        (
            ResourceLink("https://x.org/a", "a", title="A", description="The first.", mime_type="text/html"),
            {"type": "text", "text": "Resource: A <https://x.org/a> text/html The first."},
        ),
    ],
)
def test_every_kind_of_block_has_a_part(block: Content, part: dict[str, Any]) -> None:
    assert written(UserMessage((block, Text("?")))) == [
        {"role": "user", "content": [part, {"type": "text", "text": "?"}]}
    ]


def test_a_message_that_only_calls_tools_has_null_content_and_an_empty_one_has_empty_text() -> None:
    call = AiMessage(tool_execution_requests=(ToolExecutionRequest("add", {"a": 1}, "x"),))
    assert written(call, AiMessage()) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
        },
        {"role": "assistant", "content": ""},
    ]


def test_half_a_character_does_not_stop_a_request() -> None:
    half = "\ud83d"
    messages = written(
        SystemMessage(half),
        UserMessage.of(half, name=half),
        AiMessage(half, (ToolExecutionRequest("add", {half: half}, "x"), ToolExecutionRequest("add", half, "y"))),
        ToolExecutionResultMessage("x", "add", (Text(half), File("a", half))),
    )
    assert repr(messages).count("�") == 9
    repr(messages).encode()


def test_arguments_that_are_no_object_are_kept_in_one_since_servers_parse_them() -> None:
    message = AiMessage(None, (ToolExecutionRequest("files.search", '{"a": ', "x"),))
    (sent,) = written(message)
    assert sent["tool_calls"][0]["function"]["arguments"] == '{"malformed_arguments":"{\\"a\\": "}'


Maker = Callable[..., OpenAiChatModel]


async def streamed_events(provider: Provider, openai: Maker, answer: Answer) -> list[ChatEvent]:
    """Return the events of one streamed response, with two tools offered."""
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
