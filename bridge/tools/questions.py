"""Questions: what a running tool may ask of whoever called it, and the answers.

The kinds are those of the Model Context Protocol: elicitation (ask the person), sampling (ask the caller's model) and
roots (ask which folders are in play). They are the same whether the caller is a remote client or a local program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.tools.content import Content
    from bridge.tools.specification import ToolSpecification


@dataclass(frozen=True, slots=True)
class Elicitation:
    """Ask the person to fill in a form."""

    message: str
    """What the person reads."""
    schema: Mapping[str, Any]
    """The form: a JSON Schema of type ``object`` whose properties are primitives, enums or lists of enum values."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Free data about the question; travels over MCP in ``_meta``, which has no place for it from 2026-07-28 on."""


@dataclass(frozen=True, slots=True)
class UrlElicitation:
    """Ask the person to visit a page, for what must not pass through the client: a login, a payment."""

    message: str
    """What the person reads."""
    url: str
    """The page to visit."""
    elicitation_id: str = ""
    """What identifies this request in a later notification of completion; empty from 2026-07-28 on, which has none."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Free data about the question; travels over MCP in ``_meta``, which has no place for it from 2026-07-28 on."""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """What the person did with a form or a page."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None
    """The filled form, where it was accepted."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Free data about the answer; travels over MCP in ``_meta``, which has no place for it from 2026-07-28 on."""

    @property
    def accepted(self) -> bool:
        """The person agreed."""
        return self.action == "accept"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A part of a message: the caller's model wants one of the question's tools called."""

    id: str
    """What identifies the call within the conversation."""
    name: str
    """The tool's name."""
    arguments: Mapping[str, Any]
    metadata: Mapping[str, Any] | None = None
    """Free data about it; travels over MCP in ``_meta``."""


@dataclass(frozen=True, slots=True)
class ToolUseResult:
    """A part of a message: what came of a call that the caller's model wanted."""

    id: str
    """Which call it was."""
    content: tuple[Content, ...]
    structured_content: Any = None
    is_error: bool = False
    metadata: Mapping[str, Any] | None = None
    """Free data about it; travels over MCP in ``_meta``."""


@dataclass(frozen=True, slots=True)
class SamplingMessage:
    """One message of a conversation that the caller's model is asked to continue."""

    role: Literal["user", "assistant"]
    content: tuple[Content | ToolUse | ToolUseResult, ...]
    metadata: Mapping[str, Any] | None = None
    """Free data about the message; travels over MCP in ``_meta``."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Ask the caller's model for a completion."""

    messages: Sequence[SamplingMessage]
    max_tokens: int
    """How many tokens the answer may have at most."""
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] = ()
    model_preferences: Mapping[str, Any] | None = None
    """MCP's ModelPreferences, as a mapping."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the provider of the caller's model."""
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    """Which servers' context the caller is to add; it need not."""
    tools: Sequence[ToolSpecification] = ()
    """Tools that the model may ask for; whoever asks the question calls them, and asks again with the results."""
    tool_choice: Literal["auto", "required", "none"] | None = None
    """Whether the model may, must or must not ask for a tool; None for what the caller does by itself."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Free data about the question; travels over MCP in ``_meta``, which has no place for it from 2026-07-28 on."""


@dataclass(frozen=True, slots=True)
class SamplingAnswer:
    """What the caller's model said."""

    content: tuple[Content | ToolUse | ToolUseResult, ...]
    model: str
    """The name of the model that answered."""
    role: Literal["user", "assistant"] = "assistant"
    stop_reason: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Free data about the answer; travels over MCP in ``_meta``, which has no place for it from 2026-07-28 on."""


@dataclass(frozen=True, slots=True)
class Roots:
    """Ask which folders the caller has opened."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    """Free data about the question; travels over MCP in ``_meta``, which has no place for it from 2026-07-28 on."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder, or file, that the caller has opened."""

    uri: str
    name: str | None = None
    metadata: Mapping[str, Any] | None = None
    """Free data about the folder; travels over MCP in ``_meta``."""


Question = Elicitation | UrlElicitation | Sampling | Roots
"""What can be asked."""

Answer = ElicitationAnswer | SamplingAnswer | tuple[Root, ...]
"""What can come back: in the order of the kinds of `Question`."""


class InputRequired(BaseException):
    """A call cannot go on before its caller answers; the call will be run again with the answers.

    An outcome of its own beside result and error. It derives from BaseException so that an ``except Exception`` in a
    tool does not eat it. Only the edge that can ask (the server, or a suspended invocation) catches it.

    Attributes:
        questions: What to ask, each under its key.
        state: What whoever raises it needs to go on: JSON data, opaque to everything between, and back in the next
            round as `Resumption.state`.
    """

    def __init__(self, questions: Mapping[str, Question], state: Any = None) -> None:
        super().__init__(f"waiting for answers to {', '.join(questions)}")
        self.questions = dict(questions)
        self.state = state


@dataclass(frozen=True, slots=True)
class Resumption:
    """What an earlier round of a call left for this one: the other end of an `InputRequired` with a state."""

    state: Any
    """The state, as it was left; nobody else can have made it."""
    answers: Mapping[str, Any]
    """The answers to what was asked, each under its question's key, as the caller gave them: MCP's JSON, unread."""
