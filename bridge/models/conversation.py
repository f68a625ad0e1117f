"""Conversation with provider-safe ids and names; streamed tool calls.

A conversation as a provider can take it: every tool call with an id, every tool under a name that is allowed.

Calls: the tool calls of a streamed reply, put together from their pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.models.encoding import json_object, json_text, utf8_json, utf8_text
from bridge.service.chat_model import CompleteToolCall, PartialToolCall
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage
from bridge.tools.transform import safe_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bridge.models.provider_schemas import ProviderTools
    from bridge.service.chat_model import ChatRequest
    from bridge.service.messages import ChatMessage, UserMessage
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json

if TYPE_CHECKING:
    Said = UserMessage | AiMessage | ToolExecutionResultMessage

_MADE_ID_CHARS = 24


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of one request, and what tools and calls are called in it on the wire."""

    messages: Sequence[ChatMessage]
    """The messages; each tool execution request and each result has an id."""
    names: Mapping[str, str]
    """Each tool's name with the one that the provider is told."""
    ids: Mapping[str, str]
    """Each call's id with the one that the provider is told."""

    @property
    def mentions_tools(self) -> bool:
        """Some message calls a tool, or answers a call."""
        return bool(self.ids)

    @property
    def system_texts(self) -> list[str]:
        """All that the program says; what is blank is left out."""
        texts = [utf8_text(each.text) for each in self.messages if isinstance(each, SystemMessage)]
        return [text for text in texts if text.strip()]

    def turns(self, blocks_of: Callable[[Said], Iterable[Json]]) -> list[Json]:
        """The messages for a provider to which the user and the model each say one after the other.

        Args:
            blocks_of: Writes what a message says. Tool results are the user's.
        """
        written: list[Json] = []
        for message in self.messages:
            if isinstance(message, SystemMessage):
                continue
            role = "assistant" if isinstance(message, AiMessage) else "user"
            blocks = list(blocks_of(message))
            if not blocks:  # an empty message is refused
                continue
            if written and written[-1]["role"] == role:
                written[-1]["content"] += blocks
            else:
                written.append({"role": role, "content": blocks})
        return written


def conversation_of(request: ChatRequest, *, max_id_chars: int = 64, forbidden_in_id: str = "") -> Conversation:
    """The conversation of a request.

    Args:
        request: The request.
        max_id_chars: How long the id of a call may be.
        forbidden_in_id: A regular expression for one character that an id must not have; empty for none.
    """
    messages = _identified(request.messages)
    names = [specification.name for specification in request.tool_specifications]
    names += [] if request.tool_choice.tool_name is None else [request.tool_choice.tool_name]
    ids = []
    for name, call_id in _mentions(messages):
        names.append(name)
        ids.append(call_id)
    return Conversation(
        messages, safe_names(names), safe_names(ids, max_chars=max_id_chars, forbidden=forbidden_in_id or r"(?!)")
    )


def generated_id(*parts: object) -> str:
    """An id for a call to which the provider gave none: the same wherever it is made of the same parts."""
    return f"call_{sha256(repr(parts).encode('utf-8', 'replace')).hexdigest()[:_MADE_ID_CHARS]}"


def arguments_as_text(request: ToolExecutionRequest) -> str:
    """The arguments of a call as JSON text."""
    if isinstance(request.arguments, str):
        return utf8_text(request.arguments) if request.arguments.strip() else "{}"
    return json_text(request.arguments)


def arguments_as_object(request: ToolExecutionRequest) -> Json:
    """The arguments of a call as an object; text that is none is kept in one."""
    if not isinstance(request.arguments, str):
        found: Json = utf8_json(dict(request.arguments))
        return found
    text = utf8_text(request.arguments)
    if not text.strip():
        return {}
    parsed = json_object(text)
    return {"malformed_arguments": text} if parsed is None else parsed


def _identified(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The messages with ids where they have none: results belong to calls in their order, those of their tool first."""
    if all(call_id is not None for _, call_id in _all_mentions(messages)):
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


def _all_mentions(messages: Sequence[ChatMessage]) -> Iterator[tuple[str, str | None]]:
    for message in messages:
        if isinstance(message, AiMessage):
            yield from ((request.name, request.id) for request in message.tool_execution_requests)
        elif isinstance(message, ToolExecutionResultMessage):
            yield message.tool_name, message.id


def _mentions(messages: Sequence[ChatMessage]) -> Iterator[tuple[str, str]]:
    return ((name, str(call_id)) for name, call_id in _all_mentions(messages))


@dataclass(slots=True)
class _Call:
    name: str
    call_id: str
    pieces: list[str] = field(default_factory=list)
    request: ToolExecutionRequest | None = None


class CallAssembler:
    """Puts the calls of one reply together.

    Args:
        offers: The tools, for the way back to their own names and schemas.
        parsed: Arguments become objects where they can, for a provider that gives objects when it does not stream.
    """

    def __init__(self, offers: ProviderTools, *, parsed: bool) -> None:
        self._offers = offers
        self._parsed = parsed
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, call_id: str, name: str = "") -> int:
        """A call begins; gives its index."""
        self._calls.append(_Call(name, call_id))
        return len(self._calls) - 1

    def add(self, index: int, piece: str, name: str | None = None) -> PartialToolCall:
        """A piece of a call's arguments; the name may come only now."""
        call = self._calls[index]
        call.name = call.name or name or ""
        call.pieces.append(piece)
        return PartialToolCall(index, call.call_id, self._offers.originals.get(call.name, call.name), piece)

    def complete(self, index: int) -> Iterator[CompleteToolCall]:
        """A call is whole, if it was not before."""
        call = self._calls[index]
        if call.request is None:
            text = "".join(call.pieces)
            parsed = (json_object(text) if text.strip() else {}) if self._parsed else None
            call.request = self._offers.request(call.name, text if parsed is None else parsed, call.call_id)
            yield CompleteToolCall(index, call.request)

    def complete_if_closed(self, index: int) -> Iterator[CompleteToolCall]:
        """A call is whole if its arguments are a JSON object: nothing can follow that."""
        if json_object("".join(self._calls[index].pieces)) is not None:
            yield from self.complete(index)

    def complete_all(self, *, broken_off: bool) -> Iterator[CompleteToolCall]:
        """Nothing follows any more.

        Args:
            broken_off: The reply lacks its end: its last call is not called whole, unless it is closed.
        """
        for index in range(len(self._calls)):
            if broken_off and index == len(self._calls) - 1:
                yield from self.complete_if_closed(index)
                list(self.complete(index))
            else:
                yield from self.complete(index)

    @property
    def requests(self) -> tuple[ToolExecutionRequest, ...]:
        """The calls that are whole."""
        return tuple(call.request for call in self._calls if call.request is not None)
