"""Conversion of replies of Amazon Bedrock's Converse API, complete or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError
from bridge.models.bedrock.messages import PROVIDER, preserved_layout
from bridge.models.conversation import CallAssembler
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
    "guardrail_intervened": FinishReason.CONTENT_FILTER,
    "content_filtered": FinishReason.CONTENT_FILTER,
}


class ReplyReader:
    """Converts one reply.

    Args:
        offers: The tools of the request.
        response_format: The requested reply schema.
        model_name: The requested model; the API does not return it.
    """

    def __init__(self, offers: ProviderTools, response_format: RewrittenSchema | None, model_name: str) -> None:
        self.offers = offers
        self._response_format = response_format
        self._model_name = model_name

    def read(self, reply: Json) -> ChatResponse:
        """Convert a complete reply."""
        blocks = reply["output"]["message"]["content"]
        calls = tuple(
            self.offers.request(use["name"], use["input"], use["toolUseId"])
            for use in (block["toolUse"] for block in blocks if "toolUse" in block)
        )
        return self.response(blocks, calls, reply["stopReason"], reply.get("usage", {}), request_id_of(reply), reply)

    def response(
        self,
        blocks: Sequence[Json],
        calls: tuple[ToolExecutionRequest, ...],
        reason: str,
        usage: Json,
        response_id: str | None,
        raw: Any,
    ) -> ChatResponse:
        """Build a response from its parts."""
        text = "".join(block["text"] for block in blocks if "text" in block)
        reasoning = [block["reasoningContent"] for block in blocks if "reasoningContent" in block]
        thinking = "".join(each["reasoningText"]["text"] for each in reasoning if "reasoningText" in each)
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
            model_name=self._model_name,
            id=response_id,
            raw=raw,
        )


class StreamReader:
    """Converts one streamed reply to events."""

    def __init__(self, reader: ReplyReader, response_id: str | None) -> None:
        self._reader = reader
        self._response_id = response_id
        self._calls = CallAssembler(reader.offers, parsed=True)
        self._blocks: dict[int, Json] = {}
        self._positions: dict[int, int] = {}
        self._usage: Json = {}
        self._reason: str | None = None
        self._pieces: list[Json] = []

    def read(self, piece: Json) -> Iterator[ChatEvent]:
        """Convert one stream event; unknown kinds are ignored."""
        self._pieces.append(piece)
        for kind, data in piece.items():
            match kind:
                case "contentBlockStart" if "toolUse" in data["start"]:
                    yield from self._begin(data["contentBlockIndex"], data["start"]["toolUse"])
                case "contentBlockDelta":
                    yield from self._delta(data["contentBlockIndex"], data["delta"])
                case "contentBlockStop" if data["contentBlockIndex"] in self._positions:  # truncated calls end as well
                    yield from self._calls.complete_if_closed(self._positions[data["contentBlockIndex"]])
                case "messageStop":
                    self._reason = data["stopReason"]
                case "metadata":
                    self._usage = data["usage"]
                case _:
                    pass

    def finished(self) -> Iterator[ChatEvent]:
        """Yield the final events.

        Raises:
            ChatModelError: The stream ended before the reply was complete.
        """
        if self._reason is None:
            raise ChatModelError("the stream ended before the reply was complete", provider=PROVIDER, retryable=True)
        yield from self._calls.complete_all(broken_off=_finish_reason(self._reason) in BROKEN_OFF)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        response = self._reader.response(
            blocks, self._calls.requests, self._reason, self._usage, self._response_id, tuple(self._pieces)
        )
        yield CompleteResponse(response)

    def _begin(self, index: int, use: Json) -> Iterator[ChatEvent]:
        yield from self._calls.complete_all(broken_off=False)
        self._blocks[index] = {"toolUse": use}
        self._positions[index] = self._calls.begin(use["toolUseId"], use["name"])
        yield self._calls.add(self._positions[index], "")

    def _delta(self, index: int, delta: Json) -> Iterator[ChatEvent]:
        if "text" in delta:
            block = self._blocks.setdefault(index, {"text": ""})
            block["text"] += delta["text"]
            yield PartialResponse(delta["text"])
        elif "toolUse" in delta and index in self._positions:
            if delta["toolUse"]["input"]:
                yield self._calls.add(self._positions[index], delta["toolUse"]["input"])
        elif "reasoningContent" in delta:
            yield from self._reasoning(index, delta["reasoningContent"])

    def _reasoning(self, index: int, delta: Json) -> Iterator[ChatEvent]:
        block = self._blocks.setdefault(index, {"reasoningContent": {}})["reasoningContent"]
        if "redactedContent" in delta:
            block["redactedContent"] = block.get("redactedContent", b"") + delta["redactedContent"]
            return
        reasoning = block.setdefault("reasoningText", {"text": ""})
        if "signature" in delta:
            reasoning["signature"] = reasoning.get("signature", "") + delta["signature"]
        if "text" in delta:
            reasoning["text"] += delta["text"]
            yield PartialThinking(delta["text"])


def _finish_reason(reason: str) -> FinishReason:
    return _FINISH_REASONS.get(reason, FinishReason.OTHER)


def request_id_of(reply: Json) -> str | None:
    """The provider's request ID of a reply."""
    found: str | None = reply.get("ResponseMetadata", {}).get("RequestId")
    return found


def _usage(usage: Json) -> TokenUsage:
    """Convert the usage; the provider counts cached input and cache writes separately."""
    cached = usage.get("cacheReadInputTokens")
    parts = (usage.get("inputTokens"), usage.get("cacheWriteInputTokens"), cached)
    known = [part for part in parts if part is not None]
    return TokenUsage(sum(known) if known else None, usage.get("outputTokens"), cached)
