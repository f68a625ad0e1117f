"""Guardrails of services: user messages and answers (LangChain4j's InputGuardrail and OutputGuardrail).

    def no_card_numbers(request: InputGuardrailRequest) -> Refuse | None:
        return Refuse("write no card numbers") if CARD.search(request.text) else None

    async def polite(request: OutputGuardrailRequest) -> Reprompt | None:
        return None if await is_polite(request.text) else Reprompt("Say it politely.")

    ai_service(Assistant, chat_model=model, input_guardrails=[no_card_numbers], output_guardrails=[polite])

A guardrail is a function, or an object with ``__call__``, synchronous or asynchronous. It receives the request and
returns None to pass it on, or one of:

    Rewrite(value)    replaces the message or the answer
    Refuse(reason)    ends the invocation with `GuardrailError`
    Retry(reason)     output only: the model answers once more, and does not see the refused answer
    Reprompt(text)    output only: the model sees the answer and this text, and answers once more

Guardrails run in order, those of the service before those of the method; each one receives the rewritten value of those
before it. An exception that a guardrail raises ends the invocation. A refused answer and a reprompt are never stored in
the memory. The parts of a streamed answer are held back until it is accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from bridge.errors import DefinitionError, GuardrailError
from bridge.service.chat_model import PartialResponse, PartialThinking
from bridge.service.events import IntermediateResponse
from bridge.service.guardrails.outcomes import Reprompt, Retry, Rewrite, checked_guardrails, name_of, ruling
from bridge.service.messages import AiMessage, UserMessage
from bridge.service.structured import ReplyMismatchError
from bridge.text import short_repr
from bridge.tools.checks import require_count
from bridge.tools.content import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.service.chat_model import ChatResponse
    from bridge.service.events import Emit, ServiceEvent
    from bridge.service.guardrails.outcomes import InputOutcome, OutputOutcome
    from bridge.service.messages import ChatMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecution

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_MAX_GUARDRAIL_RETRIES = 2
"""Default maximum of further answers in one invocation; the same as in LangChain4j."""

_INPUT, _OUTPUT = "__bridge_input_guardrails__", "__bridge_output_guardrails__"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputGuardrailRequest:
    """A user's message before the model receives it."""

    message: UserMessage
    system: str | None
    """Text of the system message."""
    messages: tuple[ChatMessage, ...]
    """Earlier messages of the conversation that the model receives, the system message included."""
    context: InvocationContext
    """Context of the invocation, with its memory id, parameters and caller."""
    method: str
    """The called method: ``Assistant.chat``."""

    @property
    def text(self) -> str:
        """Text of the message."""
        return self.message.text


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputGuardrailRequest:
    """An answer before the service returns it."""

    message: AiMessage
    """The model's message; a message with the text of the tools' results if these are the answer."""
    value: Any
    """The answer in the method's return type; the text for `str` and `TokenStream`."""
    user_message: UserMessage
    messages: tuple[ChatMessage, ...]
    """All messages that the model has received, the system message included."""
    tool_executions: tuple[ToolExecution, ...]
    """Tools that the invocation has run."""
    attempt: int
    """Number of the answer, from 1."""
    context: InvocationContext
    """Context of the invocation, with its memory id, parameters and caller."""
    method: str
    """The called method: ``Assistant.chat``."""

    @property
    def text(self) -> str:
        """Text of the answer."""
        return self.message.text or ""


InputGuardrail = Callable[[InputGuardrailRequest], "InputOutcome | Awaitable[InputOutcome]"]
"""Checks a user's message; see the module."""
OutputGuardrail = Callable[[OutputGuardrailRequest], "OutputOutcome | Awaitable[OutputOutcome]"]
"""Checks an answer; see the module."""


def input_guardrails(*guardrails: InputGuardrail) -> Callable[[F], F]:
    """Check the messages to a service's method (LangChain4j's @InputGuardrails).

    Raises:
        DefinitionError: A guardrail is not a function of the request.
    """
    checked = checked_guardrails(guardrails, "input_guardrails")
    return lambda method: _set_guardrails(method, _INPUT, checked)


def output_guardrails(*guardrails: OutputGuardrail) -> Callable[[F], F]:
    """Check the answers of a service's method (LangChain4j's @OutputGuardrails).

    Raises:
        DefinitionError: A guardrail is not a function of the request.
    """
    checked = checked_guardrails(guardrails, "output_guardrails")
    return lambda method: _set_guardrails(method, _OUTPUT, checked)


