"""Conversion of messages and replies, complete or streamed, of Anthropic's messages API."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.models.conversation import arguments_as_object
from bridge.models.encoding import base64_of, file_name_of, image_in, is_pdf, json_object
from bridge.models.replies import ReplyReader, usage_with_cache
from bridge.service.chat_model import FinishReason
from bridge.service.messages import AiMessage, ToolExecutionResultMessage, UserMessage
from bridge.text import utf8_text
from bridge.tools.content import File, describe_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from anthropic.types import Message, RawMessageStreamEvent

    from bridge.models.conversation import Conversation, ConversationMessage
    from bridge.models.provider_schemas import ProviderRequest
    from bridge.service.chat_model import ChatEvent
    from bridge.tools.content import Content
    from bridge.types import Json


PROVIDER = "anthropic"
"""Key of this provider in message attributes."""
FORBIDDEN_IN_ID = r"[^A-Za-z0-9_-]"
"""Character that the API does not allow in call IDs; other providers may use it."""

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def written_messages(conversation: Conversation) -> list[Json]:
    """Convert the messages to alternating user and assistant turns; tool results are user turns."""
    return conversation.turns(partial(_blocks, conversation))


def preserved_layout(blocks: Iterable[Json]) -> list[Json] | None:
    """Blocks of a reply that must be sent back unchanged and in order, such as thinking with its signature.

    Tool calls are stored as references to the message's own requests.
    """
    layout = [{"type": "tool_use", "id": block["id"]} if block["type"] == "tool_use" else block for block in blocks]
    return layout if any(block["type"] not in {"text", "tool_use"} for block in layout) else None


def _blocks(conversation: Conversation, message: ConversationMessage) -> Iterator[Json]:
    match message:
        case UserMessage():
            yield from _content(message.content)
        case ToolExecutionResultMessage():
            yield _result(message, conversation)
        case AiMessage():
            yield from _said(message, conversation)


def _said(message: AiMessage, conversation: Conversation) -> Iterator[Json]:
    calls = {request.id: request for request in message.tool_execution_requests}
    uses = {
        str(call_id): {
            "type": "tool_use",
            "id": conversation.ids[str(call_id)],
            "name": conversation.names[request.name],
            "input": arguments_as_object(request),
        }
        for call_id, request in calls.items()
    }
    layout: list[Json] = message.attributes.get(PROVIDER, {}).get("content", [])
    text = "".join(block["text"] for block in layout if block["type"] == "text")
    ids = [block["id"] for block in layout if block["type"] == "tool_use"]
    if not layout or text != (message.text or "") or ids != list(uses):  # the message was changed
        thoughts = [block for block in layout if block["type"] in {"thinking", "redacted_thinking"}]
        layout = [*thoughts, {"type": "text", "text": message.text or ""}, *uses.values()]
    for block in layout:
        if block["type"] == "tool_use":
            yield uses.get(block["id"], block)
        elif block["type"] != "text":
            yield dict(block)
        elif block["text"].strip():
            yield {**block, "text": utf8_text(block["text"])}


def _result(message: ToolExecutionResultMessage, conversation: Conversation) -> Json:
    blocks = list(_content(message.content))
    content: str | list[Json] = blocks
    if not blocks:
        content = "(no details)" if message.is_error else ""
    elif len(blocks) == 1 and blocks[0]["type"] == "text":
        content = blocks[0]["text"]
    result: Json = {"type": "tool_result", "tool_use_id": conversation.ids[str(message.id)], "content": content}
    return result | ({"is_error": True} if message.is_error else {})


def _content(blocks: Iterable[Content]) -> Iterator[Json]:
    """Convert content blocks; the API rejects blank text, which is left out."""
    for block in blocks:
        written = _block(block)
        if written["type"] != "text" or written["text"].strip():
            yield written


def _block(block: Content) -> Json:
    image = image_in(block)
    if image is not None and image.mime_type in _IMAGES:
        return {"type": "image", "source": _base64(image.mime_type, base64_of(image))}
    if isinstance(block, File):
        title = utf8_text(file_name_of(block))
        if is_pdf(block):
            return {"type": "document", "source": _base64("application/pdf", base64_of(block)), "title": title}
        if isinstance(block.content, str) and block.content.strip():
            source = {"type": "text", "media_type": "text/plain", "data": utf8_text(block.content)}
            return {"type": "document", "source": source, "title": title}
    return {"type": "text", "text": describe_block(block)}


def _base64(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}


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
