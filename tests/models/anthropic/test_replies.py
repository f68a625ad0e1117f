from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bridge.models.anthropic.model import AnthropicChatModel
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
from tests.models.anthropic_wire import block_events, message_events, streamed, text, use
from tests.models.provider import EVENT_STREAM, Answer, server_sent
from tests.models.requests import ADD, SEARCH, asking, events_of, events_until_error, final

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio
Maker = Callable[..., AnthropicChatModel]

REQUEST = asking("Hello", tool_specifications=(ADD, SEARCH))


def said(piece: str) -> dict[str, Any]:
    """A piece of text."""
    return {"type": "text_delta", "text": piece}


def argued(piece: str) -> dict[str, Any]:
    """A piece of a call's arguments."""
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
