"""Conversion of messages and replies, complete or streamed, of Amazon Bedrock's Converse API."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.models.conversation import arguments_as_object, arguments_as_text
from bridge.models.encoding import file_name_of, image_in, json_object
from bridge.models.replies import ReplyReader, usage_with_cache
from bridge.service.chat_model import FinishReason
from bridge.service.messages import AiMessage, ToolExecutionResultMessage, UserMessage
from bridge.text import utf8_text
from bridge.tools.content import Audio, File, Text, describe_block, media_type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge.models.conversation import Conversation, ConversationMessage
    from bridge.models.provider_schemas import ProviderRequest
    from bridge.service.chat_model import ChatEvent
    from bridge.tools.content import Content
    from bridge.types import Json


PROVIDER = "bedrock"
"""Key of this provider in message attributes."""
FORBIDDEN_IN_ID = r"[^A-Za-z0-9_.:-]"
"""Character that the API does not allow in call IDs; other providers may use it."""

_IMAGES = {f"image/{kind}": kind for kind in ("png", "jpeg", "gif", "webp")}
_AUDIO = {f"audio/{kind}": kind for kind in ("aac", "flac", "mp4", "ogg", "opus", "wav", "webm")} | {
    "audio/mpeg": "mp3"
}
_DOCUMENTS = {
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
_NOT_IN_A_DOCUMENT_NAME = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_MAX_DOCUMENT_NAME_CHARS = 190


class MessageWriter:
    """Converts the messages of one request.

    Args:
        conversation: The messages, with names and IDs for the provider.
        with_tools: True if the request offers tools. Otherwise calls and results are converted to text, since Converse
            rejects tool blocks in a request without tools.
    """

    def __init__(self, conversation: Conversation, *, with_tools: bool) -> None:
        self._conversation = conversation
        self._with_tools = with_tools
        self._document_names: set[str] = set()

    def written(self) -> list[Json]:
        """Convert the messages to alternating user and assistant turns; tool results are user turns."""
        return self._conversation.turns(self._blocks)

    def _blocks(self, message: ConversationMessage) -> Iterator[Json]:
        match message:
            case UserMessage():
                yield from self._user(message)
            case ToolExecutionResultMessage():
                yield from self._result(message)
            case AiMessage():
                yield from self._said(message)

    def _user(self, message: UserMessage) -> list[Json]:
        blocks = list(self._content(message.content))
        if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
            blocks.append({"text": "See the document."})  # the API requires a text block with a document
        return blocks

    def _said(self, message: AiMessage) -> Iterator[Json]:
        uses = {str(request.id): request for request in message.tool_execution_requests}
        layout: list[Json] = message.attributes.get(PROVIDER, {}).get("content", [])
        text = "".join(block["text"] for block in layout if "text" in block)
        ids = [block["toolUse"] for block in layout if "toolUse" in block]
        if not layout or text != (message.text or "") or ids != list(uses):  # the message was changed
            thoughts = [block for block in layout if "reasoningContent" in block]
            calls: list[Json] = [{"toolUse": call_id} for call_id in uses]
            layout = [*thoughts, {"text": message.text or ""}, *calls]
        for block in layout:
            if "toolUse" in block:
                request = uses[block["toolUse"]]
                name = self._conversation.names[request.name]
                if not self._with_tools:
                    yield {"text": f"[called {name} with {arguments_as_text(request)}]"}
                    continue
                call_id = self._conversation.ids[block["toolUse"]]
                yield {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments_as_object(request)}}
            elif "text" not in block:
                yield from_json_data(block)
            elif block["text"].strip():
                yield {"text": utf8_text(block["text"])}

    def _result(self, message: ToolExecutionResultMessage) -> Iterator[Json]:
        if not self._with_tools:
            name = self._conversation.names[message.tool_name]
            outcome = "failed" if message.is_error else "gave"
            yield {"text": f"[{name} {outcome}:]"}
            yield from self._content(message.content)
            return
        # results cannot contain audio
        content = [Text(describe_block(block)) if isinstance(block, Audio) else block for block in message.content]
        blocks = list(self._content(content)) or [{"text": "(nothing)"}]
        if len(blocks) == 1 and "text" in blocks[0] and not message.is_error:
            data = json_object(blocks[0]["text"])
            blocks = blocks if data is None else [{"json": data}]
        result: Json = {"toolUseId": self._conversation.ids[str(message.id)], "content": blocks}
        yield {"toolResult": result | ({"status": "error"} if message.is_error else {})}

    def _content(self, blocks: Iterable[Content]) -> Iterator[Json]:
        """Convert content blocks; the API rejects blank text, which is left out."""
        for block in blocks:
            written = self._block(block)
            if "text" not in written or written["text"].strip():
                yield written

    def _block(self, block: Content) -> Json:
        image = image_in(block)
        if image is not None and image.mime_type in _IMAGES and image.data:
            return {"image": {"format": _IMAGES[image.mime_type], "source": {"bytes": image.data}}}
        if isinstance(block, Audio) and media_type_of(block) in _AUDIO and block.data:
            return {"audio": {"format": _AUDIO[media_type_of(block)], "source": {"bytes": block.data}}}
        if isinstance(block, File) and isinstance(block.content, bytes) and block.content:
            kind = _DOCUMENTS.get(media_type_of(block))
            if kind is not None:
                name = self._document_name(block)
                return {"document": {"format": kind, "name": name, "source": {"bytes": block.content}}}
        return {"text": describe_block(block)}

    def _document_name(self, block: File) -> str:
        """A unique document name with allowed characters only."""
        base = _NOT_IN_A_DOCUMENT_NAME.sub(" ", file_name_of(block)).strip()[:_MAX_DOCUMENT_NAME_CHARS] or "document"
        name, number = base, 1
        while name in self._document_names:
            number += 1
            name = f"{base} ({number})"
        self._document_names.add(name)
        return name


def preserved_layout(blocks: Iterable[Json]) -> list[Json] | None:
    """Blocks of a reply, such as reasoning, that must be sent back unchanged and in order, as JSON data.

    Tool calls are stored as references to the message's own requests.
    """
    layout = [
        {"toolUse": block["toolUse"]["toolUseId"]} if "toolUse" in block else to_json_data(block) for block in blocks
    ]
    return layout if any(not block.keys() & {"text", "toolUse"} for block in layout) else None


def to_json_data(value: Any) -> Any:
    """Convert API data to JSON data: bytes become ``{"base64": …}``."""
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: to_json_data(each) for key, each in value.items()}
    return [to_json_data(each) for each in value] if isinstance(value, list) else value


def from_json_data(value: Any) -> Any:
    """Reverse `to_json_data`."""
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return b64decode(value["base64"])
        return {key: from_json_data(each) for key, each in value.items()}
    return [from_json_data(each) for each in value] if isinstance(value, list) else value


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
