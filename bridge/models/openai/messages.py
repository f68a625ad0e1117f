"""Conversion of messages and replies, complete or streamed, of OpenAI's chat completions API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ChatModelError
from bridge.models.conversation import arguments_as_object, arguments_as_text, generated_id
from bridge.models.encoding import base64_of, file_name_of, image_in, is_pdf, json_object, json_text
from bridge.models.replies import ReplyReader
from bridge.service.chat_model import FinishReason, PartialResponse, TokenUsage
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.text import utf8_text
from bridge.tools.content import Audio, File, Text, describe_block, media_type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    from bridge.models.conversation import Conversation
    from bridge.models.provider_schemas import ProviderRequest
    from bridge.service.chat_model import ChatEvent, ChatResponse
    from bridge.tools.content import Content
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json

PROVIDER = "openai"
"""Key of this provider in message attributes."""

_KEPT_OF_A_CALL = "extra_content"
"""Field of a call that Gemini's endpoint requires back."""
_THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Fields for thinking of compatible servers; OpenAI's API has none."""
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


class OpenAiReply(ReplyReader):
    """Converts one reply; a complete one is read as a stream of one chunk."""

    provider = PROVIDER
    parses_arguments = False
    finish_reasons: ClassVar = {
        "stop": FinishReason.STOP,
        "length": FinishReason.LENGTH,
        "tool_calls": FinishReason.TOOL_EXECUTION,
        "function_call": FinishReason.TOOL_EXECUTION,
        "content_filter": FinishReason.CONTENT_FILTER,
    }

    def __init__(self, request: ProviderRequest) -> None:
        super().__init__(request)
        self._given_ids: dict[int | None, str | None] = {}
        self._latest: int | None = None
        self._refusal: list[str] = []
        self._thinking_field = ""
        self._kept: dict[str, Json] = {}
        """Fields of calls that must be sent back, such as Gemini's thought signature, by call ID."""

    def read_complete(self, reply: ChatCompletion) -> None:
        """Read a complete reply."""
        completion: Json = reply.to_dict(warnings=False)
        if not completion.get("choices"):
            raise ChatModelError("the reply has no choices", provider=PROVIDER)
        choice = completion["choices"][0]
        calls = [call for call in choice["message"].get("tool_calls") or () if call.get("function")]
        delta = {**choice["message"], "tool_calls": [{**call, "index": index} for index, call in enumerate(calls)]}
        list(self._chunk({**completion, "choices": [{**choice, "delta": delta}]}))
        self.end(choice.get("finish_reason"))

    def read_event(self, event: ChatCompletionChunk) -> Iterator[ChatEvent]:
        """Read one chunk."""
        return self._chunk(event.to_dict(warnings=False))

    def attributes(self) -> Json:
        """Parts of the reply that must be sent back in their own fields."""
        thinking = {"thinking_field": self._thinking_field} if self._thinking_field else {}
        refusal = {"refusal": "".join(self._refusal)} if self._refusal else {}
        return ({"calls": self._kept} if self._kept else {}) | thinking | refusal

    def response(self, raw: Any) -> ChatResponse:
        """Build the response; some servers return the reason ``stop`` with a refusal or tool calls."""
        if self._refusal:
            self.text, self.finish_reason = self._refusal, FinishReason.CONTENT_FILTER
        elif len(self.calls) and self.finish_reason is FinishReason.STOP:
            self.finish_reason = FinishReason.TOOL_EXECUTION
        return super().response(raw)

    def _chunk(self, chunk: Json) -> Iterator[ChatEvent]:
        self.id, self.model_name = self.id or chunk.get("id"), self.model_name or chunk.get("model")
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            self.usage = TokenUsage(usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)
        for choice in (chunk.get("choices") or ())[:1]:
            yield from self._delta(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self.end(choice["finish_reason"])

    def _delta(self, delta: Json) -> Iterator[ChatEvent]:
        for field in _THINKING_FIELDS:
            if isinstance(thinking := delta.get(field), str) and thinking:
                self._thinking_field = field
                yield from self.add_thinking(thinking)
                break
        for pieces, piece in ((self.text, delta.get("content")), (self._refusal, delta.get("refusal"))):
            if piece:
                pieces.append(piece)
                yield PartialResponse(piece)
        for call in delta.get("tool_calls") or ():
            yield from self._call(call)

    def _call(self, delta: Json) -> Iterator[ChatEvent]:
        """Read a piece of a call; pieces are joined by index, and a new ID with the same index starts a new call."""
        key, call_id = delta.get("index"), delta.get("id")  # some servers omit them
        function = delta.get("function") or {}
        name, arguments = function.get("name"), function.get("arguments")
        known_id = self._given_ids.get(key)
        if key not in self.calls or (call_id and known_id and call_id != known_id):
            if len(self.calls):
                yield from self.calls.complete_if_closed(self._latest)
            turn = len(self.request.chat.messages)
            made_id = call_id or generated_id(self.id, turn, len(self.calls))
            # some servers return an object
            self.calls.begin(key, made_id, arguments=arguments if isinstance(arguments, dict) else None)
            self._given_ids[key], self._latest = call_id, key
        if call_id and _KEPT_OF_A_CALL in delta:
            self._kept[call_id] = {_KEPT_OF_A_CALL: delta[_KEPT_OF_A_CALL]}
        if name or arguments:
            yield self.calls.add(key, arguments if isinstance(arguments, str) else "", name)
