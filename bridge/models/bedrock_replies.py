"""Replies as Amazon Bedrock's Converse API writes them, whole or in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError
from bridge.models.bedrock_messages import PROVIDER, preserved_layout
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
    """Reads one reply.

    Args:
        offers: The tools of the request.
        response_format: What the reply was to conform to.
        model_name: The model that was asked; the API does not say who answers.
    """

    def __init__(self, offers: ProviderTools, response_format: RewrittenSchema | None, model_name: str) -> None:
        self.offers = offers
        self._response_format = response_format
        self._model_name = model_name

    def read(self, reply: Json) -> ChatResponse:
        """A whole reply."""
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
        """A response of its parts."""
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
    """Reads one streamed reply; gives the events of its pieces.

    Args:
        reader: Reads what is the same in whole replies.
        response_id: What the provider calls the request.
    """

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
        """The events of one piece; kinds of pieces that are not known are let pass."""
        self._pieces.append(piece)
        for kind, told in piece.items():
            match kind:
                case "contentBlockStart" if "toolUse" in told["start"]:
                    yield from self._begin(told["contentBlockIndex"], told["start"]["toolUse"])
                case "contentBlockDelta":
                    yield from self._delta(told["contentBlockIndex"], told["delta"])
                case "contentBlockStop" if told["contentBlockIndex"] in self._positions:  # cut off calls stop too
                    yield from self._calls.complete_if_closed(self._positions[told["contentBlockIndex"]])
                case "messageStop":
                    self._reason = told["stopReason"]
                case "metadata":
                    self._usage = told["usage"]
                case _:
                    pass

    def finished(self) -> Iterator[ChatEvent]:
        """The last events.

        Raises:
            ChatModelError: The stream broke off.
        """
        if self._reason is None:
            raise ChatModelError("the stream broke off before the reply was whole", provider=PROVIDER, retryable=True)
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
        told = block.setdefault("reasoningText", {"text": ""})
        if "signature" in delta:
            told["signature"] = told.get("signature", "") + delta["signature"]
        if "text" in delta:
            told["text"] += delta["text"]
            yield PartialThinking(delta["text"])


def _finish_reason(reason: str) -> FinishReason:
    return _FINISH_REASONS.get(reason, FinishReason.OTHER)


def request_id_of(reply: Json) -> str | None:
    """What the provider calls the request that a reply answers."""
    found: str | None = reply.get("ResponseMetadata", {}).get("RequestId")
    return found


def _usage(usage: Json) -> TokenUsage:
    """The provider counts what a cache served, and what was written to it, apart from the other input."""
    cached = usage.get("cacheReadInputTokens")
    parts = (usage.get("inputTokens"), usage.get("cacheWriteInputTokens"), cached)
    known = [part for part in parts if part is not None]
    return TokenUsage(sum(known) if known else None, usage.get("outputTokens"), cached)
