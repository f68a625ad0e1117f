"""Questions that a running tool may ask its caller, and their answers.

The kinds are those of the Model Context Protocol: elicitation (ask the user), sampling (ask the caller's model) and
roots (ask for the caller's open folders). They are the same for remote clients and local programs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict

from pydantic_core import to_json
from typing_extensions import TypeVar

from bridge.errors import DefinitionError, ToolError
from bridge.text import short_repr
from bridge.tools.annotated_checks import check_fields
from bridge.tools.content import Block
from bridge.tools.forms import Form, MisfitError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bridge.tools.content import Content
    from bridge.tools.specification import ToolSpecification

T_co = TypeVar("T_co", default=Any, covariant=True)


@dataclass(frozen=True, slots=True)
class Elicitation:
    """Ask the user to fill in a form."""

    message: str
    """Text shown to the user."""
    schema: Mapping[str, Any]
    """The form: a JSON Schema of type ``object`` whose properties are primitives, enums or lists of enum values."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""
    form: Form | None = field(default=None, compare=False, repr=False, kw_only=True)
    """The form as it reads answers; None for that of the schema, which is checked before it is asked."""


@dataclass(frozen=True, slots=True)
class UrlElicitation:
    """Ask the user to visit a page, for data that must not pass through the client, such as a login or payment."""

    message: str
    """Text shown to the user."""
    url: str
    """URL of the page."""
    elicitation_id: str = ""
    """Identifier of this request in a later completion notification; empty since the 2026-07-28 revision."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer(Generic[T_co]):
    """The user's response to a form or page."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None
    """The completed form, if accepted."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""
    data: T_co | None = field(default=None, compare=False, kw_only=True)
    """The completed form as a value of the type that was asked for, or the fields of a JSON Schema; None unless the
    user accepted, and for what answers."""

    @property
    def accepted(self) -> bool:
        """True if the user accepted."""
        return self.action == "accept"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Part of a message: the caller's model requests a call of one of the question's tools."""

    id: str
    """Identifier of the call within the conversation."""
    name: str
    """Name of the tool."""
    arguments: Mapping[str, Any]
    metadata: Mapping[str, Any] | None = None
    """Arbitrary data; sent over MCP in ``_meta``."""


@dataclass(frozen=True, slots=True)
class ToolUseResult:
    """Part of a message: the result of a call that the caller's model requested."""

    id: str
    """Identifier of the call."""
    content: tuple[Content, ...]
    structured_content: Any = None
    is_error: bool = False
    metadata: Mapping[str, Any] | None = None
    """Arbitrary data; sent over MCP in ``_meta``."""


@dataclass(frozen=True, slots=True)
class SamplingMessage:
    """One message of the conversation that the caller's model continues."""

    role: Literal["user", "assistant"]
    content: tuple[Content | ToolUse | ToolUseResult, ...]
    metadata: Mapping[str, Any] | None = None
    """Arbitrary data; sent over MCP in ``_meta``."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Ask the caller's model for a completion."""

    messages: Sequence[SamplingMessage]
    max_tokens: int
    """Maximum number of tokens in the answer."""
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] = ()
    model_preferences: Mapping[str, Any] | None = None
    """MCP's ModelPreferences as a mapping."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Data for the provider of the caller's model."""
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    """Servers whose context the caller should include; a hint only."""
    tools: Sequence[ToolSpecification] = ()
    """Tools that the model may request; the asker calls them and asks again with the results."""
    tool_choice: Literal["auto", "required", "none"] | None = None
    """Permission or obligation to request a tool; None for the caller's default."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""


class SamplingOptions(TypedDict, total=False):
    """The fields of `Sampling` that are not required, for functions that pass them on."""

    system_prompt: str | None
    temperature: float | None
    stop_sequences: Sequence[str]
    model_preferences: Mapping[str, Any] | None
    metadata: Mapping[str, Any]
    include_context: Literal["none", "thisServer", "allServers"] | None
    tools: Sequence[ToolSpecification]
    tool_choice: Literal["auto", "required", "none"] | None
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SamplingAnswer:
    """The completion by the caller's model."""

    content: tuple[Content | ToolUse | ToolUseResult, ...]
    model: str
    """Name of the model that answered."""
    role: Literal["user", "assistant"] = "assistant"
    stop_reason: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""


@dataclass(frozen=True, slots=True)
class Roots:
    """Ask for the folders that the caller has opened."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or file that the caller has opened."""

    uri: str
    name: str | None = None
    metadata: Mapping[str, Any] | None = None
    """Arbitrary data; sent over MCP in ``_meta``."""


Question = Elicitation | UrlElicitation | Sampling | Roots
"""A question to the caller."""
Answer = ElicitationAnswer | SamplingAnswer | tuple[Root, ...]
"""An answer; in the order of the kinds of `Question`."""


