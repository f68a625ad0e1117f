"""Resources of remote servers, for programs and, through two tools, for models.

MCP, "Resources"; LangChain4j's ``McpToolProvider.Builder.resourcesAsToolsPresenter``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Protocol

from bridge.client.connection.status import Listeners
from bridge.client.remote_feature import RemoteReader, template_of
from bridge.client.uris import RemoteUri, UriNames, is_within
from bridge.errors import DefinitionError, ResourceNotFoundError, ServerError, ToolError, WireError
from bridge.resources.box import Readable, ResourceBox
from bridge.resources.namespaces import localized_metadata
from bridge.resources.resource import Resource, ResourceTemplate
from bridge.tools.checks import require_callable, require_name
from bridge.tools.content import File
from bridge.tools.context import InvocationContext
from bridge.tools.function import tool, tools_from
from bridge.tools.middleware import CompleteRequest, ReadResourceRequest, around, layers_of
from bridge.tools.schema.annotations import P
from bridge.tools.specification import ToolAnnotations
from bridge.tools.tool import ToolExecutionResult
from bridge.wire.resources import resource_to_wire, template_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.client.tool_catalog import CatalogRules
    from bridge.client.upstream import Upstream
    from bridge.tools.completion import Completion
    from bridge.tools.middleware import Middleware
    from bridge.tools.tool import Tool
    from bridge.types import Feature, Json

_READ_ONLY = ToolAnnotations(read_only=True)
_NOT_FOR_MODELS = ("icons", "_meta", "annotations")


class RemoteServers(Protocol):
    """The servers of a provider."""

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The servers by name."""
        ...

    async def follow(self, feature: Feature, *servers: str) -> None:
        """List a feature from now on, and wait until it is listed.

        Raises:
            DefinitionError: There is no such server, or they have not listed the feature and are not open.
        """
        ...

    def require_open(self) -> None:
        """Check that the servers are open.

        Raises:
            DefinitionError: They are not.
        """
        ...


class _UnknownServerError(DefinitionError, ToolError):
    """There is no such server: an error of a program, or of a model."""


