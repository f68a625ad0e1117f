"""Responses of OpenAI's chat completions API, as its reference documents them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.models.openai.model import OpenAiChatModel
from tests.models.provider import EVENT_STREAM, Answer, json_answer, server_sent

if TYPE_CHECKING:
    from tests.models.provider import Provider

USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 5,
    "total_tokens": 25,
    "prompt_tokens_details": {"cached_tokens": 16},
}


def model(provider: Provider, **more: Any) -> OpenAiChatModel:
    """Return an adapter for a provider; it repeats no request."""
    usual: dict[str, Any] = {
        "base_url": f"{provider.url}/v1",
        "api_key": "secret",
        "max_retries": 0,
        "timeout_seconds": 20,
    }
    return OpenAiChatModel("test-model", **usual | more)


def completion(message: dict[str, Any], reason: str = "stop", **more: Any) -> Answer:
    """Return a whole reply."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None} | message, "finish_reason": reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "test-model-0801"}
    return json_answer(body | {"choices": [choice], "usage": USAGE} | more)


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one chunk of a streamed reply."""
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": reason}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test-model-0801"}
    return head | {"choices": choices} | more


def call(index: int | None, arguments: str | None = None, name: str | None = None, call_id: str | None = None) -> Any:
    """Return the delta of one tool call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    told = {"index": index, "id": call_id, "type": "function" if call_id else None, "function": function}
    return {"tool_calls": [{key: value for key, value in told.items() if value is not None}]}


def streamed(*chunks: dict[str, Any]) -> Answer:
    """Return a streamed reply with its end marker."""
    return Answer(headers=EVENT_STREAM, chunks=(server_sent(chunks, done=True),))


FINAL = chunk(choices=[], usage=USAGE)
