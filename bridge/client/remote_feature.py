"""Resources, resource templates and prompts of a remote server, as those of this process.

What reads or renders them keeps their names and URIs on the server, so that renamed ones work.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from bridge.client.connection.running_call import NO_OPTIONS, CallOptions
from bridge.errors import DefinitionError, ResourceNotFoundError, ServerError, ServerRefusedError, ToolError, WireError
from bridge.prompts.prompt import Prompt
from bridge.resources.resource import Resource, ResourceTemplate
from bridge.resources.uri_template import UriTemplate
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.completion import NO_COMPLETION, Completion
from bridge.types import optional_field, require_text
from bridge.wire.prompts import completion_from_wire, messages_from_wire, prompt_from_wire
from bridge.wire.resources import contents_from_wire, description_from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.uris import UriNames
    from bridge.prompts.prompt import PromptMessage
    from bridge.tools.calls import ToolExecutionRequest
    from bridge.tools.content import File
    from bridge.tools.context import InvocationContext
    from bridge.types import Feature, Json

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_RESOURCE_NOT_FOUND = -32002


class RemoteServer(Protocol):
    """Server of a resource or prompt."""

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        ...

    @property
    def completes(self) -> bool:
        """True if the server has completions."""
        ...

    async def require_usable(self, feature: Feature, key: str) -> None:
        """Check that a resource or prompt may be used; see `bridge.client.upstream.Upstream.require_usable`."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        context: InvocationContext,
        options: CallOptions = NO_OPTIONS,
    ) -> Json:
        """Send a request; see `bridge.client.connection.connection.Connection.request`."""
        ...


class ResourceSelected(Protocol):
    """The resources of one list that may be read; see `bridge.client.selection.ResourceSelection`."""

    def require(self, uri: str) -> None:
        """Check that a URI on the server may be read."""


