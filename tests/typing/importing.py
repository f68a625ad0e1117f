"""A program that calls tools of MCP servers and serves them again; `test_typing` checks it with mypy and pyright."""

from __future__ import annotations

import bridge
from bridge import Gateway, HttpTransport, McpToolProvider, OAuthLogin, ServerConfig, ServerError, StdioTransport
from bridge.client import CallOptions, ConnectionState, ServerStatus


def states(statuses: tuple[ServerStatus, ...]) -> list[ConnectionState]:
    """States of servers."""
    return [each.connection.state for each in statuses]


def blocking() -> str:
    """Call a tool from a synchronous program."""
    with bridge.connect("mcp.json") as servers:
        result = servers.call("add", a=1, b=2)
        return result.text if not result.is_error else ""


async def asynchronous() -> str:
    """Call a tool from an asynchronous program."""
    files = ServerConfig(name="files", transport=StdioTransport("mcp-toolbridge", args=("serve", "files.py")))
    notes = ServerConfig(name="notes", transport=HttpTransport("https://example.org/mcp", auth=OAuthLogin()))
    try:
        async with McpToolProvider([files, notes]) as provider:
            return (await provider.tools.call("files_read", path="a")).text
    except ServerError as error:
        return str(error)


async def serving_again() -> None:
    """Serve the tools of servers as one server."""
    async with Gateway(bridge.load_config("mcp.json").servers.values()) as gateway:
        bridge.http_app(gateway.features)


OPTIONS = CallOptions()
