"""Tools: a specification, an executor, and the policy for calls.

The vocabulary is LangChain4j's (`dev.langchain4j.agent.tool`, `dev.langchain4j.service.tool`): a `ToolSpecification`
describes the tool to a model, and a `ToolExecutor` runs a `ToolExecutionRequest` into a `ToolExecutionResult`. The type
is the same for functions, methods, AI services and tools of remote servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from bridge.tools.calls import ToolExecution, ToolExecutionRequest, ToolExecutionResult
from bridge.tools.checks import require_count, require_seconds, require_type
from bridge.tools.decoration import Published
from bridge.tools.executors import CallableExecutor, ObjectExecutor
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.task import TaskPolicy

if TYPE_CHECKING:
    from bridge.tools.content import UserMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.executors import ExecutorFunction

__all__ = [
    "ProviderFunction",
    "ReturnBehavior",
    "Tool",
    "ToolExecution",
    "ToolExecutionRequest",
    "ToolExecutionResult",
    "ToolExecutor",
    "ToolPolicy",
    "ToolProvider",
    "ToolProviderRequest",
]


class ReturnBehavior(Enum):
    """Use of a tool's result in an AI service (LangChain4j's ReturnBehavior)."""

    TO_LLM = "to_llm"
    """The model reads the result and continues."""
    IMMEDIATE = "immediate"
    """The result is the answer if no tool of the response is TO_LLM."""
    IMMEDIATE_IF_LAST = "immediate_if_last"
    """The result is the answer if the tool is the last of the response."""


class ToolExecutor(Protocol):
    """Runs the requests for one tool (LangChain4j's ToolExecutor)."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request.

        Args:
            request: The name, and the arguments as a mapping, or as JSON text from a program that does not use
                `execute`. The name is the one that the caller used, which a wrapper may have changed; executors of
                remote tools store the remote name themselves.
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
    spill_chars: int | None = None
    """Characters up to which a result stays whole; a larger one is kept aside, and the model reads a part of it.

    For a server or an AI service, with the settings of its `ExecutionPolicy.spill`. None for the limit there.
    """
    propagate: bool = False
    """Let the tool's exceptions other than ToolCallError stop the invocation instead of becoming a result."""

    def __post_init__(self) -> None:
        require_seconds(self.timeout_seconds, "timeout_seconds")
        require_count(self.max_output_chars, "max_output_chars", optional=True)
        require_count(self.spill_chars, "spill_chars", optional=True)
        require_type(self.propagate, bool, "propagate", "True or False")


_NO_ANNOTATIONS = ToolAnnotations()
ALWAYS_LOAD_META_KEY = "anthropic/alwaysLoad"
"""Key of ``_meta`` with which a server marks a tool that a model sees without searching for it."""


@dataclass(frozen=True, slots=True)
class Tool(Published):
    """A specification with its executor, return behaviour and policy.

    The executor may be a function of the request and the context, synchronous or asynchronous, which returns text,
    None, JSON data or a `ToolExecutionResult`: ``Tool(specification, lambda request, context: "It will rain.")``. So
    may ``execute`` of your own class; the attribute is then an object that calls it.

    Raises:
        DefinitionError: The executor is neither an object with ``execute`` nor such a function.
    """

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
    task: TaskPolicy | None = field(default=None, kw_only=True)
    """Settings of calls as tasks, for clients that support tasks; None if calls are answered directly."""
    enabled: bool = field(default=True, kw_only=True)
    """False for a tool that boxes hide until `bridge.tools.box.Box.enable`."""
    listed: bool = field(default=True, kw_only=True)
    """False for a tool that a server leaves out of its list; clients that know its name can call it."""

    if TYPE_CHECKING:  # the generated constructor would only accept what the attribute is

        def __init__(
            self,
            specification: ToolSpecification,
            executor: ToolExecutor | ExecutorFunction,
            *,
            return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM,
            policy: ToolPolicy = ...,
            interactive: bool = True,
            source: str = ...,
            server: str | None = None,
            trusted: bool = True,
            always_visible: bool = False,
            task: TaskPolicy | None = None,
            enabled: bool = True,
            listed: bool = True,
        ) -> None: ...

    def __post_init__(self) -> None:
        require_type(self.specification, ToolSpecification, "specification", "a ToolSpecification")
        require_type(self.return_behavior, ReturnBehavior, "return_behavior", "a ReturnBehavior")
        require_type(self.policy, ToolPolicy, "policy", "a ToolPolicy")
        require_type(self.task, TaskPolicy | None, "task", "a TaskPolicy, or None")
        for name in ("interactive", "always_visible", "trusted", "enabled", "listed"):
            require_type(getattr(self, name), bool, name, "True or False")
        if not hasattr(self.executor, "execute"):
            object.__setattr__(self, "executor", CallableExecutor(self.executor, self.name))
        elif not (getattr(self.executor.execute, "__module__", None) or "").startswith("bridge."):
            object.__setattr__(self, "executor", ObjectExecutor(self.executor, self.name))

    @property
    def name(self) -> str:
        """Name under which the tool is called."""
        return self.specification.name

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the specification."""
        return self.specification.metadata

    @property
    def is_always_visible(self) -> bool:
        """True if a model sees the tool without searching for it: by `always_visible`, or by its ``_meta``."""
        return self.always_visible or self.specification.metadata.get(ALWAYS_LOAD_META_KEY) is True

    @property
    def is_unlimited(self) -> bool:
        """True if its policy limits neither the time nor the results of its calls."""
        return self.policy.timeout_seconds is None and self.policy.max_output_chars is None

    @property
    def runs_directly(self) -> bool:
        """True if its executor is a `FunctionExecutor` that runs directly, and nothing limits its calls."""
        return self.is_unlimited and getattr(self.executor, "runs_directly", False)

    def run_by(self, executor: ToolExecutor) -> Tool:
        """Return a copy with another executor; `dataclasses.replace` would check all the other fields again."""
        copy = object.__new__(Tool)
        for name in Tool.__slots__:
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "executor", executor)
        return copy

    @property
    def trusted_annotations(self) -> ToolAnnotations:
        """Annotations to base decisions on; empty if the tool has none or is not `trusted`."""
        return (self.specification.annotations if self.trusted else None) or _NO_ANNOTATIONS


class Tools(Protocol):
    """Tools by name; see `bridge.tools.toolbox.ToolBox`."""

    def find(self, name: str, /) -> Tool | None:
        """Return the tool with this name, or None."""
        ...

    def get(self, name: str, /) -> Tool:
        """Return the tool with this name.

        Raises:
            UnknownToolError: There is no such tool.
        """
        ...


class OneTool:
    """One tool, under any name."""

    __slots__ = ("_tool",)

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def get(self, _: str, /) -> Tool:
        """Return the tool."""
        return self._tool

    find = get


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProviderRequest:
    """The invocation for which a provider is asked for tools (LangChain4j's ToolProviderRequest)."""

    user_message: UserMessage
    """The user's message."""
    context: InvocationContext
    """Context of the invocation."""


class ToolProvider(Protocol):
    """Provides tools that depend on the invocation (LangChain4j's ToolProvider).

    With an attribute ``is_dynamic = True`` it is called before each model request, else once per invocation.
    """

    def provide_tools(self, request: ToolProviderRequest) -> object:
        """Return the tools, synchronously or asynchronously: any source of tools (see `tools_from`), or None."""
        ...


ProviderFunction = Callable[[ToolProviderRequest], object]
"""A function in place of a `ToolProvider`, synchronous or asynchronous, called once per invocation."""
