from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bridge.models.bedrock.model import BedrockChatModel
from bridge.service.chat_model import (
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    TokenUsage,
)
from bridge.service.messages import AiMessage
from bridge.tools.tool import ToolExecutionRequest
from tests.models.bedrock_wire import EVENTS, call, event, failure, said, stream_events, streamed
from tests.models.provider import Answer
from tests.models.requests import ADD, SEARCH, asking, events_of, events_until_error, final

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio
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
