"""Tools: a specification, an executor, and the policy for calls.

The vocabulary is LangChain4j's (`dev.langchain4j.agent.tool`, `dev.langchain4j.service.tool`): a `ToolSpecification`
describes the tool to a model, and a `ToolExecutor` runs a `ToolExecutionRequest` into a `ToolExecutionResult`. The type
is the same for functions, methods, AI services and tools of remote servers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from bridge.tools.checks import require_count, require_seconds, require_type
from bridge.tools.content import Content, Text, text_of
from bridge.tools.specification import _EMPTY, ToolAnnotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification


class ReturnBehavior(Enum):
    """Use of a tool's result in an AI service (LangChain4j's ReturnBehavior)."""

    TO_LLM = "to_llm"
    """The model reads the result and continues."""
    IMMEDIATE = "immediate"
    """The result is the answer if no tool of the response is TO_LLM."""
    IMMEDIATE_IF_LAST = "immediate_if_last"
    """The result is the answer if the tool is the last of the response."""


@dataclass(frozen=True, slots=True)
class ToolExecutionRequest:
    """Request of a model or remote client to run one tool."""

    name: str
    """Name of the tool."""
    arguments: Mapping[str, Any] | str = field(default_factory=lambda: _EMPTY)
    """Arguments by name, or the JSON text written by the model. Executors always receive a mapping."""
    id: str | None = None
    """Identifier that links the result to the request; some models give none."""


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """Result of one request."""

    content: tuple[Content, ...]
    """The complete result as content blocks."""
    structured_content: Any = None
    """JSON data that conforms to the tool's output schema; None if there is none."""
    is_error: bool = False
    """True if the tool failed; the content then describes the error."""
    attributes: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Arbitrary data for callbacks and results in this process; hidden from models and remote clients."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Arbitrary data sent with the result over MCP in ``_meta``; hidden from models."""
    model_content: tuple[Content, ...] | None = None
    """Content for the model if an output budget shortened it; None if the model reads `content`."""
    value: Any = field(default=None, compare=False, repr=False)
    """Value that a function of this process returned, before its conversion; None for other tools."""

    @property
    def text(self) -> str:
        """The text blocks of the complete content, joined by newlines."""
        return text_of(self.content)

    @property
    def model_text(self) -> str:
        """The text blocks that the model reads, joined by newlines."""
        return text_of(self.content if self.model_content is None else self.model_content)

    @classmethod
    def error(cls, message: str) -> ToolExecutionResult:
        """Create a failed result with one text block."""
        return cls((Text(message),), is_error=True)

    @classmethod
    def of_text(cls, text: str) -> ToolExecutionResult:
        """Create a successful result with one text block."""
        return cls((Text(text),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """A request with its result, start time and duration (LangChain4j's ToolExecution)."""

    request: ToolExecutionRequest
    result: ToolExecutionResult
    started_at: datetime
    """Start time; timezone-aware, UTC."""
    duration_seconds: float
    """Duration by a monotonic clock."""
    error: Exception | None = field(default=None, compare=False, repr=False)
    """Exception raised in this process, if it caused the error result."""

    @property
    def result_object(self) -> Any:
        """Value that the function returned; None for tools of other processes, and once stored (LangChain4j)."""
        return self.result.value


class ToolExecutor(Protocol):
    """Runs the requests for one tool (LangChain4j's ToolExecutor)."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request.

        Args:
            request: The name and the arguments as a mapping. The name is the one that the caller used, which a wrapper
                may have changed; executors of remote tools store the remote name themselves.
            context: Context of the call: the caller, conversation and deadline.

        Raises:
            ArgumentsError: The arguments do not validate.
            ToolError: The tool failed with a message for the model.
            Exception: Any other failure; its text is not sent to remote clients.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """Limits and error handling for the calls of one tool."""

    timeout_seconds: float | None = None
    """Maximum duration of one call; None leaves it to the caller's own limit."""
    max_output_chars: int | None = None
    """Maximum characters of text that a model reads; longer texts are reduced to head and tail. None for no limit."""
    propagate: bool = False
    """Let the tool's exceptions other than ToolCallError stop the invocation instead of becoming a result."""

    def __post_init__(self) -> None:
        require_seconds(self.timeout_seconds, "timeout_seconds")
        require_count(self.max_output_chars, "max_output_chars", optional=True)
        require_type(self.propagate, bool, "propagate", "True or False")


_NO_ANNOTATIONS = ToolAnnotations()


@dataclass(frozen=True, slots=True)
class Tool:
    """A specification with its executor, return behaviour and policy."""

    specification: ToolSpecification
    executor: ToolExecutor
    return_behavior: ReturnBehavior = field(default=ReturnBehavior.TO_LLM, kw_only=True)
    policy: ToolPolicy = field(default_factory=ToolPolicy, kw_only=True)
    interactive: bool = field(default=True, kw_only=True)
    """True if the tool may report progress, log or ask questions while it runs."""
    always_visible: bool = field(default=False, kw_only=True)
    """True if a model sees the tool without searching for it (LangChain4j's SearchBehavior.ALWAYS_VISIBLE)."""
    source: str = field(default="a Tool made by hand", kw_only=True, compare=False)
    """Origin of the tool, for messages: ``function 'add' (tools.py:3)``, ``server 'github'``."""
    server: str | None = field(default=None, kw_only=True, compare=False)
    """Configured name of the server that runs the tool; None if it runs in this process."""
    trusted: bool = field(default=True, kw_only=True)
    """True if the annotations can be relied on; False for tools of servers that are not marked as trusted."""

    @property
    def name(self) -> str:
        """Name under which the tool is called."""
        return self.specification.name

    @property
    def trusted_annotations(self) -> ToolAnnotations:
        """Annotations to base decisions on; empty if the tool has none or is not `trusted`."""
        return (self.specification.annotations if self.trusted else None) or _NO_ANNOTATIONS


class Tools(Protocol):
    """Tools by name; see `bridge.tools.toolbox.ToolBox`."""

    def get(self, name: str, /) -> Tool:
        """Return the tool with this name.

        Raises:
            UnknownToolError: There is no such tool.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProviderRequest:
    """The invocation for which a provider is asked for tools (LangChain4j's ToolProviderRequest)."""

    user_message: tuple[Content, ...]
    """Content of the user's message."""
    context: InvocationContext
    """Context of the invocation."""


class ToolProvider(Protocol):
    """Provides tools that depend on the invocation (LangChain4j's ToolProvider)."""

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
        """Return the tools for one invocation, or for each model request if `is_dynamic`."""
        ...

    @property
    def is_dynamic(self) -> bool:
        """True if the provider is called before each model request, False if once per invocation."""
        ...
