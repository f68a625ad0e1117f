from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.models.anthropic.messages import FORBIDDEN_IN_ID, written_messages
from bridge.models.anthropic.model import AnthropicChatModel
from bridge.models.conversation import conversation_of
from bridge.service.chat_model import (
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    TokenUsage,
)
from bridge.service.messages import AiMessage, ChatMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Audio, Content, File, Image, ResourceLink, Text
from bridge.tools.tool import ToolExecutionRequest
from tests.models.anthropic_wire import block_events, message_events, streamed, text, use
from tests.models.provider import EVENT_STREAM, Answer, server_sent
from tests.models.requests import (
    ADD,
    CONVERSATION,
    PDF_BASE64,
    PIXEL,
    PIXEL_BASE64,
    SEARCH,
    asking,
    events_of,
    events_until_error,
    final,
)

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio

PICTURE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL_BASE64},
}


def written(*messages: ChatMessage) -> list[dict[str, Any]]:
    """Return the messages on the wire."""
    request = asking(*messages, tool_specifications=(SEARCH,))
    return written_messages(conversation_of(request, forbidden_in_id=FORBIDDEN_IN_ID))


def test_a_whole_conversation_is_written_as_the_api_documents_it() -> None:
    assert written(*CONVERSATION) == [
        {
            "role": "user",
            "content": [
                text("Was ist größer, 🦊?"),
                PICTURE,
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_BASE64},
                    "title": "report.pdf",
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                text("I look."),
                {"type": "tool_use", "id": "one", "name": "files_search", "input": {"text": "größe"}},
                {"type": "tool_use", "id": "two", "name": "add", "input": {"a": 1, "b": 2}},
                {"type": "tool_use", "id": "three", "name": "chart", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "one", "content": "nothing found 🦊", "is_error": True},
                {"type": "tool_result", "tool_use_id": "two", "content": '{"sum": 3}'},
                {"type": "tool_result", "tool_use_id": "three", "content": [text("A chart."), PICTURE]},
            ],
        },
        {"role": "assistant", "content": [text("It is 3.")]},
        {"role": "user", "content": [text("Thanks")]},
    ]


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (Image(PIXEL, "image/jpg"), {**PICTURE, "source": {**PICTURE["source"], "media_type": "image/jpeg"}}),
        (Image(PIXEL, "image/tiff"), text("[image/tiff: 6 bytes, not shown]")),
        (Audio(b"abc"), text("[audio/wav: 3 bytes, not shown]")),
        (
            File("file:///a.csv", "größe;1", "text/csv"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "größe;1"},
                "title": "a.csv",
            },
        ),
        (File("file:///a.png", PIXEL, "image/png"), PICTURE),
        (File("x:", b"PK"), text("[x:: 2 bytes of unknown type, not shown]")),
        (ResourceLink("https://x.org/a", "a"), text("Resource: a <https://x.org/a>")),
    ],
)
def test_every_kind_of_block_has_a_form(block: Content, wire: dict[str, Any]) -> None:
    assert written(UserMessage((block,))) == [{"role": "user", "content": [wire]}]


def test_what_is_blank_is_left_out_and_an_error_without_words_gets_some() -> None:
    assert written(
        UserMessage.of(" ", "Hello"),
        AiMessage(" "),
        AiMessage(None, (ToolExecutionRequest("add", {}, "x"), ToolExecutionRequest("add", {}, "y"))),
        ToolExecutionResultMessage("x", "add", (Text(" "),), is_error=True),
        ToolExecutionResultMessage("y", "add", ()),
    ) == [
        {"role": "user", "content": [text("Hello")]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": name, "name": "add", "input": {}} for name in ("x", "y")],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": "(no details)", "is_error": True},
                {"type": "tool_result", "tool_use_id": "y", "content": ""},
            ],
        },
    ]


def test_ids_of_other_providers_are_made_what_this_one_takes() -> None:
    call = AiMessage(None, (ToolExecutionRequest("add", {}, "functions.add:0"),))
    used, result = written(call, ToolExecutionResultMessage("functions.add:0", "add", (Text("3"),)))
    assert used["content"][0]["id"] == result["content"][0]["tool_use_id"] == "functions_add_0"


def test_arguments_that_are_no_object_are_kept_in_one() -> None:
    (message,) = written(AiMessage(None, (ToolExecutionRequest("add", '{"a": ', "x"),)))
    assert message["content"][0]["input"] == {"malformed_arguments": '{"a": '}


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
SEARCHED = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
KEPT = AiMessage(
    "I add.",
    (ToolExecutionRequest("add", {"a": 1}, "x"),),
    "Hm.",
    {"anthropic": {"content": [SEARCHED, text("I add."), THOUGHT, {"type": "tool_use", "id": "x"}]}},
)


def test_a_message_that_was_changed_since_keeps_its_thinking_and_loses_its_layout() -> None:
    use = {"type": "tool_use", "id": "x", "name": "add", "input": {"a": 1}}
    (kept,) = written(KEPT)
    assert kept["content"] == [SEARCHED, text("I add."), THOUGHT, use]
    (changed,) = written(replace(KEPT, text="I sum."))
    assert changed["content"] == [THOUGHT, text("I sum."), use]
    (silenced,) = written(replace(KEPT, tool_execution_requests=()))
    assert silenced["content"] == [THOUGHT, text("I add.")]


