"""Chat messages and their JSON (LangChain4j's ChatMessage).

A conversation consists of `SystemMessage`, `UserMessage`, `AiMessage` with requested tool calls, and
`ToolExecutionResultMessage`. Stores keep each message as one line of JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from bridge.errors import WireError
from bridge.text import short_repr
from bridge.tools.content import Content, Text, UserMessage, block_from_json, block_to_json, describe_block, text_of
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
from bridge.types import Json, optional_field, require_object, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.prompts.prompt import PromptMessage

__all__ = [
    "AiMessage",
    "ChatMessage",
    "SystemMessage",
    "ToolExecutionResultMessage",
    "UserMessage",
    "chat_messages",
    "message_from_json",
    "message_from_text",
    "message_to_json",
    "message_to_text",
    "request_from_json",
    "request_to_json",
    "system_message_from_text",
]

_EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Instructions for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class AiMessage:
    """Response of the model."""

    text: str | None = None
    tool_execution_requests: tuple[ToolExecutionRequest, ...] = ()
    """Tools that the model requests, in its order."""
    thinking: str | None = None
    """The model's reasoning text, if the provider returns it."""
    attributes: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """JSON data by provider that must be returned to it unchanged, such as signatures of thinking."""

    @property
    def has_tool_execution_requests(self) -> bool:
        """True if the model requests tools."""
        return bool(self.tool_execution_requests)


@dataclass(frozen=True, slots=True)
class ToolExecutionResultMessage:
    """Result of one tool execution request for the model."""

    id: str | None
    """Id of the request."""
    tool_name: str
    content: tuple[Content, ...]
    is_error: bool = False
    attributes: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Attributes of the result, hidden from the model. A store keeps those that are JSON data."""

    @classmethod
    def of(cls, request: ToolExecutionRequest, result: ToolExecutionResult | str) -> ToolExecutionResultMessage:
        """Create the message for a request from its result, or from plain text."""
        if isinstance(result, str):
            return cls(request.id, request.name, (Text(result),))
        shown = result.content if result.model_content is None else result.model_content
        return cls(request.id, request.name, shown, result.is_error, result.attributes)

    @property
    def text(self) -> str:
        """The text blocks joined by newlines."""
        return text_of(self.content)


ChatMessage = SystemMessage | UserMessage | AiMessage | ToolExecutionResultMessage
"""A message of any kind."""


def chat_messages(messages: Iterable[PromptMessage]) -> list[UserMessage | AiMessage]:
    """Convert the messages of a prompt to chat messages; successive messages of one role are joined.

    The model's messages become text, other content in them a description.
    """
    found: list[UserMessage | AiMessage] = []
    for role, group in groupby(messages, attrgetter("role")):
        blocks = tuple(message.content for message in group)
        found.append(UserMessage(blocks) if role == "user" else AiMessage("\n".join(map(describe_block, blocks))))
    return found


def message_to_json(message: ChatMessage) -> Json:
    """Convert a message to JSON data: ``{"type": "system" | "user" | "ai" | "tool", …}``."""
    match message:
        case SystemMessage():
            return {"type": "system", "text": message.text}
        case UserMessage():
            return {"type": "user", "content": [block_to_json(b) for b in message.content]} | without_none(
                name=message.name
            )
        case AiMessage():
            return {"type": "ai"} | without_none(
                text=message.text,
                thinking=message.thinking,
                toolExecutionRequests=[request_to_json(r) for r in message.tool_execution_requests] or None,
                attributes=message.attributes or None,
            )
        case ToolExecutionResultMessage():
            return {
                "type": "tool",
                "toolName": message.tool_name,
                "content": [block_to_json(b) for b in message.content],
                "isError": message.is_error,
            } | without_none(id=message.id, attributes=_json_only(message.attributes) or None)


def message_from_json(json: Mapping[str, Any]) -> ChatMessage:
    """Convert JSON data from `message_to_json` to a message.

    Raises:
        WireError: The data is malformed.
    """
    try:
        match json.get("type"):
            case "system":
                return SystemMessage(require_text(json["text"]))
            case "user":
                return UserMessage(_content_from_json(json), optional_field(json, "name", str))
            case "ai":
                return AiMessage(
                    optional_field(json, "text", str),
                    tuple(request_from_json(r) for r in optional_field(json, "toolExecutionRequests", list) or ()),
                    optional_field(json, "thinking", str),
                    optional_field(json, "attributes", dict) or _EMPTY,
                )
            case "tool":
                return ToolExecutionResultMessage(
                    optional_field(json, "id", str),
                    require_text(json["toolName"]),
                    _content_from_json(json),
                    json["isError"] is True,
                    optional_field(json, "attributes", dict) or _EMPTY,
                )
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed message: {short_repr(json)}") from error
    raise WireError(f"a message of an unknown type: {short_repr(json)}")


def _json_only(attributes: Mapping[str, Any]) -> Json:
    """Return the attributes that are JSON data; others are for this process alone."""
    return {name: value for name, value in attributes.items() if _is_json({name: value})}


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False, default=dict)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _content_from_json(json: Mapping[str, Any]) -> tuple[Content, ...]:
    return tuple(block_from_json(block) for block in json["content"])


def request_to_json(request: ToolExecutionRequest) -> Json:
    """Convert a tool execution request to JSON data."""
    return {"name": request.name, "arguments": request.arguments} | without_none(
        id=request.id, argumentsText=request.arguments_text
    )


def request_from_json(json: Mapping[str, Any]) -> ToolExecutionRequest:
    """Convert JSON data from `request_to_json` to a request.

    Raises:
        WireError: The data is malformed.
    """
    arguments = json.get("arguments")
    if not isinstance(arguments, dict | str):
        raise WireError(f"arguments must be an object or text: {short_repr(json)}")
    request = ToolExecutionRequest(
        require_text(json.get("name")),
        arguments,
        optional_field(json, "id", str),
        optional_field(json, "argumentsText", str),
    )
    return request if isinstance(arguments, str) else request.parsed()


def message_to_text(message: ChatMessage) -> str:
    """Serialize a message as ASCII JSON, since models may write lone surrogates, which UTF-8 cannot encode."""
    return json.dumps(message_to_json(message), separators=(",", ":"), default=dict)


def message_from_text(text: str | bytes) -> ChatMessage:
    """Parse the output of `message_to_text`.

    Raises:
        WireError: The text is malformed.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise WireError(f"a stored message is not JSON: {short_repr(text)}") from error
    return message_from_json(require_object(data, "a stored message"))


def system_message_from_text(text: str | bytes) -> SystemMessage:
    """Parse the output of `message_to_text` for a system message.

    Raises:
        WireError: The text is malformed, or another kind of message.
    """
    message = message_from_text(text)
    if not isinstance(message, SystemMessage):
        raise WireError(f"a stored message is not a system message: {short_repr(text)}")
    return message
