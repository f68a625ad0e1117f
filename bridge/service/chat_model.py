"""Protocols for chat models, and their requests, responses and events.

The types follow LangChain4j's ChatModel, StreamingChatModel, ChatRequest and ChatResponse. Adapters in `bridge.models`
implement them for providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, get_args

from pydantic_core import from_json

from bridge.errors import DefinitionError
from bridge.service.messages import ChatMessage
from bridge.text import short_repr
from bridge.tools.checks import require_count, require_type
from bridge.tools.specification import ToolSpecification

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bridge.service.messages import AiMessage
    from bridge.tools.tool import ToolExecutionRequest

_EMPTY: Mapping[str, Any] = {}
_MESSAGE_TYPES: tuple[type, ...] = get_args(ChatMessage)


class ToolChoiceMode(Enum):
    """Permission or obligation to call tools."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"
    NAMED = "named"
    """The model must call a specific tool."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Tools that the model may call: `ToolChoice.AUTO`, `.REQUIRED`, `.NONE`, or `ToolChoice.of("get_weather")`."""

    mode: ToolChoiceMode = ToolChoiceMode.AUTO
    tool_name: str | None = None
    """The tool for the mode NAMED."""

    def __post_init__(self) -> None:
        require_type(self.mode, ToolChoiceMode, "mode", "a ToolChoiceMode, such as ToolChoiceMode.REQUIRED")
        if self.mode is ToolChoiceMode.NAMED:
            require_type(self.tool_name, str, "tool_name", "the name of a tool for the mode NAMED")

    AUTO: ClassVar[ToolChoice]
    """The model decides; the default."""
    REQUIRED: ClassVar[ToolChoice]
    """The model must call at least one tool."""
    NONE: ClassVar[ToolChoice]
    """The model must call no tool."""

    @classmethod
    def of(cls, tool_name: str) -> ToolChoice:
        """Require a call of this tool."""
        return cls(ToolChoiceMode.NAMED, tool_name)


ToolChoice.AUTO = ToolChoice()
ToolChoice.REQUIRED = ToolChoice(ToolChoiceMode.REQUIRED)
ToolChoice.NONE = ToolChoice(ToolChoiceMode.NONE)


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """Requires a reply in JSON that matches a schema (LangChain4j's ResponseFormat of type JSON)."""

    schema: Mapping[str, Any]
    """The JSON Schema."""
    name: str = "response"
    """Name of the schema, for providers that require one."""
    strict: bool = True
    """Request strict adherence if the provider supports it for this schema."""

    def __post_init__(self) -> None:
        require_type(self.schema, Mapping, "schema", "a JSON Schema as a mapping")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request to a chat model."""

    messages: tuple[ChatMessage, ...]
    tool_specifications: tuple[ToolSpecification, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    response_format: ResponseFormat | None = None
    """None for text."""
    model_name: str | None = None
    """Overrides the adapter's model."""
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Provider-specific parameters, added to its request unchanged."""

    def __post_init__(self) -> None:
        _make_tuple(self, "messages", self.messages, _MESSAGE_TYPES, "a message, such as UserMessage.of(…)")
        _make_tuple(self, "tool_specifications", self.tool_specifications, (ToolSpecification,), "a ToolSpecification")
        if self.response_format is not None:
            require_type(self.response_format, ResponseFormat, "response_format", "a ResponseFormat, or None")
        _check_parameters(self, may_miss=False)


class FinishReason(Enum):
    """Reason for the end of a response."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_EXECUTION = "tool_execution"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


BROKEN_OFF = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER})
"""Reasons that may truncate the response."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts of a response; None if the provider does not report them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    """Input tokens served from a cache."""

    @property
    def total_tokens(self) -> int | None:
        """Sum of the known input and output tokens."""
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
    """One response of a chat model."""

    message: AiMessage
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    finish_reason: FinishReason = FinishReason.STOP
    model_name: str | None = None
    """Name of the model that answered, as reported by the provider."""
    id: str | None = None
    """The provider's id of the response."""
    raw: Any = field(default=None, compare=False, repr=False)
    """The provider's response object from its SDK."""

    @property
    def doubtful_call(self) -> int | None:
        """Index of the last tool call if the response was truncated within it; otherwise None.

        Arguments that are a complete JSON object in text form are not truncated. For arguments already parsed by the
        provider this is unknown, so they count as truncated.
        """
        calls = self.message.tool_execution_requests
        if not calls or self.finish_reason not in BROKEN_OFF or _is_json_object(calls[-1].arguments):
            return None
        return len(calls) - 1


@dataclass(frozen=True, slots=True)
class PartialResponse:
    """A part of the text."""

    text: str


