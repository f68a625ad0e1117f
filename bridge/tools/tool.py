"""What a tool is: a specification, an executor, and how its calls are to be treated.

The vocabulary is LangChain4j's (`dev.langchain4j.agent.tool`, `dev.langchain4j.service.tool`): a `ToolSpecification`
says what a model sees, a `ToolExecutor` runs one `ToolExecutionRequest` into a `ToolExecutionResult`. A tool is one
thing wherever it comes from: a function, a method, an AI service, or another server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import DefinitionError
from bridge.tools.content import Content, Text, text_of
from bridge.tools.specification import _EMPTY, ToolAnnotations, require_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from types import UnionType

    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification


class ReturnBehavior(Enum):
    """What becomes of a tool's result in an AI service (LangChain4j's ReturnBehavior)."""

    TO_LLM = "to_llm"
    """The model reads the result and goes on."""
    IMMEDIATE = "immediate"
    """The result is the answer, if all tools of the response say so."""
    IMMEDIATE_IF_LAST = "immediate_if_last"
    """The result is the answer, if the tool is the last of the response."""


@dataclass(frozen=True, slots=True)
class ToolExecutionRequest:
    """A wish to run one tool, as a model or a remote client expressed it."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any] | str = field(default_factory=lambda: _EMPTY)
    """The arguments by name, or the JSON text that a model wrote. An executor always receives a mapping."""
    id: str | None = None
    """What ties the result to the request; some models give none."""


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """What came of one request."""

    content: tuple[Content, ...]
    """The result as blocks, whole."""
    structured_content: Any = None
    """The result as JSON data that conforms to the tool's output schema; None where there is none."""
    is_error: bool = False
    """The tool failed, and the content says why."""
    attributes: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Free data for callbacks and results on this side; neither a model nor a remote client sees it."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Free data that travels with the result over MCP, in ``_meta``; a model does not see it."""
    model_content: tuple[Content, ...] | None = None
    """What a model reads, where an output budget cut it; None where it reads `content`."""

    @property
    def text(self) -> str:
        """The text blocks of the whole content, joined by newlines."""
        return text_of(self.content)

    @property
    def model_text(self) -> str:
        """The text blocks of what a model reads, joined by newlines."""
        return text_of(self.content if self.model_content is None else self.model_content)

    @classmethod
    def error(cls, message: str) -> ToolExecutionResult:
        """A failed result with one text block."""
        return cls((Text(message),), is_error=True)

    @classmethod
    def of_text(cls, text: str) -> ToolExecutionResult:
        """A successful result with one text block."""
        return cls((Text(text),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """A request, its result, and when and how long it ran (LangChain4j's ToolExecution)."""

    request: ToolExecutionRequest
    result: ToolExecutionResult
    started_at: datetime
    """When it began; aware, UTC."""
    duration_seconds: float
    """How long it took, by a monotonic clock."""
    error: Exception | None = field(default=None, compare=False, repr=False)
    """What was raised on this side, where the result is an error for that reason."""


class ToolExecutor(Protocol):
    """Runs requests for one tool (LangChain4j's ToolExecutor)."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request.

        Args:
            request: What is asked; its arguments are a mapping. Its name is the name that the caller knows, which
                a wrapper may have changed: an executor that calls something remote keeps the remote name itself.
            context: Who calls, on whose behalf, with what left of time.

        Raises:
            ArgumentsError: The arguments do not validate.
            ToolError: The tool failed in a way that its author has words for.
            Exception: Anything else; its text stays on this side of a connection.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """How the calls of one tool are treated by the execution path."""

    timeout_seconds: float | None = None
    """How long one call may take; None leaves it to the caller's own limit."""
    max_output_chars: int | None = None
    """How many characters of text a model reads: of a longer text it reads head and tail. None: all."""
    propagate: bool = False
    """An exception of the tool that is not a ToolCallError stops the invocation instead of becoming a result."""

    def __post_init__(self) -> None:
        seconds: Any = self.timeout_seconds  # a program without types gives anything
        if seconds is not None and not (_is_number(seconds, int | float) and seconds > 0):
            raise DefinitionError(f"timeout_seconds must be a number of seconds above 0, or None, not {seconds!r}")
        chars: Any = self.max_output_chars
        if chars is not None and not (_is_number(chars, int) and chars > 0):
            raise DefinitionError(f"max_output_chars must be a whole number of at least 1, or None, not {chars!r}")
        require_type(self.propagate, bool, "propagate", "True or False")


_NO_ANNOTATIONS = ToolAnnotations()


def _is_number(value: object, kinds: type | UnionType) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Tool:
    """A specification with its executor, and how its calls are treated."""

    specification: ToolSpecification
    executor: ToolExecutor
    return_behavior: ReturnBehavior = field(default=ReturnBehavior.TO_LLM, kw_only=True)
    policy: ToolPolicy = field(default_factory=ToolPolicy, kw_only=True)
    interactive: bool = field(default=True, kw_only=True)
    """The tool may report progress, log or ask while it runs. False promises that it does not."""
    source: str = field(default="a Tool made by hand", kw_only=True, compare=False)
    """Where the tool comes from, for messages: ``function 'add' (tools.py:3)``, ``server 'github'``."""
    server: str | None = field(default=None, kw_only=True, compare=False)
    """The configured name of the server where it runs; None where it runs in this process."""
    trusted: bool = field(default=True, kw_only=True)
    """The annotations may be relied on. False for a tool of a server that is not marked as trusted."""

    @property
    def name(self) -> str:
        """What a caller calls the tool."""
        return self.specification.name

    @property
    def trusted_annotations(self) -> ToolAnnotations:
        """The annotations to decide by: empty where the tool has none, or is not `trusted`."""
        return (self.specification.annotations if self.trusted else None) or _NO_ANNOTATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProviderRequest:
    """For whom and for what tools are wanted (LangChain4j's ToolProviderRequest)."""

    user_message: tuple[Content, ...]
    """What the user said."""
    context: InvocationContext
    """The invocation that wants them."""


class ToolProvider(Protocol):
    """Gives tools that depend on the invocation (LangChain4j's ToolProvider)."""

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
        """The tools for one invocation; asked again before every call of the model where `is_dynamic`."""
        ...

    @property
    def is_dynamic(self) -> bool:
        """Whether to ask again before every call of the model, or once an invocation."""
        ...
