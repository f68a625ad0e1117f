"""ChatModel protocols, requests, responses, parameters.

A chat model, as a loop sees it: a request in, a response out, or a stream of events.

LangChain4j's ChatModel and StreamingChatModel with their ChatRequest and ChatResponse. A provider's adapter implements
one Protocol or both; nothing here knows a provider.

Parameters of a chat request: what a service, or one call, wants of the model.

LangChain4j's ChatRequestParameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from bridge.service.messages import AiMessage, ChatMessage
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import ToolExecutionRequest

_EMPTY: Mapping[str, Any] = {}


class ToolChoiceMode(Enum):
    """Whether the model may, must or must not call tools."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"
    NAMED = "named"
    """It must call one given tool."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools the model may call: `ToolChoice.AUTO`, `.REQUIRED`, `.NONE`, or `ToolChoice.of("get_weather")`."""

    mode: ToolChoiceMode = ToolChoiceMode.AUTO
    tool_name: str | None = None
    """The tool, where the mode is NAMED."""

    AUTO: ClassVar[ToolChoice]
    """The model decides; the default."""
    REQUIRED: ClassVar[ToolChoice]
    """The model must call at least one tool."""
    NONE: ClassVar[ToolChoice]
    """The model must call no tool."""

    @classmethod
    def of(cls, tool_name: str) -> ToolChoice:
        """The model must call this tool."""
        return cls(ToolChoiceMode.NAMED, tool_name)


ToolChoice.AUTO = ToolChoice()


ToolChoice.REQUIRED = ToolChoice(ToolChoiceMode.REQUIRED)


ToolChoice.NONE = ToolChoice(ToolChoiceMode.NONE)


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """JSON that the reply must be, by a schema (LangChain4j's ResponseFormat of type JSON)."""

    schema: Mapping[str, Any]
    """A JSON Schema."""
    name: str = "response"
    """What providers that want a name for the schema are told."""
    strict: bool = True
    """Hold the model to it, where the provider can and the schema allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """All that one call of a model needs."""

    messages: tuple[ChatMessage, ...]
    tool_specifications: tuple[ToolSpecification, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    response_format: ResponseFormat | None = None
    """None: text."""
    model_name: str | None = None
    """Instead of the adapter's own."""
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Parameters that only one provider knows, added to its request as they are."""


class FinishReason(Enum):
    """Why the model stopped."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_EXECUTION = "tool_execution"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


BROKEN_OFF = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER})
"""Reasons that are not the model's own: what it was saying may lack its end."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """How many tokens were read and written; None where the provider does not tell."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    """Those of the input that a cache served."""

    @property
    def total_tokens(self) -> int | None:
        """Input and output together, as far as they are known."""
        known = [count for count in (self.input_tokens, self.output_tokens) if count is not None]
        return sum(known) if known else None

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cached_input_tokens, other.cached_input_tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """What one call of a model gave."""

    message: AiMessage
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    finish_reason: FinishReason = FinishReason.STOP
    model_name: str | None = None
    """Which model answered, in the provider's words."""
    id: str | None = None
    """What the provider calls the response."""
    raw: Any = field(default=None, compare=False, repr=False)
    """The provider's own reply, as its SDK gave it."""

    @property
    def doubtful_call(self) -> int | None:
        """The place of the last tool call where the reply broke off and may have cut it off; None elsewhere.

        A text that is a JSON object is whole. Of arguments that came parsed nobody can tell.
        """
        calls = self.message.tool_execution_requests
        if not calls or self.finish_reason not in BROKEN_OFF or _is_json_object(calls[-1].arguments):
            return None
        return len(calls) - 1


@dataclass(frozen=True, slots=True)
class PartialResponse:
    """A piece of the text."""

    text: str


@dataclass(frozen=True, slots=True)
class PartialThinking:
    """A piece of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class PartialToolCall:
    """A piece of the arguments of one tool call (LangChain4j's PartialToolCall)."""

    index: int
    """Which call of the response, from 0."""
    id: str | None
    name: str
    partial_arguments: str
    """The next piece of the JSON text."""


@dataclass(frozen=True, slots=True)
class CompleteToolCall:
    """One tool call is whole; others may follow (LangChain4j's CompleteToolCall)."""

    index: int
    """Which call of the response, from 0."""
    request: ToolExecutionRequest


@dataclass(frozen=True, slots=True)
class CompleteResponse:
    """The response is whole; always the last event."""

    response: ChatResponse


ChatEvent = PartialResponse | PartialThinking | PartialToolCall | CompleteToolCall | CompleteResponse
"""What a stream yields."""


class ChatModel(Protocol):
    """A model that answers at once (LangChain4j's ChatModel)."""

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """Answer.

        Raises:
            ChatModelError: The provider did not answer, or refused.
        """
        ...


class StreamingChatModel(Protocol):
    """A model that answers piece by piece (LangChain4j's StreamingChatModel)."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Answer piece by piece; closing the generator stops the provider's stream.

        Raises:
            ChatModelError: The provider did not answer, refused, or broke off; while iterating.
        """
        ...


def _is_json_object(arguments: Mapping[str, Any] | str) -> bool:
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(from_json(arguments.encode(), allow_inf_nan=False), dict)
    except ValueError:
        return False


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else first + second


_AUTO = ToolChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequestParameters:
    """What is wanted of the model; None is unsaid. A method's parameter of this type sets them for one call."""

    tool_choice: ToolChoice | None = None
    """For the first response: a choice that forces a call would otherwise force one in every response, for ever."""
    model_name: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Parameters that only one provider knows."""

    def over(self, others: ChatRequestParameters) -> ChatRequestParameters:
        """These, and those of the others that are unsaid here."""
        said = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        return replace(others, **{**said, "extra": {**others.extra, **self.extra}})

    def applied_to(self, request: ChatRequest) -> ChatRequest:
        """The request with these parameters."""
        said = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        return replace(request, **said) if said != {"extra": _EMPTY} else request


_NAMES = tuple(each.name for each in fields(ChatRequestParameters))


def after_first_response(choice: ToolChoice) -> ToolChoice:
    """The choice for the responses after the first: what forced a call has been obeyed."""
    return choice if choice.mode in {ToolChoiceMode.AUTO, ToolChoiceMode.NONE} else _AUTO
