"""The official SDK's own server, in this process, with behaviour that a test specifies."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server import Server

from bridge.client import MemoryTransport, ServerConfig

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext


class ForeignServer:
    """A server that lists given tools, answers with the ``_meta`` that it got, and announces no changes.

    Attributes:
        names: Names of its tools.
        ttl_ms: Time for which a list may be cached, in milliseconds.
        lists: Number of requests for a list.
        resource_lists: Number of requests for a page of resources.
        told: ``_meta`` of the last read of a resource.
    """

    def __init__(self, *names: str, ttl_ms: int = 0) -> None:
        self.names = list(names)
        self.ttl_ms = ttl_ms
        self.lists = 0
        self.resource_lists = 0
        self.fails = False
        self.told: dict[str, Any] = {}

    def config(self, **settings: Any) -> ServerConfig:
        """Return its configuration."""
        server = Server(
            "foreign",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._resources,
            on_read_resource=self._read,
        )
        return replace(ServerConfig(name="foreign", transport=MemoryTransport(server)), **settings)

    async def _list(self, context: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        self.lists += 1
        if self.fails:
            raise RuntimeError("not now")
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in self.names]
        return types.ListToolsResult(tools=tools, ttl_ms=self.ttl_ms)

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        told = {key: value for key, value in (params.meta or {}).items() if "/" not in key}
        return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(told))])

    async def _resources(self, context: ServerRequestContext[Any], params: Any) -> types.ListResourcesResult:
        self.resource_lists += 1
        resource = types.Resource(uri="file:///a.txt", name="a", description="A file.", mime_type="text/plain", size=2)
        if params is not None and params.cursor:
            return types.ListResourcesResult(resources=[types.Resource(uri="pic:///b", name="b")])
        return types.ListResourcesResult(resources=[resource], next_cursor="2")

    async def _read(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        self.told = {key: value for key, value in (params.meta or {}).items() if "/" not in key}
        uri = str(params.uri)
        contents: Any = {
            "file:///a.txt": types.TextResourceContents(uri=uri, text="inside"),
            "pic:///b": types.BlobResourceContents(uri=uri, blob="AAE=", mime_type="image/png"),
            "snd:///c": types.BlobResourceContents(uri=uri, blob="AAE=", mime_type="audio/wav"),
            "bin:///d": types.BlobResourceContents(uri=uri, blob="AAE="),
        }[uri]
        return types.ReadResourceResult(contents=[contents])
