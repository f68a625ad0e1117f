"""Conversion of replies of Anthropic's messages API, complete or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError
from bridge.models.anthropic.messages import PROVIDER, preserved_layout
from bridge.models.conversation import CallAssembler
from bridge.models.encoding import json_object
from bridge.models.provider_schemas import restored_text
from bridge.service.chat_model import (
    BROKEN_OFF,
    ChatResponse,
    CompleteResponse,
    FinishReason,
    PartialResponse,
    PartialThinking,
    TokenUsage,
)
from bridge.service.messages import AiMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anthropic.types import Message, RawMessageStreamEvent

    from bridge.models.profiles.rewriting import RewrittenSchema
    from bridge.models.provider_schemas import ProviderTools
    from bridge.service.chat_model import ChatEvent
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json

_FINISH_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_EXECUTION,
    "refusal": FinishReason.CONTENT_FILTER,
}


class ReplyReader:
    """Converts one reply."""

    def __init__(self, offers: ProviderTools, response_format: RewrittenSchema | None) -> None:
        self.offers = offers
        self._response_format = response_format

    def read(self, message: Message) -> ChatResponse:
        """Convert a complete reply."""
        blocks: list[Json] = [block.to_dict() for block in message.content]
        calls = tuple(
            self.offers.request(block["name"], block["input"], block["id"])
            for block in blocks
            if block["type"] == "tool_use"
        )
        usage = message.usage.to_dict()
        return self.response(blocks, calls, message.stop_reason, usage, message.model, message.id, message)

    def response(
        self,
        blocks: Sequence[Json],
        calls: tuple[ToolExecutionRequest, ...],
        reason: str | None,
        usage: Json,
        model_name: str | None,
        response_id: str | None,
        raw: Any,
    ) -> ChatResponse:
        """Build a response from its parts."""
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        thinking = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
        layout = preserved_layout(blocks)
        return ChatResponse(
            message=AiMessage(
                restored_text(text, self._response_format) or None,
                calls,
                thinking or None,
                {PROVIDER: {"content": layout}} if layout is not None else {},
            ),
            token_usage=_usage(usage),
            finish_reason=_finish_reason(reason),
            model_name=model_name,
            id=response_id,
            raw=raw,
        )


class StreamReader:
    """Converts one streamed reply to events."""

    def __init__(self, reader: ReplyReader) -> None:
        self._reader = reader
        self._calls = CallAssembler(reader.offers, parsed=True)
        self._blocks: dict[int, Json] = {}
        self._pieces: dict[int, list[str]] = {}
        self._positions: dict[int, int] = {}
        self._usage: Json = {}
        self._start: Message | None = None
        self._reason: str | None = None
        self._is_whole = False
        self._events: list[RawMessageStreamEvent] = []

    def read(self, event: RawMessageStreamEvent) -> Iterator[ChatEvent]:
        """Convert one stream event; unknown kinds are ignored."""
        self._events.append(event)
        if event.type == "message_start":
            self._start = event.message
            self._usage = event.message.usage.to_dict()
        elif event.type == "content_block_start":
            yield from self._begin(event.index, event.content_block.to_dict())
        elif event.type == "content_block_delta":
            yield from self._delta(event.index, event.delta.to_dict())
        elif event.type == "content_block_stop":
            yield from self._end(event.index)
        elif event.type == "message_delta":
            self._reason = event.delta.stop_reason
            usage = event.usage.to_dict()
            self._usage |= {key: value for key, value in usage.items() if value is not None}
        elif event.type == "message_stop":
            self._is_whole = True

    def finished(self) -> Iterator[ChatEvent]:
        """Yield the final events.

        Raises:
            ChatModelError: The stream ended before the reply was complete.
        """
        if not self._is_whole or self._start is None:
            raise ChatModelError("the stream ended before the reply was complete", provider=PROVIDER, retryable=True)
        yield from self._calls.complete_all(broken_off=_finish_reason(self._reason) in BROKEN_OFF)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        start = self._start
        response = self._reader.response(
            blocks, self._calls.requests, self._reason, self._usage, start.model, start.id, tuple(self._events)
        )
        yield CompleteResponse(response)

    def _begin(self, index: int, block: Json) -> Iterator[ChatEvent]:
        self._blocks[index] = block
        self._pieces[index] = []
        if block["type"] == "tool_use":
            yield from self._calls.complete_all(broken_off=False)
            self._positions[index] = self._calls.begin(block["id"], block["name"])
            yield self._calls.add(self._positions[index], "")
        elif block["type"] == "text" and block["text"]:
            yield PartialResponse(block["text"])

    def _delta(self, index: int, delta: Json) -> Iterator[ChatEvent]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                yield PartialResponse(delta["text"])
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
                yield PartialThinking(delta["thinking"])
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "input_json_delta" if index in self._positions:
                if delta["partial_json"]:
                    yield self._calls.add(self._positions[index], delta["partial_json"])
            case "input_json_delta":
                self._pieces[index].append(delta["partial_json"])
            case _:
                pass

    def _end(self, index: int) -> Iterator[ChatEvent]:
        if index in self._positions:
            yield from self._calls.complete_if_closed(self._positions[index])  # truncated calls end as well
        elif self._pieces[index]:  # a tool run by the provider
            self._blocks[index]["input"] = json_object("".join(self._pieces[index])) or {}


def _finish_reason(reason: str | None) -> FinishReason:
    return _FINISH_REASONS.get(reason or "", FinishReason.OTHER)


def _usage(usage: Json) -> TokenUsage:
    """Convert the usage; the provider counts cached input and cache writes separately."""
    cached = usage.get("cache_read_input_tokens")
    parts = (usage.get("input_tokens"), usage.get("cache_creation_input_tokens"), cached)
    known = [part for part in parts if part is not None]
    return TokenUsage(sum(known) if known else None, usage.get("output_tokens"), cached)
