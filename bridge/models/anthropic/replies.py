"""Conversion of replies of Anthropic's messages API, complete or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bridge.models.anthropic.messages import PROVIDER, preserved_layout
from bridge.models.encoding import json_object
from bridge.models.replies import ReplyReader, usage_with_cache
from bridge.service.chat_model import FinishReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anthropic.types import Message, RawMessageStreamEvent

    from bridge.models.provider_schemas import ProviderRequest
    from bridge.service.chat_model import ChatEvent
    from bridge.types import Json


class AnthropicReply(ReplyReader):
    """Converts one reply."""

    provider = PROVIDER
    finish_reasons: ClassVar = {
        "end_turn": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "max_tokens": FinishReason.LENGTH,
        "model_context_window_exceeded": FinishReason.LENGTH,
        "tool_use": FinishReason.TOOL_EXECUTION,
        "refusal": FinishReason.CONTENT_FILTER,
    }

    def __init__(self, request: ProviderRequest) -> None:
        super().__init__(request)
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, list[str]] = {}
        self._stop_reason: str | None = None
        self._usage: Json = {}

    def read_complete(self, reply: Message) -> None:
        """Read a complete reply."""
        message: Json = reply.to_dict(warnings=False)
        self._begin(message)
        for index, block in enumerate(message["content"]):
            list(self._begin_block(index, block, block.get("input")))
        self._end()

    def read_event(self, event: RawMessageStreamEvent) -> Iterator[ChatEvent]:
        """Read one stream event; unknown kinds are ignored."""
        match event.type:
            case "message_start":
                self._begin(event.message.to_dict(warnings=False))
            case "content_block_start":
                yield from self._begin_block(event.index, event.content_block.to_dict())
            case "content_block_delta":
                yield from self._delta(event.index, event.delta.to_dict())
            case "content_block_stop" if event.index in self.calls:
                yield from self.calls.complete_if_closed(event.index)  # truncated calls end as well
            case "content_block_stop" if event.index in self._inputs:  # a tool run by the provider
                self._blocks[event.index]["input"] = json_object("".join(self._inputs[event.index])) or {}
            case "message_delta":
                self._stop_reason = event.delta.stop_reason
                self._usage |= {key: value for key, value in event.usage.to_dict().items() if value is not None}
            case "message_stop":
                self._end()

    def attributes(self) -> Json:
        """Blocks that must be sent back unchanged."""
        layout = preserved_layout([self._blocks[index] for index in sorted(self._blocks)])
        return {} if layout is None else {"content": layout}

    def _begin(self, message: Json) -> None:
        self.id, self.model_name, self._usage = message["id"], message["model"], message["usage"]
        self._stop_reason = message.get("stop_reason")

    def _end(self) -> None:
        self.end(self._stop_reason)
        inputs = ("input_tokens", "cache_creation_input_tokens")
        self.usage = usage_with_cache(self._usage, "output_tokens", "cache_read_input_tokens", *inputs)

    def _begin_block(self, index: int, block: Json, arguments: Json | None = None) -> Iterator[ChatEvent]:
        self._blocks[index] = block
        if block["type"] == "tool_use":
            yield from self.calls.complete_all()
            self.calls.begin(index, block["id"], block["name"], arguments)
            yield self.calls.add(index, "")
        elif block["type"] == "text" and block["text"]:
            yield from self.add_text(block["text"])
        elif block["type"] == "thinking" and block["thinking"]:
            yield from self.add_thinking(block["thinking"])

    def _delta(self, index: int, delta: Json) -> Iterator[ChatEvent]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                yield from self.add_text(delta["text"])
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
                yield from self.add_thinking(delta["thinking"])
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "input_json_delta" if index in self.calls:
                if delta["partial_json"]:
                    yield self.calls.add(index, delta["partial_json"])
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
            case _:
                pass
