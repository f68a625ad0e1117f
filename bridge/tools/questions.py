"""Questions that a running tool may ask its caller, and their answers.

The kinds are those of the Model Context Protocol: elicitation (ask the user), sampling (ask the caller's model) and
roots (ask for the caller's open folders). They are the same for remote clients and local programs.
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
    """Ask the user to fill in a form."""

    message: str
    """Text shown to the user."""
    schema: Mapping[str, Any]
    """The form: a JSON Schema of type ``object`` whose properties are primitives, enums or lists of enum values."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""


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
class ElicitationAnswer:
    """The user's response to a form or page."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None
    """The completed form, if accepted."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data; sent over MCP in ``_meta`` before the 2026-07-28 revision."""

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
