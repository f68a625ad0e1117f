"""Conversion of replies of Amazon Bedrock's Converse API, complete or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bridge.models.bedrock.messages import PROVIDER, preserved_layout
from bridge.models.replies import ReplyReader, usage_with_cache
from bridge.service.chat_model import FinishReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.models.provider_schemas import ProviderRequest
    from bridge.service.chat_model import ChatEvent
    from bridge.types import Json


class BedrockReply(ReplyReader):
    """Converts one reply. A stream begins with the reply's ``ResponseMetadata``, as an event of this name."""

    provider = PROVIDER
    finish_reasons: ClassVar = {
        "end_turn": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "max_tokens": FinishReason.LENGTH,
        "model_context_window_exceeded": FinishReason.LENGTH,
        "tool_use": FinishReason.TOOL_EXECUTION,
        "guardrail_intervened": FinishReason.CONTENT_FILTER,
        "content_filtered": FinishReason.CONTENT_FILTER,
    }

    def __init__(self, request: ProviderRequest) -> None:
        super().__init__(request)
        self.model_name = request.model_name  # the API does not return it
        self._blocks: dict[int, Json] = {}

    def read_complete(self, reply: Json) -> None:
        """Read a complete reply."""
        self._metadata(reply)
        for index, block in enumerate(reply["output"]["message"]["content"]):
            self._blocks[index] = block
            self.text.append(block.get("text", ""))
            if "reasoningText" in block.get("reasoningContent", ()):
                self.thinking.append(block["reasoningContent"]["reasoningText"]["text"])
            if use := block.get("toolUse"):
                self.calls.begin(index, use["toolUseId"], use["name"], use["input"])
        self.end(reply["stopReason"])

    def read_event(self, event: Json) -> Iterator[ChatEvent]:
        """Read one stream event; unknown kinds are ignored."""
        for kind, data in event.items():
            match kind:
                case "ResponseMetadata":
                    self._metadata(event)
                case "contentBlockStart" if "toolUse" in data["start"]:
                    yield from self._begin_call(data["contentBlockIndex"], data["start"]["toolUse"])
                case "contentBlockDelta":
                    yield from self._delta(data["contentBlockIndex"], data["delta"])
                case "contentBlockStop" if data["contentBlockIndex"] in self.calls:  # truncated calls end as well
                    yield from self.calls.complete_if_closed(data["contentBlockIndex"])
                case "messageStop":
                    self.end(data["stopReason"])
                case "metadata":
                    self._metadata(data)
                case _:
                    pass

    def attributes(self) -> Json:
        """Blocks that must be sent back unchanged."""
        layout = preserved_layout(self._blocks[index] for index in sorted(self._blocks))
        return {} if layout is None else {"content": layout}

    def _metadata(self, reply: Json) -> None:
        self.id = reply.get("ResponseMetadata", {}).get("RequestId", self.id)
        inputs = ("inputTokens", "cacheWriteInputTokens")
        self.usage = usage_with_cache(reply.get("usage", {}), "outputTokens", "cacheReadInputTokens", *inputs)

    def _begin_call(self, index: int, use: Json) -> Iterator[ChatEvent]:
        yield from self.calls.complete_all()
        self._blocks[index] = {"toolUse": use}
        self.calls.begin(index, use["toolUseId"], use["name"])
        yield self.calls.add(index, "")

    def _delta(self, index: int, delta: Json) -> Iterator[ChatEvent]:
        if "text" in delta:
            self._blocks.setdefault(index, {"text": ""})["text"] += delta["text"]
            yield from self.add_text(delta["text"])
        elif "toolUse" in delta and index in self.calls:
            if delta["toolUse"]["input"]:
                yield self.calls.add(index, delta["toolUse"]["input"])
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
            yield from self.add_thinking(delta["text"])