_PLAIN = (
    "message",
    "url",
    "elicitation_id",
    "meta",
    "metadata",
    "system_prompt",
    "stop_sequences",
    "model_preferences",
)
"""Fields that are sent as they are."""


def _checked(key: object, question: Question) -> Question:
    """Return a question that can be sent, with its form.

    Raises:
        DefinitionError: It cannot be sent, or MCP cannot carry its form.
    """
    if not isinstance(question, Question):
        raise DefinitionError(
            f"{short_repr(question)} is not a question; ask an Elicitation, a UrlElicitation, a Sampling or Roots"
        )
    if isinstance(question, Elicitation) and question.form is None:
        form = Form.of(question.schema)
        question = replace(question, schema=form.schema, form=form)
    check_fields(question)
    if isinstance(question, Sampling):
        for message in question.messages:
            _check_message(message)
    try:
        to_json([key, *(getattr(question, name, None) for name in _PLAIN)])
    except ValueError as error:
        raise DefinitionError(f"the question {key!r} cannot be written as JSON: {error}") from error
    if not isinstance(key, str):
        raise DefinitionError(f"the key of a question must be text, not {key!r}")
    return question


def _check_message(message: SamplingMessage) -> None:
    if not isinstance(message, SamplingMessage):
        raise DefinitionError(f"a message of a Sampling must be a SamplingMessage, not {short_repr(message)}")
    check_fields(message)
    is_list = isinstance(message.content, list | tuple)
    if not is_list or not all(isinstance(part, Block | ToolUse | ToolUseResult) for part in message.content):
        raise DefinitionError(
            f"content of SamplingMessage must be a list of content, such as Text, not {short_repr(message.content)}"
        )


def fitting(question: Question, answer: Answer) -> Answer:
    """Return an answer as its asker may use it: only what was asked, and only if the user accepted.

    Raises:
        MisfitError: The answer does not fit the question.
    """
    match question, answer:
        case Elicitation(), ElicitationAnswer(action="accept"):
            form = question.form or Form.received(question.schema)
            return replace(answer, data=form.read(answer.content))
        case _, ElicitationAnswer(action="decline" | "cancel", content=dict()):
            return replace(answer, content=None)
        case Sampling(), SamplingAnswer():
            offered = {tool.name for tool in question.tools}
            for part in answer.content:
                if isinstance(part, ToolUse) and part.name not in offered:
                    raise MisfitError(f"the model requests the tool {part.name!r}, which was not offered")
    return answer


def asked_again(question: Question, problem: MisfitError) -> Question:
    """Return the question for the second time, with what was wrong for the user."""
    if not isinstance(question, Elicitation):
        return question
    return replace(question, message=f"{question.message}\n({problem})")


async def ask_for_fitting(
    ask: Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Answer]]], questions: Mapping[str, Question]
) -> Mapping[str, Answer]:
    """Ask questions; those with an answer that does not fit are asked once more.

    Args:
        ask: Asks the questions, as `bridge.tools.channel.Channel.ask`; a call may be run again in between.
        questions: The questions.

    Returns:
        Fitting answers under the same keys; a form that was not filled in correctly twice counts as declined.

    Raises:
        DefinitionError: A question cannot be sent, or MCP cannot carry its form.
        ToolError: The model's answer does not fit.
    """
    questions = {key: _checked(key, question) for key, question in questions.items()}
    answers = dict(await ask(questions))
    again: dict[str, Question] = {}
    for key, question in questions.items():
        try:
            answers[key] = fitting(question, answers[key])
        except MisfitError as error:
            again[key] = asked_again(question, error)
    if not again:
        return answers
    given = await ask({f"{key}-again": question for key, question in again.items()})
    for key, question in again.items():
        try:
            answers[key] = fitting(question, given[f"{key}-again"])
        except MisfitError as error:
            if not isinstance(question, Elicitation):
                raise ToolError(f"the client's answer is not usable: {error}") from error
            answers[key] = ElicitationAnswer("decline")
    return answers


class InputRequired(BaseException):
    """A call needs answers from its caller; it will be run again with them.

    Derives from BaseException so that ``except Exception`` in a tool does not catch it. Only the server or a suspended
    invocation catches it.

    Attributes:
        questions: The questions by key.
        state: JSON data that the next run needs; opaque to everything in between, returned as `Resumption.state`.
    """

    def __init__(self, questions: Mapping[str, Question], state: Any = None) -> None:
        super().__init__(f"waiting for answers to {', '.join(questions)}")
        self.questions = dict(questions)
        self.state = state


@dataclass(frozen=True, slots=True)
class Resumption:
    """State and answers that an `InputRequired` with a state left for the next run of the call."""

    state: Any
    """The state of the earlier run; its integrity is protected."""
    answers: Mapping[str, Any]
    """The answers under the keys of their questions, as unparsed MCP JSON."""
