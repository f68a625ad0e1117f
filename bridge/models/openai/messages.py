"""Conversion of messages to OpenAI's chat completions API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.models.conversation import arguments_as_object, arguments_as_text
from bridge.models.encoding import (
    base64_of,
    describe_block,
    file_name_of,
    image_in,
    is_pdf,
    json_object,
    json_text,
    media_type_of,
    utf8_text,
)
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Audio, File, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.models.conversation import Conversation
    from bridge.tools.content import Content
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json

PROVIDER = "openai"
"""Key of this provider in message attributes."""
KEPT_OF_A_CALL = "extra_content"
"""Field of a call that Gemini's endpoint requires back."""

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}
_NOT_IN_A_NAME = re.compile(r"[\s<|\\/>]+")
_MAX_NAME_CHARS = 64


class MessageWriter:
    """Converts the messages of one request.

    Args:
        conversation: The messages, with names and IDs for the provider.
        images_in_tool_results: Tool results may contain images; otherwise they are sent in a user message.
        send_thinking: Send the model's earlier thinking back, in its original field.
    """

    def __init__(self, conversation: Conversation, *, images_in_tool_results: bool, send_thinking: bool) -> None:
        self._conversation = conversation
        self._images_in_tool_results = images_in_tool_results
        self._send_thinking = send_thinking

    def written(self) -> Iterator[Json]:
        """Convert the messages in order; images of tool results follow the last result in a user message."""
        later: list[Json] = []
        for message in self._conversation.messages:
            if isinstance(message, ToolExecutionResultMessage):
                yield self._result(message, later)
                continue
            if later:
                yield {"role": "user", "content": later}
                later = []
            match message:
                case SystemMessage():
                    yield {"role": "system", "content": utf8_text(message.text)}
                case UserMessage():
                    yield _user(message)
                case AiMessage():
                    yield self._ai(message)
        if later:
            yield {"role": "user", "content": later}

    def _ai(self, message: AiMessage) -> Json:
        attributes = message.attributes.get(PROVIDER, {})
        written: Json = {"role": "assistant"}
        if message.text is not None and message.text == attributes.get("refusal"):
            written |= {"content": None, "refusal": utf8_text(message.text)}
        else:
            written["content"] = None if message.text is None else utf8_text(message.text)
        if self._send_thinking and message.thinking is not None:
            written[attributes.get("thinking_field", "reasoning_content")] = utf8_text(message.thinking)
        if message.has_tool_execution_requests:
            written["tool_calls"] = [
                {
                    **attributes.get("calls", {}).get(request.id, {}),
                    "id": self._conversation.ids[str(request.id)],
                    "type": "function",
                    "function": {
                        "name": self._conversation.names[request.name],
                        "arguments": _arguments(request),
                    },
                }
                for request in message.tool_execution_requests
            ]
        elif written["content"] is None and "refusal" not in written:
            written["content"] = ""
        return written

    def _result(self, message: ToolExecutionResultMessage, later: list[Json]) -> Json:
        call_id = self._conversation.ids[str(message.id)]
        parts = [_part(block) for block in message.content]
        shown = [part for part in parts if part["type"] != "text"]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        # the API has no error flag for tool results
        text = ("Error: " if message.is_error else "") + "\n".join(texts)
        content: str | list[Json] = text
        if shown and self._images_in_tool_results:
            content = [*([{"type": "text", "text": text}] if text else []), *shown]
        elif shown:
            tool = self._conversation.names[message.tool_name]
            content = "\n".join([*([text] if text else []), "(shown in the next user message)"])
            later += [{"type": "text", "text": f"From the result of {tool} ({call_id}):"}, *shown]
        return {"role": "tool", "tool_call_id": call_id, "content": content}


def _arguments(request: ToolExecutionRequest) -> str:
    """The model's arguments unchanged, or as an object if they are not one, since servers parse them."""
    text = arguments_as_text(request)
    return text if json_object(text) is not None else json_text(arguments_as_object(request))


def _user(message: UserMessage) -> Json:
    content: str | list[Json]
    if len(message.content) == 1 and isinstance(message.content[0], Text):
        content = utf8_text(message.content[0].text)
    else:
        content = [_part(block) for block in message.content]
    name = _NOT_IN_A_NAME.sub("_", utf8_text(message.name or ""))[:_MAX_NAME_CHARS]
    return {"role": "user", "content": content} | ({"name": name} if name else {})


def _part(block: Content) -> Json:
    """Convert a block to a part of a user message; unsupported ones become text."""
    if (image := image_in(block)) is not None:
        return {"type": "image_url", "image_url": {"url": f"data:{image.mime_type};base64,{base64_of(image)}"}}
    if isinstance(block, Audio) and media_type_of(block) in _AUDIO_FORMATS:
        audio = {"data": base64_of(block), "format": _AUDIO_FORMATS[media_type_of(block)]}
        return {"type": "input_audio", "input_audio": audio}
    if is_pdf(block) and isinstance(block, File):
        data = f"data:application/pdf;base64,{base64_of(block)}"
        return {"type": "file", "file": {"filename": file_name_of(block), "file_data": data}}
    return {"type": "text", "text": describe_block(block)}