@dataclass(frozen=True, slots=True)
class PartialThinking:
    """A part of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class PartialToolCall:
    """A part of the arguments of one tool call (LangChain4j's PartialToolCall)."""

    index: int
    """Index of the call in the response, from 0."""
    id: str | None
    name: str
    partial_arguments: str
    """Next part of the JSON text."""


@dataclass(frozen=True, slots=True)
class CompleteToolCall:
    """A tool call is complete; others may follow (LangChain4j's CompleteToolCall)."""

    index: int
    """Index of the call in the response, from 0."""
    request: ToolExecutionRequest


@dataclass(frozen=True, slots=True)
class CompleteResponse:
    """The response is complete; always the last event."""

    response: ChatResponse


ChatEvent = PartialResponse | PartialThinking | PartialToolCall | CompleteToolCall | CompleteResponse
"""Events of a stream."""


class ChatModel(Protocol):
    """A model that returns complete responses (LangChain4j's ChatModel)."""

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """Send a request and return the response.

        Raises:
            ChatModelError: The provider did not respond, or returned an error.
        """
        ...


class StreamingChatModel(Protocol):
    """A model that streams responses (LangChain4j's StreamingChatModel)."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Send a request and yield events; closing the generator stops the provider's stream.

        Raises:
            ChatModelError: The provider did not respond, returned an error, or broke off the stream. Raised during
                iteration.
        """
        ...


def provider_of(model: object) -> str:
    """Return the name of a model's provider: its attribute ``provider``, or else the name of its class."""
    return str(getattr(model, "provider", None) or type(model).__name__)


def _is_json_object(arguments: Mapping[str, Any] | str) -> bool:
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(from_json(arguments.encode(), allow_inf_nan=False), dict)
    except ValueError:
        return False


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else first + second


def _make_tuple(owner: object, name: str, values: Any, kinds: tuple[type, ...], item: str) -> None:
    """Make an attribute a tuple, and check the types of its items; of a tuple, which the loop makes, only the last."""
    if type(values) is tuple:
        if values and type(values[-1]) not in kinds:
            require_type(values[-1], kinds, f"an item of {name}", item)
        return
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise DefinitionError(f"{name} must be a list, each item {item}, not {short_repr(values)}")
    values = tuple(values)
    object.__setattr__(owner, name, values)
    for value in values:
        require_type(value, kinds, f"an item of {name}", item)


def _check_parameters(owner: ChatRequest | ChatRequestParameters, *, may_miss: bool) -> None:
    if type(owner.tool_choice) is not ToolChoice and not (may_miss and owner.tool_choice is None):
        require_type(owner.tool_choice, ToolChoice, "tool_choice", "a ToolChoice, such as ToolChoice.REQUIRED")
    if owner.model_name is not None:
        require_type(owner.model_name, str, "model_name", "text, or None")
    if owner.temperature is not None:
        _require_number(owner.temperature, "temperature")
    if owner.top_p is not None:
        _require_number(owner.top_p, "top_p")
    if owner.max_output_tokens is not None:
        require_count(owner.max_output_tokens, "max_output_tokens", optional=True)
    if owner.stop_sequences != () and not (may_miss and owner.stop_sequences is None):
        _make_tuple(owner, "stop_sequences", owner.stop_sequences, (str,), "text")
    if owner.extra is not _EMPTY:
        require_type(owner.extra, Mapping, "extra", "a mapping")


def _require_number(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise DefinitionError(f"{name} must be a number of at least 0, or None, not {short_repr(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequestParameters:
    """Optional parameters of a request; None means not specified.

    A method's parameter of this type applies to one call.
    """

    tool_choice: ToolChoice | None = None
    """Applies to the first response only; otherwise a forced call would repeat in every response."""
    model_name: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Provider-specific parameters."""

    def __post_init__(self) -> None:
        _check_parameters(self, may_miss=True)

    def over(self, others: ChatRequestParameters) -> ChatRequestParameters:
        """Return these parameters, with unspecified ones taken from others."""
        return replace(others, **{**self._specified(), "extra": {**others.extra, **self.extra}})

    def applied_to(self, request: ChatRequest) -> ChatRequest:
        """Return the request with these parameters."""
        specified = self._specified()
        return replace(request, **specified) if specified != {"extra": _EMPTY} else request

    def _specified(self) -> dict[str, Any]:
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}


_NAMES = tuple(field.name for field in fields(ChatRequestParameters))


def after_first_response(choice: ToolChoice) -> ToolChoice:
    """Return the choice for responses after the first; a forced call is not repeated."""
    is_repeatable = choice.mode is ToolChoiceMode.AUTO or choice.mode is ToolChoiceMode.NONE
    return choice if is_repeatable else ToolChoice.AUTO