class RemoteResources(ResourceBox):
    """Resources and templates of a provider's servers, by local URI.

    With several servers a URI begins with its server's name: ``docs+file:///a.txt``. The box is filled when its
    resources are first asked for, and follows its servers from then on.
    """

    def __init__(self, servers: RemoteServers, middleware: tuple[Middleware, ...] = ()) -> None:
        super().__init__()
        self.uris = UriNames()
        """The local URIs."""
        self._servers = servers
        self._around_reads = layers_of(middleware, "read_resource")
        self._around_completions = layers_of(middleware, "complete")
        self._watchers_of: defaultdict[RemoteUri, Listeners[[str]]] = defaultdict(Listeners)

    async def list(self, server: str | None = None) -> tuple[Resource | ResourceTemplate, ...]:
        """Return the resources and templates, of one server or of all that can be reached.

        Raises:
            DefinitionError: There is no such server.
            ServerError: The server cannot be reached, or its resources cannot be listed.
        """
        if server is None:
            await self._servers.follow("resources")
            return tuple(self)
        await self._servers.follow("resources", self._upstream(server).name)
        listing = self._upstream(server).lists["resources"]
        if listing.problem is not None and not listing.is_listed:
            raise listing.problem
        return tuple(item for item in self if item.server == server)

    async def read(self, uri: str, *, context: InvocationContext | None = None) -> tuple[File, ...]:
        """Read a resource: one of the list, of a template, or that a tool or prompt has linked to.

        Args:
            uri: The local URI.
            context: Invocation context.

        Raises:
            ResourceNotFoundError: There is no such resource.
            PinMismatchError: The resource differs from its pin.
            ServerError: The request failed.
            WireError: The response is malformed.
        """
        request = ReadResourceRequest(uri, revision=(self.version, self.updates))
        result = await around(self._around_reads, self._read)(request, context or InvocationContext())
        return tuple(block for block in result.content if isinstance(block, File))

    async def _read(self, request: ReadResourceRequest, context: InvocationContext) -> ToolExecutionResult:
        server = await self._server_of(request.uri)
        return ToolExecutionResult(await RemoteReader(server, self.uris).read(request.uri, context))

    async def complete(
        self,
        template: str,
        variable: str,
        text: str,
        values: Mapping[str, str] | None = None,
        *,
        context: InvocationContext | None = None,
    ) -> Completion:
        """Return values for a variable of a template.

        Args:
            template: The text of the template, as listed.
            variable: The variable.
            text: Its text so far.
            values: The other variables that are filled in.
            context: Invocation context.

        Raises:
            DefinitionError: There is no such template.
            ToolError: The request failed.
        """
        request = CompleteRequest("resources", template, variable, text, values or {})
        complete = around(self._around_completions, self._complete)
        completion: Completion = await complete(request, context or InvocationContext())
        return completion

    async def _complete(self, request: CompleteRequest, context: InvocationContext) -> Completion:
        if request.name not in self:
            await self._servers.follow("resources")
        found = self._items.get(request.name)
        if not isinstance(found, ResourceTemplate):
            raise DefinitionError(f"there is no resource template {request.name!r}")
        return await found.complete(request.argument, request.value, request.arguments, context)

    async def watch(self, uri: str, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a listener after each change of a resource's content, also after its server has reconnected or changed.

        All who watch a resource share one subscription.

        Args:
            uri: The local URI.
            listener: Called in the event loop with the URI, which may be that of a part of the resource. Exceptions are
                logged.

        Returns:
            A function that ends it; idempotent.

        Raises:
            DefinitionError: The URI is no text, or the listener no function of it.
            ResourceNotFoundError: There is no such resource.
            PinMismatchError: The resource differs from its pin.
            ServerError: The server is unavailable, or does not announce changes of this resource.
        """
        require_name(uri, "the URI of a resource")
        require_callable(listener, 1, "the listener of a resource", "the URI")
        server = await self._server_of(uri)
        remote = RemoteUri(server.name, self.uris.of_server(server.name, uri))
        await server.require_usable("resources", remote.uri)
        stop = partial(self._unwatch, remote, self._watchers_of[remote].add(listener))
        try:
            await server.connection.watch(remote.uri)
        except BaseException:
            stop()
            raise
        return stop

    def is_per_caller(self, server: str) -> bool:
        """Return True if each caller reaches a server over a connection of its own."""
        upstream = self._servers.upstreams.get(server)
        return upstream is not None and upstream.callers is not None

    async def watch_for(
        self, uri: str, context: InvocationContext, listener: Callable[[str], None]
    ) -> Callable[[], None] | None:
        """Call a listener after each change of a resource's content, over the connection of a caller.

        Args:
            uri: The local URI.
            context: Context of the caller's request.
            listener: Called with the local URI, which may be that of a part of the resource.

        Returns:
            A function that ends it; idempotent. None if callers without a credential of their own share a connection.

        Raises:
            ResourceNotFoundError: There is no such resource.
            PinMismatchError: The resource differs from its pin.
            ServerError: The caller has no credential, or the server is unavailable, or does not announce changes of
                this resource.
        """
        server = await self._server_of(uri)
        remote = self.uris.of_server(server.name, uri)
        await server.require_usable("resources", remote)
        return await server.watch_for(context, remote, lambda each: listener(self.uris.local(server.name, each)))

    def find(self, uri: str) -> Readable | None:
        """Return what reads a URI, also one that is not listed but is a server's; None if there is none."""
        if (found := super().find(uri)) is not None:
            return found
        remote = self.uris.remote(uri)
        if remote is None or (server := self._servers.upstreams.get(remote.server)) is None:
            return None
        try:
            resource = Resource(
                uri=uri,
                name=server.name,  # a name from the URI would be one of unlimited many, in metrics and limits
                reader=RemoteReader(server, self.uris),
                source=f"server {server.name!r}",
                server=server.name,
            )
        except DefinitionError:
            return None
        return Readable(resource, resource.tool, {})

    def rebuild(self, rules: CatalogRules) -> Mapping[str, tuple[str, ...]]:
        """Take the resources of all servers, with local URIs.

        Returns:
            For each server, the resources that are left out because of their URIs, each as a sentence.
        """
        upstreams = self._servers.upstreams
        listed = {name: [self.key_of(item) for item in upstream.resources] for name, upstream in upstreams.items()}
        left_out = self.uris.assign(rules.uri_modes([server.config for server in upstreams.values()]), listed)
        self.replace(
            self.named(item, name)
            for name, upstream in upstreams.items()
            for item in upstream.resources
            if RemoteUri(name, self.key_of(item)) not in left_out
        )
        reasons: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for name, uri in sorted(left_out):
            what = "the beginning of the resource template" if "{" in uri else "the URI of the resource"
            reasons[name] += (f"{what} {uri!r} is another server's too, and prefix is 'never'",)
        return reasons

    def notify(self, server: str, uri: str) -> None:
        """Notify those who watch a resource, given by its URI on its server, or a resource that it is part of."""
        local = self.uris.local(server, uri)
        for remote, listeners in tuple(self._watchers_of.items()):
            if remote.server == server and is_within(remote.uri, uri):
                listeners.notify(local)
        self.updated(local)

    def watched(self, server: str) -> tuple[str, ...]:
        """Return the URIs on a server of the resources that are watched."""
        return tuple(remote.uri for remote in self._watchers_of if remote.server == server)

    def localized(self, tool: Tool) -> Tool:
        """Return a tool with the local URI of its app (extension ``io.modelcontextprotocol/ui``)."""
        if tool.server is None or self.uris.are_unchanged:
            return tool
        metadata = localized_metadata(tool.metadata, partial(self.uris.local, tool.server))
        if metadata is tool.metadata:
            return tool
        return replace(tool, specification=replace(tool.specification, metadata=metadata))

    def tools(self) -> tuple[Tool, ...]:
        """Create the two tools by which a model lists and reads resources.

        They are trusted (their read-only annotation may be relied on) if every server is.
        """
        trusted = all(upstream.config.trusted for upstream in self._servers.upstreams.values())
        return tuple(replace(tool, source="the resources of servers", trusted=trusted) for tool in self._tools)

    @cached_property
    def _tools(self) -> tuple[Tool, ...]:
        return tuple(tools_from(self))

    @tool(
        "List what the connected servers have to read: documents, files, data.",
        name="list_resources",
        annotations=_READ_ONLY,
    )
    async def _list_for_model(
        self, server: Annotated[str | None, P("The name of one server; by default all are asked.")] = None
    ) -> str:
        servers = [*self._servers.upstreams] if server is None else [self._upstream(server).name]
        await self._servers.follow("resources", *servers)
        lists = {name: self._servers.upstreams[name].lists["resources"] for name in servers}
        unavailable = {name: each.problem.brief for name, each in lists.items() if each.problem is not None}
        resources = [_for_model(item) for item in self if item.server in lists]
        listing = {"resources": resources} | ({"unavailable": unavailable} if unavailable else {})
        return json.dumps(listing, ensure_ascii=False, separators=(",", ":"))

    @tool("Read something that list_resources has listed.", name="read_resource", annotations=_READ_ONLY)
    async def _read_for_model(
        self, context: InvocationContext, uri: Annotated[str, P("Its URI, with any template filled in.")]
    ) -> ToolExecutionResult:
        try:
            return ToolExecutionResult(tuple(file.inline() for file in await self.read(uri, context=context)))
        except ServerError as error:
            raise ToolError(error.brief) from error
        except WireError as error:
            raise ToolError(f"the resource {uri!r}: {error}") from error

    async def _server_of(self, uri: str) -> Upstream:
        """Return the server that reads a URI; lists the resources only if the URI does not tell.

        Raises:
            ResourceNotFoundError: There is none.
        """
        remote = self.uris.remote(uri)
        if remote is None:
            await self._servers.follow("resources")
            found = super().find(uri)
            name = None if found is None else found.resource.server
        else:
            name = remote.server
        server = self._servers.upstreams.get(name or "")
        if server is None:
            raise ResourceNotFoundError(uri)
        return server

    def named(self, item: Resource | ResourceTemplate, server: str) -> Resource | ResourceTemplate:
        """Return a resource or template of a server with its local URI."""
        key = self.key_of(item)
        if (local := self.uris.local(server, key)) == key:
            return item
        return (
            replace(item, uri=local) if isinstance(item, Resource) else replace(item, uri_template=template_of(local))
        )

    def _unwatch(self, remote: RemoteUri, end: Callable[[], None]) -> None:
        end()
        if remote in self._watchers_of and not self._watchers_of[remote]:
            del self._watchers_of[remote]
            if (server := self._servers.upstreams.get(remote.server)) is not None:
                server.connection.unwatch(remote.uri)

    def _upstream(self, server: str) -> Upstream:
        upstreams = self._servers.upstreams
        if server not in upstreams:
            raise _UnknownServerError(f"there is no server {server!r}; servers: {', '.join(upstreams) or 'none'}")
        return upstreams[server]


def _for_model(item: Resource | ResourceTemplate) -> Json:
    wire = resource_to_wire(item) if isinstance(item, Resource) else template_to_wire(item)
    return {"server": item.server} | {key: value for key, value in wire.items() if key not in _NOT_FOR_MODELS}