def _set_guardrails(method: F, key: str, guardrails: tuple[Any, ...]) -> F:
    if not callable(method):
        raise DefinitionError(f"{method!r} cannot have guardrails; decorate a method of the service's interface")
    setattr(method, key, guardrails)
    return method


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """Guardrails of a service or of one of its methods, in order."""

    input: tuple[InputGuardrail, ...] = ()
    output: tuple[OutputGuardrail, ...] = ()
    max_retries: int = DEFAULT_MAX_GUARDRAIL_RETRIES
    """Maximum further answers that output guardrails may request in one invocation."""

    def __post_init__(self) -> None:
        require_count(self.max_retries, "max_guardrail_retries", least=0)

    def of(self, method: Callable[..., Any]) -> Guardrails:
        """Return these guardrails with those of a method after them."""
        own_input, own_output = getattr(method, _INPUT, ()), getattr(method, _OUTPUT, ())
        return replace(self, input=(*self.input, *own_input), output=(*self.output, *own_output))

    async def check_input(self, request: InputGuardrailRequest) -> UserMessage:
        """Return the message for the model.

        Raises:
            GuardrailError: A guardrail refused it.
            DefinitionError: A guardrail returned another type.
            Exception: Raised by a guardrail.
        """
        refused = f"the message to {request.method}"
        for guardrail in self.input:
            rewrite = await ruling(guardrail, request, refused)
            if rewrite is not None:
                request = replace(request, message=_rewritten_message(guardrail, rewrite.value, request.message))
        return request.message

    async def check_output(
        self, request: OutputGuardrailRequest, read: Callable[[str], Any]
    ) -> OutputGuardrailRequest | Retry | Reprompt:
        """Return the request with the accepted answer, or the outcome that requires another answer.

        Args:
            request: The answer.
            read: Converts a text into the method's return type.

        Raises:
            GuardrailError: A guardrail refused the answer, or requested more answers than allowed.
            DefinitionError: A guardrail returned another type.
            Exception: Raised by a guardrail.
        """
        refused = f"the answer of {request.method}"
        for guardrail in self.output:
            outcome: Rewrite | Retry | Reprompt | None = await ruling(guardrail, request, refused, Retry | Reprompt)
            if isinstance(outcome, Rewrite):
                request = _rewritten_answer(guardrail, outcome.value, request, read)
            elif outcome is not None:
                if request.attempt > self.max_retries:
                    reason = outcome.reason if isinstance(outcome, Retry) else outcome.text
                    raise GuardrailError(f"{request.attempt} answers of {request.method}", name_of(guardrail), reason)
                return outcome
        return request


def _rewritten_message(guardrail: InputGuardrail, value: Any, message: UserMessage) -> UserMessage:
    if isinstance(value, UserMessage):
        return value
    if not isinstance(value, str):
        raise DefinitionError(
            f"the guardrail {name_of(guardrail)!r} rewrote the message to {short_repr(value)}; "
            "give text or a UserMessage"
        )
    media = tuple(block for block in message.content if not isinstance(block, Text))
    return replace(message, content=(Text(value), *media))


def _rewritten_answer(
    guardrail: OutputGuardrail, value: Any, request: OutputGuardrailRequest, read: Callable[[str], Any]
) -> OutputGuardrailRequest:
    try:
        text = value if isinstance(value, str) else to_json(value).decode()
        return replace(request, message=AiMessage(text), value=read(text))  # without the thinking, which may quote it
    except (PydanticSerializationError, ReplyMismatchError) as error:
        raise DefinitionError(
            f"the guardrail {name_of(guardrail)!r} rewrote the answer to {short_repr(value)}, which {request.method} "
            f"cannot return: {error}"
        ) from error


def without_text(message: AiMessage) -> AiMessage:
    """Return a message with its tool calls alone: no guardrail has checked the text and thinking beside them."""
    return AiMessage(tool_execution_requests=message.tool_execution_requests)


def withheld(response: ChatResponse) -> ChatResponse:
    """Return a response without what no guardrail has accepted; its tool calls and usage stay."""
    return replace(response, message=without_text(response.message), raw=None)


class HeldAnswer:
    """Passes on the events of an invocation, but holds back the parts of an answer until it is accepted.

    Text beside tool calls is dropped: it is not the answer, and no guardrail has checked it.
    """

    __slots__ = ("_emit", "_held")

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._held: list[ServiceEvent] = []

    async def __call__(self, event: ServiceEvent) -> None:
        """Hold back an event, or pass it on."""
        if isinstance(event, PartialResponse | PartialThinking):
            self._held.append(event)
            return
        if isinstance(event, IntermediateResponse):
            self.discard()
            event = IntermediateResponse(withheld(event.response))
        await self._emit(event)

    def discard(self) -> None:
        """Forget the parts of an answer that was not accepted."""
        self._held.clear()

    async def release(self, accepted: AiMessage, *, is_rewritten: bool) -> None:
        """Pass on the parts of the accepted answer, or the text that replaces them.

        Guardrails check the message. Parts that are not its text, as those of a model that began again, are dropped.
        """
        events: list[ServiceEvent] = [] if is_rewritten else self._held
        if not _is_whole(events, PartialThinking, accepted.thinking):
            events = [each for each in events if not isinstance(each, PartialThinking)]
        if is_rewritten or (self._held and not _is_whole(events, PartialResponse, accepted.text)):
            events = [each for each in events if not isinstance(each, PartialResponse)]
            events.append(PartialResponse(accepted.text or ""))
        for event in events:
            await self._emit(event)


def _is_whole(events: Iterable[ServiceEvent], kind: type[PartialResponse | PartialThinking], whole: str | None) -> bool:
    """Return True if the parts of a kind add up to a text, apart from whitespace."""
    parts = "".join(each.text for each in events if isinstance(each, kind))
    return "".join(parts.split()) == "".join((whole or "").split())