def test_what_another_provider_wants_back_is_not_sent() -> None:
    message = AiMessage("Hi", thinking="Hm.", attributes={"bedrock": {"content": [{"reasoningContent": {}}]}})
    assert written(message) == [{"role": "assistant", "content": [text("Hi")]}]


def test_half_a_character_does_not_stop_a_request() -> None:
    half = "\ud83d"
    messages = written(
        UserMessage.of(half),
        AiMessage(half, (ToolExecutionRequest("add", {half: half}, "x"), ToolExecutionRequest("add", half, "y"))),
        ToolExecutionResultMessage("x", "add", (Text(half), File("a", half))),
    )
    assert repr(messages).count("�") == 7
    repr(messages).encode()


Maker = Callable[..., AnthropicChatModel]

REQUEST = asking("Hello", tool_specifications=(ADD, SEARCH))


def said(piece: str) -> dict[str, Any]:
    """Return a piece of text."""
    return {"type": "text_delta", "text": piece}


def argued(piece: str) -> dict[str, Any]:
    """Return a piece of a call's arguments."""
    return {"type": "input_json_delta", "partial_json": piece}


async def test_a_streamed_reply_comes_in_pieces_and_whole(provider: Provider, anthropic: Maker) -> None:
    thinking = block_events(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "H"},
        {"type": "thinking_delta", "thinking": "m."},
        {"type": "signature_delta", "signature": "sig=="},
    )
    words = block_events(1, text(""), said("Grö"), said("ße 🦊"))
    first = block_events(2, use("x", "files_search", {}), argued(""), argued('{"te'), argued('xt":"ä"}'))
    second = block_events(3, use("y", "add", {}))
    provider.will_answer(streamed(thinking, words, first, second, reason="tool_use"))
    events = await events_of(anthropic(), REQUEST)
    calls = (
        ToolExecutionRequest("files.search", {"text": "ä"}, "x"),
        ToolExecutionRequest("add", {}, "y"),
    )
    assert events[:-1] == [
        PartialThinking("H"),
        PartialThinking("m."),
        PartialResponse("Grö"),
        PartialResponse("ße 🦊"),
        PartialToolCall(0, "x", "files.search", ""),
        PartialToolCall(0, "x", "files.search", '{"te'),
        PartialToolCall(0, "x", "files.search", 'xt":"ä"}'),
        CompleteToolCall(0, calls[0]),
        PartialToolCall(1, "y", "add", ""),
        CompleteToolCall(1, calls[1]),
    ]
    response = final(events)
    layout = [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
        text("Größe 🦊"),
        {"type": "tool_use", "id": "x"},
        {"type": "tool_use", "id": "y"},
    ]
    assert response.message == AiMessage("Größe 🦊", calls, "Hm.", {"anthropic": {"content": layout}})
    assert response.finish_reason is FinishReason.TOOL_EXECUTION
    assert response.token_usage == TokenUsage(30, 5, 16)
    assert (response.model_name, response.id) == ("test-model-0801", "msg_1")
    assert provider.body["stream"] is True


async def test_a_tool_that_the_provider_runs_itself_is_kept_and_not_asked_for(
    provider: Provider, anthropic: Maker
) -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    provider.will_answer(
        streamed(
            block_events(0, search, argued('{"query"'), argued(':"x"}')),
            block_events(1, found),
            block_events(2, text(""), said("Found."), {"type": "new_delta", "more": 1}),
        )
    )
    events = await events_of(anthropic(), REQUEST)
    assert events[:-1] == [PartialResponse("Found.")]
    layout = final(events).message.attributes["anthropic"]["content"]
    assert layout == [{**search, "input": {"query": "x"}}, found, text("Found.")]


async def test_a_call_that_was_cut_off_keeps_its_text(provider: Provider, anthropic: Maker) -> None:
    provider.will_answer(streamed(block_events(0, use("x", "add", {}), argued('{"a": ')), reason="max_tokens"))
    response = final(await events_of(anthropic(), REQUEST))
    assert response.message.tool_execution_requests == (ToolExecutionRequest("add", '{"a": ', "x"),)
    assert response.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [("overloaded_error", True), ("api_error", True), ("rate_limit_error", True), ("invalid_request_error", False)],
)
async def test_an_error_within_a_stream_is_raised(
    provider: Provider, anthropic: Maker, kind: str, retryable: bool
) -> None:
    events = message_events(block_events(0, text(""), said("Hi")))[:4]
    error = {"type": "error", "error": {"type": kind, "message": "Not now."}}
    stream = server_sent([*events, error], named=True)
    provider.will_answer(Answer(headers={**EVENT_STREAM, "request-id": "req_1"}, chunks=(stream,)))
    came, raised = await events_until_error(anthropic(), REQUEST)
    assert came == [PartialResponse("Hi")]
    assert str(raised) == "anthropic, request req_1: Not now."
    assert (raised.status, raised.request_id, raised.retryable) == (None, "req_1", retryable)
