from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.models.bedrock.messages import (
    FORBIDDEN_IN_ID,
    MessageWriter,
    from_json_data,
    preserved_layout,
    to_json_data,
)
from bridge.models.bedrock.model import BedrockChatModel
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
from tests.models.bedrock_wire import EVENTS, call, event, failure, said, stream_events, streamed
from tests.models.provider import Answer
from tests.models.requests import ADD, CONVERSATION, PDF, PIXEL, SEARCH, asking, events_of, events_until_error, final

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio

PICTURE = {"image": {"format": "png", "source": {"bytes": PIXEL}}}


def writer(*messages: ChatMessage) -> MessageWriter:
    """Return a writer of messages for a request with a tool."""
    request = asking(*messages, tool_specifications=(SEARCH,))
    return MessageWriter(conversation_of(request, forbidden_in_id=FORBIDDEN_IN_ID), with_tools=True)


def written(*messages: ChatMessage) -> list[dict[str, Any]]:
    """Return the messages as boto3 takes them."""
    return writer(*messages).written()


def used(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}


def result(call_id: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a block with a tool's result."""
    return {"toolResult": {"toolUseId": call_id, "content": list(content), **more}}


def test_a_whole_conversation_is_written_as_the_api_documents_it() -> None:
    assert written(*CONVERSATION) == [
        {
            "role": "user",
            "content": [
                {"text": "Was ist größer, 🦊?"},
                PICTURE,
                {"document": {"format": "pdf", "name": "report pdf", "source": {"bytes": PDF}}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"text": "I look."},
                used("one", "files_search", {"text": "größe"}),
                used("two", "add", {"a": 1, "b": 2}),
                used("three", "chart", {}),
            ],
        },
        {
            "role": "user",
            "content": [
                result("one", {"text": "nothing found 🦊"}, status="error"),
                result("two", {"json": {"sum": 3}}),
                result("three", {"text": "A chart."}, PICTURE),
            ],
        },
        {"role": "assistant", "content": [{"text": "It is 3."}]},
        {"role": "user", "content": [{"text": "Thanks"}]},
    ]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"a": [1.5, null, "ß"]}', {"json": {"a": [1.5, None, "ß"]}}),
        ("[1, 2]", {"text": "[1, 2]"}),
        ("3", {"text": "3"}),
        ('{"a": NaN}', {"text": '{"a": NaN}'}),
        ('{"a": 1} and more', {"text": '{"a": 1} and more'}),
        ("Success", {"text": "Success"}),
        ("", {"text": "(nothing)"}),
    ],
)
def test_a_result_is_json_where_all_of_it_is_one_object(text: str, content: dict[str, Any]) -> None:
    message = ToolExecutionResultMessage("x", "add", (Text(text),))
    assert written(message) == [{"role": "user", "content": [result("x", content)]}]


def test_an_error_is_text_even_where_it_is_an_object() -> None:
    message = ToolExecutionResultMessage("x", "add", (Text('{"a": 1}'),), is_error=True)
    assert written(message)[0]["content"] == [result("x", {"text": '{"a": 1}'}, status="error")]


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (Image(PIXEL, "image/jpg"), {"image": {"format": "jpeg", "source": {"bytes": PIXEL}}}),
        (Image(PIXEL, "image/tiff"), {"text": "[image/tiff: 6 bytes, not shown]"}),
        (Image(b""), {"text": "[image/png: 0 bytes, not shown]"}),
        (Audio(b"abc", "audio/mp3"), {"audio": {"format": "mp3", "source": {"bytes": b"abc"}}}),
        (Audio(b"abc", "audio/midi"), {"text": "[audio/midi: 3 bytes, not shown]"}),
        (File("file:///a.txt", "größe", "text/plain"), {"text": "file:///a.txt:\ngröße"}),
        (
            File("file:///a.zip", b"PK", "application/zip"),
            {"text": "[file:///a.zip: 2 bytes of application/zip, not shown]"},
        ),
        (ResourceLink("https://x.org/a", "a"), {"text": "Resource: a <https://x.org/a>"}),
    ],
)
def test_every_kind_of_block_has_a_form(block: Content, wire: dict[str, Any]) -> None:
    assert written(UserMessage((block,))) == [{"role": "user", "content": [wire]}]


def test_documents_have_plain_names_that_differ_and_a_text_beside_them() -> None:
    paper = File("file:///a/b/Größe_%20#1!.pdf", PDF, "application/pdf")
    (message,) = written(UserMessage((paper, paper)))
    names = [block["document"]["name"] for block in message["content"][:2]]
    assert names == ["Gr e 20 1 pdf", "Gr e 20 1 pdf (2)"]
    assert message["content"][2] == {"text": "See the document."}


def test_a_result_holds_no_sound() -> None:
    message = ToolExecutionResultMessage("x", "say", (Audio(b"abc"),))
    assert written(message)[0]["content"] == [result("x", {"text": "[audio/wav: 3 bytes, not shown]"})]


