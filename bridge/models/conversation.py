"""Conversations with provider-safe IDs and names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.models.encoding import json_object, json_text, utf8_json
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage
from bridge.text import utf8_text
from bridge.tools.transform import safe_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bridge.service.chat_model import ChatRequest
    from bridge.service.messages import ChatMessage, UserMessage
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json

    ConversationMessage = UserMessage | AiMessage | ToolExecutionResultMessage

_MADE_ID_CHARS = 24


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages of one request, with names and IDs for the provider."""

    messages: Sequence[ChatMessage]
    """The messages; each tool execution request and result has an ID."""
    names: Mapping[str, str]
    """Provider's name of each tool."""
    ids: Mapping[str, str]
    """Provider's ID of each call."""

    @property
    def mentions_tools(self) -> bool:
        """True if a message contains a tool call or result."""
        return bool(self.ids)

    @property
    def system_texts(self) -> list[str]:
        """Texts of the system messages, without blank ones."""
        texts = [utf8_text(each.text) for each in self.messages if isinstance(each, SystemMessage)]
        return [text for text in texts if text.strip()]

    def turns(self, blocks_of: Callable[[ConversationMessage], Iterable[Json]]) -> list[Json]:
        """Convert the messages to alternating user and assistant turns of blocks; tool results are user turns."""
        written: list[Json] = []
        for message in self.messages:
            if isinstance(message, SystemMessage):
                continue
            role = "assistant" if isinstance(message, AiMessage) else "user"
            blocks = list(blocks_of(message))
            if not blocks:  # providers reject empty messages
                continue
            if written and written[-1]["role"] == role:
                written[-1]["content"] += blocks
            else:
                written.append({"role": role, "content": blocks})
        return written


def conversation_of(request: ChatRequest, *, max_id_chars: int = 64, forbidden_in_id: str = "") -> Conversation:
    """Prepare the messages of a request for a provider.

    Args:
        request: The request.
        max_id_chars: Maximum length of a call ID.
        forbidden_in_id: Regular expression for one character that is not allowed in an ID; empty for none.
    """
    messages = _identified(request.messages)
    mentions = list(_mentions(messages))
    names = [specification.name for specification in request.tool_specifications]
    names += [] if request.tool_choice.tool_name is None else [request.tool_choice.tool_name]
    names += [name for name, _ in mentions]
    ids = [str(call_id) for _, call_id in mentions]
    return Conversation(
        messages, safe_names(names), safe_names(ids, max_chars=max_id_chars, forbidden=forbidden_in_id or r"(?!)")
    )


def generated_id(*parts: object) -> str:
    """Generate an ID for a call without one; equal parts give equal IDs."""
    return f"call_{sha256(repr(parts).encode('utf-8', 'replace')).hexdigest()[:_MADE_ID_CHARS]}"


def arguments_as_text(request: ToolExecutionRequest) -> str:
    """Arguments of a call as JSON text."""
    if isinstance(request.arguments, str):
        return utf8_text(request.arguments) if request.arguments.strip() else "{}"
    return json_text(request.arguments)


def arguments_as_object(request: ToolExecutionRequest) -> Json:
    """Arguments of a call as an object; other text is wrapped in one."""
    if not isinstance(request.arguments, str):
        found: Json = utf8_json(dict(request.arguments))
        return found
    text = utf8_text(request.arguments)
    if not text.strip():
        return {}
    parsed = json_object(text)
    return {"malformed_arguments": text} if parsed is None else parsed


def _identified(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Add missing IDs: results are matched to calls in order, preferring calls of the same tool."""
    if all(call_id is not None for _, call_id in _mentions(messages)):
        return messages
    identified: list[ChatMessage] = []
    open_calls: list[tuple[str, str]] = []
    for number, message in enumerate(messages):
        if isinstance(message, AiMessage):
            requests = tuple(
                replace(request, id=f"call_{number}_{index}") if request.id is None else request
                for index, request in enumerate(message.tool_execution_requests)
            )
            before = message.tool_execution_requests
            open_calls += [(new.name, str(new.id)) for new, old in zip(requests, before, strict=True) if old.id is None]
            identified.append(replace(message, tool_execution_requests=requests))
        elif isinstance(message, ToolExecutionResultMessage) and message.id is None:
            of_tool = (call for call in open_calls if call[0] == message.tool_name)
            call = next(of_tool, open_calls[0] if open_calls else (message.tool_name, f"call_{number}"))
            if call in open_calls:
                open_calls.remove(call)
            identified.append(replace(message, id=call[1]))
        else:
            identified.append(message)
    return identified


def _mentions(messages: Sequence[ChatMessage]) -> Iterator[tuple[str, str | None]]:
    for message in messages:
        if isinstance(message, AiMessage):
            yield from ((request.name, request.id) for request in message.tool_execution_requests)
        elif isinstance(message, ToolExecutionResultMessage):
            yield message.tool_name, message.id
