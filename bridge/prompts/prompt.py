"""Prompts: their description, and the executor that renders them.

The vocabulary is MCP's (`Prompt`, `PromptArgument`, `PromptMessage`). A prompt is rendered like a tool is called: by a
`ToolExecutor`, so that time limits, cancellation and errors are the same. The messages are the value of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic_core import to_json

from bridge.errors import DefinitionError, ResultError
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.checks import require_name, require_type
from bridge.tools.completion import NO_COMPLETION, Completion
from bridge.tools.content import Block, Content, Text
from bridge.tools.decoration import Published
from bridge.tools.results import ResultWriter
from bridge.tools.specification import ToolSpecification, checked_icons, require_json
from bridge.tools.tool import Tool, ToolPolicy

if TYPE_CHECKING:
    from bridge.tools.completion import Completing
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutor

_MESSAGES = b'"messages":[%b]'
_MESSAGE = b'{"role":"user","content":{"type":"text","text":%b}}'
Role = Literal["user", "assistant"]
_NO_METADATA: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt (MCP's PromptMessage).

    Raises:
        DefinitionError: The content is neither text nor a content block, or the role is unknown.
    """

    content: Content
    """Text, given as a string too, an image, audio, a file or a link."""
    role: Role = "user"

    if TYPE_CHECKING:  # the generated constructor would only accept what the attribute is

        def __init__(self, content: Content | str, role: Role = "user") -> None: ...

    def __post_init__(self) -> None:
        content: Any = self.content
        if isinstance(content, str):
            object.__setattr__(self, "content", Text(content))
        else:
            require_type(content, Block, "the content of a prompt's message", "text or a content block")
        if self.role not in get_args(Role):
            raise DefinitionError(f"the role of a prompt's message must be 'user' or 'assistant', not {self.role!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """An argument of a prompt (MCP's PromptArgument)."""

    name: str
    title: str | None = None
    """Display name."""
    description: str | None = None
    """Text for users."""
    required: bool = False
    other: Mapping[str, Any] = field(default_factory=lambda: _NO_METADATA, hash=False)
    """Further members that a remote server lists, such as ``default``; a gateway passes them on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Published):
    """A prompt with its arguments (MCP's Prompt).

    Raises:
        DefinitionError: A value is invalid.
    """

    name: str
    title: str | None = None
    """Display name."""
    description: str | None = None
    """Text for users."""
    arguments: tuple[PromptArgument, ...] = ()
    icons: tuple[Mapping[str, Any], ...] = ()
    """Icons as MCP writes them: ``{"src": …, "mimeType": …, "sizes": […]}``."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NO_METADATA)
    """Arbitrary data; sent over MCP in ``_meta``."""
    renderer: ToolExecutor
    """Renders it: the messages are the ``value`` of its result."""
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    """Its time limit."""
    interactive: bool = True
    """True if rendering may report progress, log or ask questions."""
    completions: Completing | None = field(default=None, compare=False)
    source: str = field(default="a Prompt made by hand", compare=False)
    """Origin, for messages."""
    server: str | None = field(default=None, compare=False)
    """Configured name of the server that it comes from; None if it is rendered in this process."""
    enabled: bool = True
    """False for one that boxes hide until `bridge.tools.box.Box.enable`."""
    tool: Tool = field(init=False, compare=False, repr=False)
    """Renders the prompt."""
    runs_directly: bool = field(init=False, compare=False, repr=False)
    """True if a function renders it that a server may call directly; see `Tool.runs_directly`."""
    takes_context: bool = field(init=False, compare=False, repr=False)
    """True unless it is known to need no context; see `FunctionExecutor.takes_context`."""
    ending: bytes = field(init=False, compare=False, repr=False)
    """Members of MCP's ``GetPromptResult`` behind those of the messages, as JSON."""

    def __post_init__(self) -> None:
        require_name(self.name, "the name of a prompt")
        what = f"the prompt {self.name!r}"
        for name in ("title", "description"):
            require_type(getattr(self, name), str | None, f"the {name} of {what}", "text")
        require_type(self.metadata, Mapping, f"the metadata of {what}", "a mapping")
        object.__setattr__(self, "icons", checked_icons(self.icons, f"the icons of {what}"))
        require_json(what, allows_halves=True, metadata=self.metadata, icons=self.icons)
        tool = Tool(
            ToolSpecification(name=self.name),
            self.renderer,
            policy=self.policy,
            interactive=self.interactive,
            source=self.source,
            server=self.server,
        )
        object.__setattr__(self, "tool", tool)
        writer = getattr(tool.executor, "writer", None)
        runs_directly = tool.runs_directly and isinstance(getattr(writer, "inner", writer), MessagesWriter)
        try:
            ending = b"" if self.description is None else b',"description":' + to_json(self.description)
        except ValueError:  # lone surrogates
            runs_directly, ending = False, b""
        object.__setattr__(self, "runs_directly", runs_directly)
        object.__setattr__(self, "ending", ending)
        object.__setattr__(self, "takes_context", getattr(tool.executor, "takes_context", True))

    async def complete(
        self, argument: str, text: str, arguments: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        """Return values for an argument, given its text so far and the other arguments."""
        if self.completions is None:
            return NO_COMPLETION
        return await self.completions.complete(argument, text, arguments, context)


class MessagesWriter:
    """Converts what a function returns into the messages of its prompt.

    Text, content blocks and messages, or a list of these. Text and blocks are messages of the user.

    Args:
        name: Name of the prompt, for errors.
    """

    __slots__ = ("_name", "_text")

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = ResultWriter(name, str, "prompt").checked_text

    def write(self, value: Any) -> ToolExecutionResult:
        """Convert a return value.

        Raises:
            ResultError: The value is none of these.
        """
        items = value if isinstance(value, list | tuple) else [value]
        return ToolExecutionResult((), value=tuple(map(self._message, items)))

    def write_json(self, value: Any) -> bytes | ToolExecutionResult:
        """Convert a return value; texts as members of MCP's ``GetPromptResult``, without its braces.

        Raises:
            ResultError: As by `write`.
        """
        if type(value) is str:
            return _MESSAGES % (_MESSAGE % to_json(value if value.isascii() else self._text(value)))
        if type(value) is list and all(type(each) is str for each in value):
            return _MESSAGES % b",".join([_MESSAGE % to_json(self._text(each)) for each in value])
        return self.write(value)

    def _message(self, item: Any) -> PromptMessage:
        if isinstance(item, PromptMessage):
            return item
        if isinstance(item, str):
            return PromptMessage(Text(self._text(item)))
        if isinstance(item, Block):
            return PromptMessage(item)  # type: ignore[arg-type]  # the kinds of content are the kinds of block
        returned = f"a value of type {type(item).__qualname__!r}; return text, content, messages, or a list of these"
        raise ResultError(self._name, returned, "prompt")
