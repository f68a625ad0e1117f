"""Replies of providers, complete or streamed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ChatModelError
from bridge.models.encoding import json_object
from bridge.service.chat_model import (
    BROKEN_OFF,
    ChatResponse,
    CompleteResponse,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    TokenUsage,
)
from bridge.service.messages import AiMessage

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from bridge.models.provider_schemas import ProviderRequest
    from bridge.service.chat_model import ChatEvent
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json


class ReplyReader(ABC):
    """Converts one reply; a subclass for each provider reads complete replies and stream events into it."""

    provider: ClassVar[str]
    """Name of the provider."""
    finish_reasons: ClassVar[Mapping[str, FinishReason]]
    """Finish reasons by the provider's names; all others are `FinishReason.OTHER`."""
    parses_arguments: ClassVar = True
    """The provider returns arguments as objects if it does not stream."""

    def __init__(self, request: ProviderRequest) -> None:
        self.request = request
        self.calls = CallAssembler(request, parsed=self.parses_arguments)
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.finish_reason: FinishReason | None = None
        """Set at the end of the reply."""
        self.usage = TokenUsage()
        self.model_name: str | None = None
        self.id: str | None = None
        self._events: list[Any] = []

    @abstractmethod
    def read_complete(self, reply: Any) -> None:
        """Read a complete reply."""

    @abstractmethod
    def read_event(self, event: Any) -> Iterator[ChatEvent]:
        """Read one stream event; unknown kinds are ignored."""

    def attributes(self) -> Json:
        """Attributes of the message that the provider needs back."""
        return {}

    def complete(self, reply: Any) -> ChatResponse:
        """Convert a complete reply."""
        self.read_complete(reply)
        list(self.calls.complete_all())
        return self.response(reply)

    def streamed(self, event: Any) -> Iterator[ChatEvent]:
        """Convert one stream event."""
        self._events.append(event)
        return self.read_event(event)

    def finished(self) -> Iterator[ChatEvent]:
        """Yield the final events of a stream.

        Raises:
            ChatModelError: The stream ended before the reply was complete.
        """
        if self.finish_reason is None:
            message = "the stream ended before the reply was complete"
            raise ChatModelError(message, provider=self.provider, retryable=True)
        yield from self.calls.complete_all(broken_off=self.finish_reason in BROKEN_OFF)
        yield CompleteResponse(self.response(tuple(self._events)))

    def add_text(self, piece: str) -> Iterator[ChatEvent]:
        """Add a piece of text."""
        self.text.append(piece)
        yield PartialResponse(piece)

    def add_thinking(self, piece: str) -> Iterator[ChatEvent]:
        """Add a piece of thinking."""
        self.thinking.append(piece)
        yield PartialThinking(piece)

    def end(self, reason: str | None) -> None:
        """Set the finish reason by the provider's name."""
        self.finish_reason = self.finish_reasons.get(reason or "", FinishReason.OTHER)

    def response(self, raw: Any) -> ChatResponse:
        """Build the response; ``raw`` is the reply, or its stream events, as the SDK returned them."""
        text, attributes = self.request.restored_text("".join(self.text)), self.attributes()
        return ChatResponse(
            message=AiMessage(
                text or None,
                self.calls.requests,
                "".join(self.thinking) or None,
                {self.provider: attributes} if attributes else {},
            ),
            token_usage=self.usage,
            finish_reason=self.finish_reason or FinishReason.OTHER,
            model_name=self.model_name,
            id=self.id,
            raw=raw,
        )


def usage_with_cache(usage: Json, output: str, cached: str, *inputs: str) -> TokenUsage:
    """Convert the usage of a provider that counts cached input separately.

    Args:
        usage: The provider's usage.
        output: Name of the output tokens.
        cached: Name of the input tokens that were read from a cache.
        inputs: Names of the other input tokens.
    """
    known = [count for name in (*inputs, cached) if (count := usage.get(name)) is not None]
    return TokenUsage(sum(known) if known else None, usage.get(output), usage.get(cached))


@dataclass(slots=True)
class _Call:
    index: int
    id: str
    name: str
    arguments: Mapping[str, Any] | None
    pieces: list[str] = field(default_factory=list)
    request: ToolExecutionRequest | None = None


class CallAssembler:
    """Assembles the tool calls of one reply. A call has a key, such as the index of its block.

    With ``parsed``, arguments become objects if possible.
    """

    def __init__(self, prepared: ProviderRequest, *, parsed: bool) -> None:
        self._prepared = prepared
        self._parsed = parsed
        self._calls: list[_Call] = []
        self._by_key: dict[Hashable, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def begin(self, key: Hashable, call_id: str, name: str = "", arguments: Mapping[str, Any] | None = None) -> None:
        """Start a call, with its arguments if they are complete. An earlier call of this key gets no more pieces."""
        call = self._by_key[key] = _Call(len(self._calls), call_id, name, arguments)
        self._calls.append(call)

    def add(self, key: Hashable, piece: str, name: str | None = None) -> PartialToolCall:
        """Add a piece of a call's arguments; the name may be given late."""
        call = self._by_key[key]
        call.name = call.name or name or ""
        call.pieces.append(piece)
        return PartialToolCall(call.index, call.id, self._prepared.originals.get(call.name, call.name), piece)

    def complete_if_closed(self, key: Hashable) -> Iterator[CompleteToolCall]:
        """Complete a call if its arguments are a complete JSON object."""
        if json_object("".join(self._by_key[key].pieces)) is not None:
            yield from self._complete(self._by_key[key])

    def complete_all(self, *, broken_off: bool = False) -> Iterator[CompleteToolCall]:
        """Complete all calls; the last call of a truncated reply is reported only if its arguments are complete."""
        for call in self._calls:
            events = list(self._complete(call))
            if not (broken_off and call is self._calls[-1]) or json_object("".join(call.pieces)) is not None:
                yield from events

    @property
    def requests(self) -> tuple[ToolExecutionRequest, ...]:
        """The completed calls."""
        return tuple(call.request for call in self._calls if call.request is not None)

    def _complete(self, call: _Call) -> Iterator[CompleteToolCall]:
        if call.request is None:
            arguments: Mapping[str, Any] | str | None = call.arguments
            if arguments is None:
                text = "".join(call.pieces)
                parsed = (json_object(text) if text.strip() else {}) if self._parsed else None
                arguments = text if parsed is None else parsed
            call.request = self._prepared.execution_request(call.name, arguments, call.id)
            yield CompleteToolCall(call.index, call.request)