def test_what_is_blank_is_left_out() -> None:
    call = AiMessage(" ", (ToolExecutionRequest("add", {}, "x"),))
    assert written(UserMessage.of(" ", "Hello"), AiMessage(""), call) == [
        {"role": "user", "content": [{"text": "Hello"}]},
        {"role": "assistant", "content": [used("x", "add", {})]},
    ]


THOUGHT: dict[str, Any] = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
SECRET: dict[str, Any] = {"reasoningContent": {"redactedContent": b"\x00\xff"}}
BLOCKS = [THOUGHT, {"text": "I add."}, SECRET, used("x", "add", {"a": 1})]
KEPT = AiMessage(
    "I add.", (ToolExecutionRequest("add", {"a": 1}, "x"),), "Hm.", {"bedrock": {"content": preserved_layout(BLOCKS)}}
)


def test_a_message_that_was_changed_since_keeps_its_reasoning_and_loses_its_layout() -> None:
    assert written(KEPT)[0]["content"] == BLOCKS
    changed = written(replace(KEPT, text="I sum."))
    assert changed[0]["content"] == [THOUGHT, SECRET, {"text": "I sum."}, used("x", "add", {"a": 1})]


def test_what_is_kept_of_a_reply_is_json_and_comes_back_as_it_was() -> None:
    assert to_json_data(SECRET) == {"reasoningContent": {"redactedContent": {"base64": "AP8="}}}
    assert from_json_data(to_json_data([SECRET, THOUGHT, 1])) == [SECRET, THOUGHT, 1]


def test_half_a_character_does_not_stop_a_request() -> None:
    half = "\ud83d"
    messages = written(
        UserMessage.of(half),
        AiMessage(half, (ToolExecutionRequest("add", {half: half}, "x"), ToolExecutionRequest("add", half, "y"))),
        ToolExecutionResultMessage("x", "add", (Text(half), File("a", half))),
    )
    assert repr(messages).count("�") == 7
    repr(messages).encode()


Maker = Callable[..., BedrockChatModel]

REQUEST = asking("Hello", tool_specifications=(ADD, SEARCH))


async def test_a_streamed_reply_comes_in_pieces_and_whole(provider: Provider, bedrock: Maker) -> None:
    thinking = said(
        0,
        {"reasoningContent": {"text": "H"}},
        {"reasoningContent": {"text": "m."}},
        {"reasoningContent": {"signature": "sig=="}},
    )
    secret = said(1, {"reasoningContent": {"redactedContent": b64encode(b"\x00\xff").decode()}})
    words = said(2, {"text": "Grö"}, {"text": "ße 🦊"})
    first, second = call(3, "x", "files_search", "", '{"te', 'xt":"ä"}'), call(4, "y", "add")
    provider.will_answer(streamed(thinking, secret, words, first, second, reason="tool_use"))
    events = await events_of(bedrock(), REQUEST)
    calls = (ToolExecutionRequest("files.search", {"text": "ä"}, "x"), ToolExecutionRequest("add", {}, "y"))
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
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig=="}}},
        {"reasoningContent": {"redactedContent": {"base64": "AP8="}}},
        {"text": "Größe 🦊"},
        {"toolUse": "x"},
        {"toolUse": "y"},
    ]
    assert response.message == AiMessage("Größe 🦊", calls, "Hm.", {"bedrock": {"content": layout}})
    assert response.finish_reason is FinishReason.TOOL_EXECUTION
    assert response.token_usage == TokenUsage(30, 5, 16)
    assert (response.model_name, response.id) == ("test.model-v1:0", "req-1")
    assert provider.requests[0].path == "/model/test.model-v1%3A0/converse-stream"


async def test_a_call_that_was_cut_off_keeps_its_text(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(streamed(call(0, "x", "add", '{"a": '), reason="max_tokens"))
    response = final(await events_of(bedrock(), REQUEST))
    assert response.message.tool_execution_requests == (ToolExecutionRequest("add", '{"a": ', "x"),)
    assert response.finish_reason is FinishReason.LENGTH


async def test_events_of_a_new_kind_are_let_pass(provider: Provider, bedrock: Maker) -> None:
    first, *others = stream_events(said(0, {"text": "Hi"}, {"citation": {"title": "a"}}))
    provider.will_answer(Answer(headers=EVENTS, chunks=(first, event("newEvent", {"a": 1}), *others)))
    assert final(await events_of(bedrock(), REQUEST)).message == AiMessage("Hi")


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("throttlingException", True),
        ("modelStreamErrorException", True),
        ("serviceUnavailableException", True),
        ("validationException", False),
    ],
)
async def test_an_error_within_a_stream_is_raised(
    provider: Provider, bedrock: Maker, kind: str, retryable: bool
) -> None:
    events = stream_events(said(0, {"text": "Hi"}))[:2]
    provider.will_answer(Answer(headers=EVENTS, chunks=(*events, failure(kind, "Not now."))))
    came, error = await events_until_error(bedrock(), REQUEST)
    assert came == [PartialResponse("Hi")]
    assert str(error) == f"bedrock: {kind}: Not now."
    assert (error.status, error.retryable) == (None, retryable)
