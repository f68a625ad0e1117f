"""Resources of remote servers, for programs and, through two tools, for models.

MCP, "Resources"; LangChain4j's ``McpToolProvider.Builder.resourcesAsToolsPresenter``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import anyio

from bridge.errors import DefinitionError, ServerError, ServerRefusedError, ToolError, WireError
from bridge.tools.content import Audio, File, Image, Text, block_from_json
from bridge.tools.context import InvocationContext
from bridge.tools.function import tool, tools_from
from bridge.tools.schema.annotations import P
from bridge.tools.specification import ToolAnnotations
from bridge.tools.tool import ToolExecutionResult
from bridge.types import optional_field, require_object, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.client.upstream import Upstream
    from bridge.tools.content import Content
    from bridge.tools.tool import Tool
    from bridge.types import Json

_METHOD_NOT_FOUND = -32601
_MAX_PAGES = 10_000
MAX_RESOURCES = 100_000
"""Maximum resources, or resource templates, of one server over all pages."""
_READ_ONLY = ToolAnnotations(read_only=True)


class _UnknownServerError(DefinitionError, ToolError):
    """There is no such server: an error of a program, or of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteResource:
    """A resource, or a resource template, of a server."""

    server: str
    """The server's name."""
    uri: str
    """The URI; for a template, its URI template (RFC 6570)."""
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    """Media type, if known."""
    size_bytes: int | None = None
    is_template: bool = False
    """True for a template; fill it in to read a resource."""


class Resources:
    """The resources of a provider's servers, which `upstreams` returns by name."""

    def __init__(self, upstreams: Callable[[], Mapping[str, Upstream]]) -> None:
        self._upstreams = upstreams

    async def list(self, server: str, *, context: InvocationContext | None = None) -> tuple[RemoteResource, ...]:
        """List a server's resources and then its resource templates, all pages.

        Raises:
            DefinitionError: There is no such server.
            ServerError: The request failed.
            WireError: The response is malformed.
        """
        upstream = self._upstream(server)
        context = context or InvocationContext()
        plain = await _pages(upstream, "resources/list", "resources", context)
        templates = await _pages(upstream, "resources/templates/list", "resourceTemplates", context)
        return tuple(_resource(server, json) for json in (*plain, *templates))

    async def read(self, server: str, uri: str, *, context: InvocationContext | None = None) -> tuple[Content, ...]:
        """Read a resource as text, image or audio; other media types are returned as a file.

        Raises:
            DefinitionError: There is no such server.
            ServerError: The request failed, or there is no such resource.
            WireError: The response is malformed.
        """
        answer = await self._upstream(server).request("resources/read", {"uri": uri}, context or InvocationContext())
        contents = optional_field(answer, "contents", list)
        if contents is None:
            raise WireError(f"the server {server!r} returned no contents for {uri!r}")
        return tuple(_content(json) for json in contents)

    def tools(self) -> tuple[Tool, ...]:
        """Create the two tools by which a model lists and reads resources.

        They are trusted (their read-only annotation may be relied on) if every server is.
        """
        trusted = all(upstream.config.trusted for upstream in self._upstreams().values())
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
        self,
        context: InvocationContext,
        server: Annotated[str | None, P("The name of one server; by default all are asked.")] = None,
    ) -> str:
        servers = [*self._upstreams()] if server is None else [server]
        found: dict[str, tuple[RemoteResource, ...]] = {}
        unavailable: dict[str, str] = {}

        async def list_one(server: str) -> None:
            try:
                found[server] = await self.list(server, context=context)
            except ServerError as error:
                unavailable[server] = error.brief
            except WireError as error:
                unavailable[server] = f"the server {server!r}: {error}"

        if server is not None:
            self._upstream(server)
        async with anyio.create_task_group() as tasks:
            for each in servers:
                tasks.start_soon(list_one, each)
        resources = [_for_model(each) for server in servers for each in found.get(server, ())]
        listing = {"resources": resources} | ({"unavailable": unavailable} if unavailable else {})
        return json.dumps(listing, ensure_ascii=False, separators=(",", ":"))

    @tool("Read something that list_resources has listed.", name="read_resource", annotations=_READ_ONLY)
    async def _read_for_model(
        self,
        context: InvocationContext,
        server: Annotated[str, P("The name of a server.")],
        uri: Annotated[str, P("Its URI, with any template filled in.")],
    ) -> ToolExecutionResult:
        try:
            return ToolExecutionResult(await self.read(server, uri, context=context))
        except ServerError as error:
            raise ToolError(error.brief) from error
        except WireError as error:
            raise ToolError(f"the server {server!r}: {error}") from error

    def _upstream(self, server: str) -> Upstream:
        upstreams = self._upstreams()
        if server not in upstreams:
            raise _UnknownServerError(f"there is no server {server!r}; servers: {', '.join(upstreams) or 'none'}")
        return upstreams[server]


async def _pages(upstream: Upstream, method: str, key: str, context: InvocationContext) -> list[Json]:
    found: list[Json] = []
    params: Json = {}
    for _ in range(_MAX_PAGES):
        try:
            page = await upstream.request(method, params, context)
        except ServerRefusedError as error:
            if error.code == _METHOD_NOT_FOUND:
                return found
            raise
        found += optional_field(page, key, list) or ()
        if len(found) > MAX_RESOURCES:
            raise WireError(f"the server {upstream.name!r} lists more than {MAX_RESOURCES:,} {key}")
        cursor = optional_field(page, "nextCursor", str)
        if cursor is None or cursor == params.get("cursor"):
            return found
        params = {"cursor": cursor}
    return found


def _resource(server: str, json: object) -> RemoteResource:
    resource = require_object(json, "a resource")
    template = resource.get("uriTemplate")
    return RemoteResource(
        server=server,
        uri=require_text(resource.get("uri") if template is None else template),
        name=require_text(resource.get("name")),
        title=optional_field(resource, "title", str),
        description=optional_field(resource, "description", str),
        mime_type=optional_field(resource, "mimeType", str),
        size_bytes=optional_field(resource, "size", int),
        is_template=template is not None,
    )


def _for_model(resource: RemoteResource) -> Json:
    fields = without_none(**asdict(resource))
    return fields if resource.is_template else {key: value for key, value in fields.items() if key != "is_template"}


def _content(json: object) -> Content:
    block = block_from_json({"type": "resource", "resource": json})
    assert isinstance(block, File)
    if isinstance(block.content, str):
        return Text(block.content)
    kind = (block.mime_type or "").partition("/")[0]
    if kind == "image":
        return Image(block.content, block.mime_type or "")
    return Audio(block.content, block.mime_type or "") if kind == "audio" else block
