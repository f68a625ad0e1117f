"""What a tool is: a specification, an executor, and how its calls are to be treated.

The vocabulary is LangChain4j's (`dev.langchain4j.agent.tool`, `dev.langchain4j.service.tool`): a `ToolSpecification`
says what a model sees, a `ToolExecutor` runs one `ToolExecutionRequest` into a `ToolExecutionResult`. A tool is one
thing wherever it comes from: a function, a method, an AI service, or another server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import DefinitionError
from bridge.text import short_repr
from bridge.tools.content import Content, Text, text_of
from bridge.tools.specification import icons_of, must_be, must_be_json

if TYPE_CHECKING:
    from datetime import datetime
    from types import UnionType

    from bridge.tools.context import InvocationContext

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_EMPTY: Mapping[str, Any] = {}

HINTS: Mapping[str, str] = {
    "title": "title",
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""What MCP calls each of `ToolAnnotations`."""


class DumpedHints(Protocol):
    """Hints as a pydantic model with MCP's names has them, such as the SDK's ``ToolAnnotations``."""

    def model_dump(self, *, by_alias: bool | None = None, exclude_none: bool = False) -> dict[str, Any]:
        """The hints under MCP's names."""
        ...


class ReturnBehavior(Enum):
    """What becomes of a tool's result in an AI service (LangChain4j's ReturnBehavior)."""

    TO_LLM = "to_llm"
    """The model reads the result and goes on."""
    IMMEDIATE = "immediate"
    """The result is the answer, if all tools of the response say so."""
    IMMEDIATE_IF_LAST = "immediate_if_last"
    """The result is the answer, if the tool is the last of the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """Hints about a tool's behaviour (MCP's ToolAnnotations). None means unsaid. From a remote server: untrusted."""

    title: str | None = None
    """A name for people; a specification's own title comes before it."""
    read_only: bool | None = None
    """The tool changes nothing."""
    destructive: bool | None = None
    """The tool may delete or overwrite, not only add."""
    idempotent: bool | None = None
    """Calling again with the same arguments changes nothing more."""
    open_world: bool | None = None
    """The tool reaches beyond a closed domain, such as the web."""

    def __post_init__(self) -> None:
        must_be(self.title, str | None, "the annotation title", "text")
        for name in HINTS.keys() - {"title"}:
            must_be(getattr(self, name), bool | None, f"the annotation {name}", "True, False or None")

    @classmethod
    def of(cls, hints: object) -> ToolAnnotations:
        """Hints however they were written.

        Args:
            hints: ToolAnnotations; a mapping with MCP's names, ``{"readOnlyHint": True}``; or a pydantic model of them,
                such as the SDK's.

        Raises:
            DefinitionError: They are something else, or a name or value in them is none of MCP's.
        """
        if isinstance(hints, cls):
            return hints
        said = hints.model_dump(by_alias=True, exclude_none=True) if hasattr(hints, "model_dump") else hints
        if not isinstance(said, Mapping):
            raise DefinitionError(
                f"annotations must be ToolAnnotations(…) or a mapping such as {{'readOnlyHint': True}}, "
                f"not {short_repr(hints)}"
            )
        names = {key: name for name, key in HINTS.items()}
        if unknown := [key for key in said if key not in names]:
            raise DefinitionError(f"annotations have no {unknown[0]!r}; MCP knows {', '.join(names)}")
        return cls(**{names[key]: value for key, value in said.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpecification:
    """All that a model, or a remote client, is told about a tool. Compared by value; not to be changed once made."""

    name: str
    """What a caller calls the tool."""
    title: str | None = None
    """A name for people."""
    description: str | None = None
    """What the tool does and when to use it."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: _NO_PARAMETERS)
    """A JSON Schema (2020-12) of type ``object``, carried as it was given."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema of ``structured_content``; None where there is none."""
    annotations: ToolAnnotations | None = None
    """Hints about the tool's behaviour."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Free data; travels over MCP in ``_meta``."""
    icons: tuple[Mapping[str, Any], ...] = ()
    """Icons as MCP writes them: ``{"src": …, "mimeType": …, "sizes": […]}``."""
    strict: bool | None = None
    """Ask a model provider that can to hold the model to the schema; None leaves it to the provider's adapter."""

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        name: Any = self.name  # a remote server, or a program without types, gives anything
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"a tool's name must be text, not {self.name!r}")
        of = f"of the tool {name!r}"
        must_be(self.title, str | None, f"the title {of}", "text")
        must_be(self.description, str | None, f"the description {of}", "text")
        must_be(self.strict, bool | None, f"strict {of}", "True, False or None")
        must_be(self.metadata, Mapping, f"the metadata {of}", "a mapping")
        must_be(self.output_schema, Mapping | None, f"the output schema {of}", "a JSON Schema as a mapping")
        must_be(self.parameters, Mapping, f"the parameters {of}", "a JSON Schema as a mapping")
        _set(self, "icons", icons_of(self.icons, f"the icons {of}"))
        if self.annotations is not None:
            _set(self, "annotations", ToolAnnotations.of(self.annotations))
        if self.parameters.get("type", "object") != "object":
            raise DefinitionError(f"the parameters of {self.name!r} must be a JSON Schema of type 'object'")
        must_be_json(
            f"the tool {name!r}",
            allows_halves=True,
            name=name,
            title=self.title,
            description=self.description,
            parameters=self.parameters,
            output_schema=self.output_schema,
            annotations=self.annotations,
            metadata=self.metadata,
            icons=self.icons,
        )


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
        must_be(self.propagate, bool, "propagate", "True or False")


_set = object.__setattr__  # frozen for everyone but the constructor
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
