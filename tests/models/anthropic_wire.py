"""Responses of Anthropic's messages API, as its reference documents them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.models.anthropic.model import AnthropicChatModel
from tests.models.provider import EVENT_STREAM, Answer, json_answer, server_sent

if TYPE_CHECKING:
    from tests.models.provider import Provider

USAGE = {
    "input_tokens": 4,
    "cache_creation_input_tokens": 10,
    "cache_read_input_tokens": 16,
    "output_tokens": 5,
}


def model(provider: Provider, **more: Any) -> AnthropicChatModel:
    """Return an adapter for a provider; it repeats no request."""
    usual: dict[str, Any] = {"base_url": provider.url, "api_key": "secret", "max_retries": 0, "timeout_seconds": 20}
    return AnthropicChatModel("test-model", **usual | more)


def message(*content: dict[str, Any], reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    """Return a message of the model."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "test-model-0801",
        "content": list(content),
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": USAGE,
    } | more


def reply(*content: dict[str, Any], reason: str = "end_turn", **more: Any) -> Answer:
    """Return a whole reply."""
    return json_answer(message(*content, reason=reason, **more))


def text(said: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": said}


def use(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def block_events(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def message_events(*blocks: list[dict[str, Any]], reason: str = "end_turn") -> list[dict[str, Any]]:
    """Return the events of one message."""
    start = message(reason=None, usage={**USAGE, "output_tokens": 1})
    return [
        {"type": "message_start", "message": start},
        {"type": "ping"},
        *(event for block in blocks for event in block),
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def stream_bytes(*blocks: list[dict[str, Any]], reason: str = "end_turn") -> bytes:
    """Return a streamed reply as bytes."""
    return server_sent(message_events(*blocks, reason=reason), named=True)


def streamed(*blocks: list[dict[str, Any]], reason: str = "end_turn") -> Answer:
    """Return a streamed reply."""
    return Answer(headers=EVENT_STREAM, chunks=(stream_bytes(*blocks, reason=reason),))