class RemoteTarget(Protocol):
    """A tool, a reader, a prompt or completions of a server."""

    @property
    def options(self) -> CallOptions:
        """Options of its requests."""
        ...

    @property
    def label(self) -> str:
        """The target and its server, for messages."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions = ...) -> Json:
        """Send the request, and return the result unparsed."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteReader:
    """Reads the resources of a server."""

    server: RemoteServer
    uris: UriNames = field(compare=False)
    """The local URIs of resources."""
    options: CallOptions = NO_OPTIONS
    """Options of its requests."""
    selection: ResourceSelected | None = field(default=None, compare=False)
    """The resources of the list of its caller that may be read; None for those of the server's list for all."""

    @property
    def label(self) -> str:
        """The server, for messages."""
        return f"the server {self.server.name!r}"

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Read the resource whose local URI is the name of the request.

        Raises:
            ResourceNotFoundError: The server has no such resource.
            ToolError: The server is unavailable, refused, or returned malformed contents.
        """
        try:
            return ToolExecutionResult(await self.read(request.name, context))
        except (ServerError, WireError) as error:
            raise ToolError(_brief(error, self.server)) from error

    async def read(self, uri: str, context: InvocationContext) -> tuple[File, ...]:
        """Read a resource, given by its local URI; the contents have local URIs.

        Raises:
            ResourceNotFoundError: The server has no such resource.
            ServerError: The request failed.
            WireError: The contents are malformed.
        """
        wire = await self.call({"uri": self.uris.of_server(self.server.name, uri)}, context)
        return tuple(self.uris.localized(self.server.name, file) for file in contents_from_wire(wire))

    async def call(
        self, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions = NO_OPTIONS
    ) -> Json:
        """Send a ``resources/read`` with these parameters, and return the result unparsed.

        Raises:
            ResourceNotFoundError: The server has no such resource, or its configuration leaves it out.
            PinMismatchError: The resource differs from its pin.
            ServerError: The request failed.
        """
        try:
            if self.selection is not None:
                self.selection.require(arguments["uri"])
            else:
                await self.server.require_usable("resources", arguments["uri"])
            return await self.server.request("resources/read", arguments, context=context, options=options)
        except (ResourceNotFoundError, ServerRefusedError) as error:
            if isinstance(error, ServerRefusedError) and not _is_not_found(error):
                raise
            raise ResourceNotFoundError(self.uris.local(self.server.name, arguments["uri"])) from error


@dataclass(frozen=True, slots=True)
class RemoteRenderer:
    """Renders a prompt of a server."""

    server: RemoteServer
    prompt: str
    """The prompt's name on the server."""
    uris: UriNames = field(compare=False)
    """The local URIs of resources in its messages."""
    options: CallOptions = NO_OPTIONS
    """Options of its requests."""

    @property
    def label(self) -> str:
        """The prompt and its server, for messages."""
        return f"the prompt {self.prompt!r} of the server {self.server.name!r}"

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Render the prompt.

        Raises:
            ToolError: The server is unavailable, refused, or returned malformed messages.
        """
        try:
            return ToolExecutionResult((), value=await self.render(request.arguments_by_name(), context))
        except (ServerError, WireError) as error:
            raise ToolError(_brief(error, self.server)) from error

    async def render(self, arguments: Mapping[str, Any], context: InvocationContext) -> tuple[PromptMessage, ...]:
        """Render the prompt.

        Raises:
            ServerError: The request failed.
            WireError: The messages are malformed.
        """
        messages = messages_from_wire(await self.call(arguments, context))
        return tuple(
            replace(message, content=self.uris.localized(self.server.name, message.content)) for message in messages
        )

    async def call(
        self, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions = NO_OPTIONS
    ) -> Json:
        """Send a ``prompts/get`` with these arguments, and return the result unparsed.

        Raises:
            PinMismatchError: The prompt differs from its pin.
            ServerError: The request failed.
        """
        await self.server.require_usable("prompts", self.prompt)
        params: Json = {"name": self.prompt}
        if arguments:
            params["arguments"] = dict(arguments)
        return await self.server.request("prompts/get", params, context=context, options=options)


@dataclass(frozen=True, slots=True)
class RemoteCompletions:
    """Completes the arguments of a prompt or template of a server."""

    server: RemoteServer
    ref: Mapping[str, str]
    """The prompt or template, as MCP's reference."""

    async def complete(
        self, name: str, text: str, arguments: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        """Return the values for an argument; see `bridge.tools.completion.Completions.complete`.

        Raises:
            ToolError: The server is unavailable, refused, or returned a malformed completion.
        """
        if not self.server.completes:
            return NO_COMPLETION
        params: Json = {"ref": dict(self.ref), "argument": {"name": name, "value": text}}
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        try:
            return completion_from_wire(await self.server.request("completion/complete", params, context=context))
        except ServerRefusedError as error:
            if error.code == _METHOD_NOT_FOUND:
                return NO_COMPLETION
            raise ToolError(error.brief) from error
        except (ServerError, WireError) as error:
            raise ToolError(_brief(error, self.server)) from error


class _UnmatchedTemplate(UriTemplate):
    """A template with expressions that are not matched here; the server reads the URIs that it stands for."""

    def __init__(self, text: str) -> None:  # no super().__init__(), which refuses the text
        self._text = text
        self.variables = ()
        self.optional = frozenset()
        self.literal_chars = 0

    def match(self, uri: str) -> None:
        """Return None: its URIs are found by their server."""


def template_of(text: str) -> UriTemplate:
    """Parse a template of a server, which may have expressions that templates of this process may not have."""
    try:
        return UriTemplate(text)
    except DefinitionError:
        return _UnmatchedTemplate(text)


def remote_resource(
    wire: Mapping[str, Any], server: RemoteServer, uris: UriNames, selection: ResourceSelected | None = None
) -> Resource | ResourceTemplate:
    """Create a resource, or a template, from a server's listing, with its URI there.

    Args:
        wire: MCP's ``Resource`` or ``ResourceTemplate``.
        server: The server that reads it.
        uris: The local URIs of resources.
        selection: As for `RemoteReader`.

    Raises:
        WireError: A member is missing or has the wrong type.
        DefinitionError: A value is invalid.
    """
    shared: dict[str, Any] = description_from_wire(wire)
    shared |= {
        "reader": RemoteReader(server, uris, selection=selection),
        "source": f"server {server.name!r}",
        "server": server.name,
    }
    if "uriTemplate" not in wire:
        return Resource(uri=require_text(wire.get("uri")), size=optional_field(wire, "size", int), **shared)
    text = require_text(wire["uriTemplate"])
    completions = RemoteCompletions(server, {"type": "ref/resource", "uri": text})
    return ResourceTemplate(uri_template=template_of(text), completions=completions, **shared)


def remote_prompt(wire: Mapping[str, Any], server: RemoteServer, uris: UriNames) -> Prompt:
    """Create a prompt from a server's listing, with its name there.

    Args:
        wire: MCP's ``Prompt``.
        server: The server that renders it.
        uris: The local URIs of resources in its messages.

    Raises:
        WireError: A member is missing or has the wrong type.
        DefinitionError: A value is invalid.
    """
    attributes = prompt_from_wire(wire)
    return Prompt(
        renderer=RemoteRenderer(server, attributes["name"], uris),
        completions=RemoteCompletions(server, {"type": "ref/prompt", "name": attributes["name"]}),
        source=f"server {server.name!r}",
        server=server.name,
        **attributes,
    )


def _is_not_found(error: ServerRefusedError) -> bool:
    """True for the error of either era; before 2026-07-28, -32602 has other meanings without the URI."""
    return error.code == _RESOURCE_NOT_FOUND or (
        error.code == _INVALID_PARAMS and isinstance(error.data, dict) and "uri" in error.data
    )


def _brief(error: ServerError | WireError, server: RemoteServer) -> str:
    return error.brief if isinstance(error, ServerError) else f"the server {server.name!r}: {error}"
