"""Messages as Amazon Bedrock's Converse API writes them."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from bridge.models.conversation import arguments_as_object, arguments_as_text
from bridge.models.encoding import describe_block, file_name_of, image_in, json_object, media_type_of, utf8_text
from bridge.service.messages import AiMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Audio, File

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge.models.conversation import Conversation, Said
    from bridge.tools.content import Content
    from bridge.types import Json

PROVIDER = "bedrock"
"""The name under which messages keep what this API wants back."""

FORBIDDEN_IN_ID = r"[^A-Za-z0-9_.:-]"
"""What the id of a call must not hold; the ids of other providers may."""

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_AUDIO = {
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/mp4": "mp4",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/wav": "wav",
    "audio/webm": "webm",
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
    """Writes the messages of one request.

    Args:
        conversation: The messages, and what tools and calls are called.
        with_tools: The request offers tools. Converse takes no block about tools in a request that offers none: there
            they are told in words.
    """

    def __init__(self, conversation: Conversation, *, with_tools: bool) -> None:
        self._conversation = conversation
        self._with_tools = with_tools
        self._document_names: set[str] = set()

    def system(self) -> list[Json]:
        """All that the program says."""
        return [{"text": text} for text in self._conversation.system_texts]

    def written(self) -> list[Json]:
        """The messages, of which the user and the model each say one after the other: tool results are the user's."""
        return self._conversation.turns(self._blocks)

    def _blocks(self, message: Said) -> Iterator[Json]:
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
            blocks.append({"text": "See the document."})  # a document needs a text beside it
        return blocks

    def _said(self, message: AiMessage) -> Iterator[Json]:
        uses = {str(request.id): request for request in message.tool_execution_requests}
        layout: list[Json] = message.attributes.get(PROVIDER, {}).get("content", [])
        if not _describes(layout, message, list(uses)):
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
        content = list(self._result_content(message)) or [{"text": "(nothing)"}]
        result: Json = {"toolUseId": self._conversation.ids[str(message.id)], "content": content}
        yield {"toolResult": result | ({"status": "error"} if message.is_error else {})}

    def _result_content(self, message: ToolExecutionResultMessage) -> Iterator[Json]:
        """The blocks of a result: JSON as such, where the whole of it is one object."""
        blocks = list(self._content(message.content, with_audio=False))
        if len(blocks) == 1 and "text" in blocks[0] and not message.is_error:
            data = json_object(blocks[0]["text"])
            if data is not None:
                blocks = [{"json": data}]
        yield from blocks

    def _content(self, blocks: Iterable[Content], *, with_audio: bool = True) -> Iterator[Json]:
        """Blocks as the API knows them; text that is blank is refused, and left out."""
        for block in blocks:
            written = self._block(block, with_audio=with_audio)
            if "text" not in written or written["text"].strip():
                yield written

    def _block(self, block: Content, *, with_audio: bool) -> Json:
        image = image_in(block)
        if image is not None and image.mime_type in _IMAGES and image.data:
            return {"image": {"format": _IMAGES[image.mime_type], "source": {"bytes": image.data}}}
        if isinstance(block, Audio) and with_audio and media_type_of(block) in _AUDIO and block.data:
            return {"audio": {"format": _AUDIO[media_type_of(block)], "source": {"bytes": block.data}}}
        if isinstance(block, File) and isinstance(block.content, bytes) and block.content:
            kind = _DOCUMENTS.get(media_type_of(block))
            if kind is not None:
                name = self._document_name(block)
                return {"document": {"format": kind, "name": name, "source": {"bytes": block.content}}}
        return {"text": describe_block(block)}

    def _document_name(self, block: File) -> str:
        """A name in the letters that the API takes, and no other document's."""
        base = _NOT_IN_A_DOCUMENT_NAME.sub(" ", file_name_of(block)).strip()[:_MAX_DOCUMENT_NAME_CHARS] or "document"
        name, number = base, 1
        while name in self._document_names:
            number += 1
            name = f"{base} ({number})"
        self._document_names.add(name)
        return name


def preserved_layout(blocks: Iterable[Json]) -> list[Json] | None:
    """What of a reply has to come back as it was, as JSON data: reasoning with its signature, in its place.

    Calls are told by what the message says of them, so that nothing is kept twice.
    """
    layout = [
        {"toolUse": block["toolUse"]["toolUseId"]} if "toolUse" in block else to_json_data(block) for block in blocks
    ]
    return layout if any(not block.keys() & {"text", "toolUse"} for block in layout) else None


def to_json_data(value: Any) -> Any:
    """Data of the API as JSON data: bytes become ``{"base64": …}``."""
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: to_json_data(each) for key, each in value.items()}
    return [to_json_data(each) for each in value] if isinstance(value, list) else value


def from_json_data(value: Any) -> Any:
    """The data of the API that `to_json_data` made JSON of."""
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return b64decode(value["base64"])
        return {key: from_json_data(each) for key, each in value.items()}
    return [from_json_data(each) for each in value] if isinstance(value, list) else value


def _describes(layout: list[Json], message: AiMessage, ids: list[str]) -> bool:
    """Whether a layout is still that of the message, which somebody may have changed since."""
    texts = "".join(block["text"] for block in layout if "text" in block)
    return bool(layout) and texts == (message.text or "") and [b["toolUse"] for b in layout if "toolUse" in b] == ids
