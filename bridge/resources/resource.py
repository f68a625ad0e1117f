"""Resources and resource templates: their description, and the executor that reads them.

The vocabulary is MCP's (`Resource`, `ResourceTemplate`). A resource is read like a tool is called: by a `ToolExecutor`,
with the values of the template's variables as arguments, so that time limits, cancellation and errors are the same. The
content of the result are `bridge.File` blocks.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic_core import to_json

from bridge.errors import DefinitionError, ResourceNotFoundError, ResultError
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.checks import require_count, require_name, require_type
from bridge.tools.completion import NO_COMPLETION, Completion
from bridge.tools.content import File, Media, ResourceLink, Text
from bridge.tools.decoration import Published
from bridge.tools.results import ResultWriter
from bridge.tools.specification import ToolSpecification, checked_icons, require_json
from bridge.tools.tool import Tool, ToolPolicy

if TYPE_CHECKING:
    from bridge.resources.uri_template import UriTemplate
    from bridge.tools.completion import Completing
    from bridge.tools.context import InvocationContext
    from bridge.tools.executors import FunctionExecutor
    from bridge.tools.tool import ToolExecutor

TEXT = "text/plain"
JSON = "application/json"
BINARY = "application/octet-stream"
_NO_METADATA: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described(Published):
    """The description that resources and templates share."""

    name: str
    """Name for programs, and for access and limits, which go by name."""
    title: str | None = None
    """Display name."""
    description: str | None = None
    """Text for models and users."""
    mime_type: str | None = None
    """IANA media type of the content, if it is always the same."""
    annotations: Mapping[str, Any] | None = None
    """Hints with MCP's keys: ``audience``, ``priority``, ``lastModified``."""
    icons: tuple[Mapping[str, Any], ...] = ()
    """Icons as MCP writes them: ``{"src": …, "mimeType": …, "sizes": […]}``."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NO_METADATA)
    """Arbitrary data; sent over MCP in ``_meta``."""
    reader: ToolExecutor
    """Reads it; its requests have the URI as their name."""
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    """Its time limit."""
    interactive: bool = True
    """True if reading may report progress, log or ask questions."""
    source: str = field(default="a resource made by hand", compare=False)
    """Origin, for messages."""
    server: str | None = field(default=None, compare=False)
    """Configured name of the server that it comes from; None if it is read in this process."""
    enabled: bool = True
    """False for one that boxes hide until `bridge.tools.box.Box.enable`."""
    runs_directly: bool = field(init=False, compare=False, repr=False)
    """True if a function reads it that a server may call directly; see `Tool.runs_directly`."""
    takes_context: bool = field(init=False, compare=False, repr=False)
    """True unless it is known to need no context; see `FunctionExecutor.takes_context`."""

    def _check(self, what: str) -> None:
        for name in ("title", "description", "mime_type"):
            require_type(getattr(self, name), str | None, f"the {name} of {what}", "text")
        require_name(self.name, f"the name of {what}")
        require_type(self.annotations, Mapping | None, f"the annotations of {what}", "a mapping")
        require_type(self.metadata, Mapping, f"the metadata of {what}", "a mapping")
        object.__setattr__(self, "icons", checked_icons(self.icons, f"the icons of {what}"))
        require_json(what, allows_halves=True, annotations=self.annotations, metadata=self.metadata, icons=self.icons)

    def _tool(self, uri: str) -> Tool:
        tool = Tool(
            ToolSpecification(name=self.name),
            _Reading(self.reader, uri),
            policy=self.policy,
            interactive=self.interactive,
            source=self.source,
            server=self.server,
        )
        writer = getattr(self.reader, "writer", None)
        runs_directly = tool.runs_directly and isinstance(getattr(writer, "inner", writer), ContentsWriter)
        object.__setattr__(self, "runs_directly", runs_directly)
        object.__setattr__(self, "takes_context", getattr(self.reader, "takes_context", True))
        return tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(_Described):
    """Data with a URI (MCP's Resource).

    Raises:
        DefinitionError: The URI has no scheme, or another value is invalid.
    """

    uri: str
    size: int | None = None
    """Length of the content in bytes, if it is known."""
    tool: Tool = field(init=False, compare=False, repr=False)
    """Reads the resource; its arguments are empty."""

    def __post_init__(self) -> None:
        require_name(self.uri, "the URI of a resource")
        what = f"the resource {self.uri!r}"
        if not urlsplit(self.uri).scheme:
            raise DefinitionError(f"{what} needs a URI with a scheme, such as 'notes://today'")
        require_count(self.size, f"the size of {what}", least=0, optional=True)
        self._check(what)
        object.__setattr__(self, "tool", self._tool(self.uri))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate(_Described):
    """Resources whose URIs are made of a template and values (MCP's ResourceTemplate).

    Raises:
        DefinitionError: The URI template cannot be used, or another value is invalid.
    """

    uri_template: UriTemplate
    completions: Completing | None = field(default=None, compare=False)
    _prototype: Tool = field(init=False, compare=False, repr=False)
    """The tool of no URI, of which those of URIs are copies."""

    def __post_init__(self) -> None:
        self._check(f"the resource template {str(self.uri_template)!r}")
        object.__setattr__(self, "_prototype", self._tool(str(self.uri_template)))

    def tool_of(self, uri: str) -> Tool:
        """Return the tool that reads one of its resources; its arguments are the values of the template's variables."""
        return self._prototype.run_by(_Reading(self.reader, uri))

    def resource_at(self, uri: str, **description: Any) -> Resource:
        """Return one of its resources, so that it can be listed.

        Args:
            uri: The resource's URI.
            description: Attributes of `Resource` that differ from the template's: ``name``, ``title``, ``mime_type``, …

        Raises:
            DefinitionError: The URI does not belong to the template, or an attribute is invalid.
        """
        if (values := self.uri_template.match(uri)) is None:
            raise DefinitionError(f"the URI {uri!r} does not belong to the template {str(self.uri_template)!r}")
        shared = {each.name: getattr(self, each.name) for each in fields(_Described) if each.init}
        return Resource(uri=uri, **{**shared, "reader": _WithValues(self.reader, values), **description})

    async def complete(
        self, variable: str, text: str, values: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        """Return values for a variable, given its text so far and the values of others."""
        if self.completions is None:
            return NO_COMPLETION
        return await self.completions.complete(variable, text, values, context)


class _Reading:
    """Runs a reader for one URI, which is the name of its requests, and which contents without their own URI get."""

    __slots__ = ("_beginning", "_function", "_write_json", "reader", "runs_directly", "start", "uri")

    def __init__(self, reader: ToolExecutor, uri: str) -> None:
        self.reader = reader
        self.uri = uri
        self.runs_directly: bool = getattr(reader, "runs_directly", False)
        """As of a `FunctionExecutor`, like the other methods; they are called only if it is one."""
        if self.runs_directly:
            self._function: FunctionExecutor = reader  # type: ignore[assignment]  # of a plain resource
            # A URI with a lone surrogate cannot be written: an error of the read.
            self._beginning = _beginning_of(uri) if uri.isascii() else b""
            self.start, self._write_json = self._function.start, self._function.write_json

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        named = ToolExecutionRequest(self.uri, request.arguments, request.id, request.arguments_text)
        return self._with_uri(await self.reader.execute(named, context))

    def write(self, value: Any) -> ToolExecutionResult:
        return self._with_uri(self._function.write(value))

    def write_json(self, value: Any) -> bytes | ToolExecutionResult:
        return self._members(self._write_json(value))

    def _members(self, written: bytes | ToolExecutionResult) -> bytes | ToolExecutionResult:
        """Return the members of MCP's ``ReadResourceResult``, if the writer has written JSON."""
        if isinstance(written, bytes):
            return b"%b%b}]" % (self._beginning or _beginning_of(self.uri), written)
        return self._with_uri(written)

    def _with_uri(self, result: ToolExecutionResult) -> ToolExecutionResult:
        if result.received is not None or all(type(block) is not File or block.uri for block in result.content):
            return result
        contents = tuple(
            replace(block, uri=self.uri) if type(block) is File and not block.uri else block for block in result.content
        )
        return replace(result, content=contents)


def _beginning_of(uri: str) -> bytes:
    return b'"contents":[{"uri":%b,' % to_json(uri)


@dataclass(frozen=True, slots=True)
class _WithValues:
    """Reads one resource of a template."""

    reader: ToolExecutor
    values: Mapping[str, Any]

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        return await self.reader.execute(replace(request, arguments=self.values), context)


class ContentsWriter:
    """Converts what a function returns into the contents of its resource.

    Text and bytes are the content. A `bridge.File` stands for itself, with its own URI unless that is empty. A list
    with bytes or files has several contents. None means that there is no such resource. Other values become JSON.

    Args:
        name: Name of the resource, for errors.
        mime_type: The declared media type; None to choose one by the value.
    """

    __slots__ = ("_blob_ending", "_json", "_mime_type", "_name", "_text", "_text_ending")

    def __init__(self, name: str, mime_type: str | None) -> None:
        self._name = name
        self._mime_type = mime_type
        writer = ResultWriter(name, Any, "resource")
        self._json, self._text = writer.write, writer.checked_text
        self._text_ending = b',"mimeType":' + to_json(mime_type or TEXT)
        self._blob_ending = b',"mimeType":' + to_json(mime_type or BINARY)

    def write(self, value: Any) -> ToolExecutionResult:
        """Convert a return value.

        Raises:
            ResourceNotFoundError: The value is None.
            ResultError: The value cannot be sent.
        """
        if value is None:
            raise ResourceNotFoundError(self._name)
        if isinstance(value, list | tuple) and value and any(isinstance(each, _CONTENTS) for each in value):
            return ToolExecutionResult(tuple(map(self._content, value)))
        return ToolExecutionResult((self._content(value),))

    def write_json(self, value: Any) -> bytes | ToolExecutionResult:
        """Convert a return value; text and bytes as members of MCP's ``ResourceContents``, without its URI and braces.

        Raises:
            ResourceNotFoundError: As by `write`.
            ResultError: As by `write`.
        """
        if type(value) is str:
            return b'"text":%b%b' % (to_json(value if value.isascii() else self._text(value)), self._text_ending)
        if type(value) is bytes:
            return b'"blob":"%b"%b' % (b64encode(value), self._blob_ending)
        return self.write(value)

    def _content(self, value: Any) -> File:
        if type(value) is str:
            return File("", self._text(value), self._mime_type or TEXT)
        if isinstance(value, File):
            return value if value.mime_type else replace(value, mime_type=self._mime_type)
        if isinstance(value, Media):
            return File("", value.data, value.mime_type)
        if isinstance(value, bytes | bytearray | memoryview):
            return File("", bytes(value), self._mime_type or BINARY)
        if isinstance(value, ResourceLink | ToolExecutionResult):
            kind = type(value).__name__
            raise ResultError(self._name, f"a {kind}; return text, bytes, a File, or data for JSON", "resource")
        text = self._json(value.text if isinstance(value, Text) else value).text
        return File("", text, self._mime_type or (TEXT if isinstance(value, str | Text) else JSON))


_CONTENTS = (File, Media, bytes, bytearray, memoryview)
