"""Servers of the official SDK, and of FastMCP, in this process, as sources of other servers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridge.client.config.servers import ServerConfig
from bridge.client.transports.memory import MemoryTransport
from bridge.errors import DefinitionError
from bridge.gateway.gateway import Gateway
from bridge.server.features import is_foreign_server
from bridge.text import short_repr
from bridge.tools.lifespan import Lifespan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.client.config.servers import ProtocolPin
    from bridge.server.features import Features


def from_mcp(server: Any, *, name: str | None = None, protocol: ProtocolPin = "legacy") -> Features:
    """Return the features of a server of the official SDK, or of FastMCP: ``app.mount(from_mcp(mcp), prefix="x")``.

    The server runs in this process, with its own lifespan, while a server of these features does. Its tools, resources
    and prompts are listed then, and follow its changes; its questions reach the client that calls.

    Args:
        server: An ``MCPServer`` or low-level ``Server`` of the SDK, or a ``FastMCP``.
        name: Name of the server in logs and metrics; by default its own.
        protocol: Protocol between the two. The default is the handshake era, in which functions of the SDK can ask
            questions, which clients of either era answer. Tasks need the modern era, of one such server at most.

    Raises:
        DefinitionError: The object is no such server.
    """
    if not is_foreign_server(server):
        raise DefinitionError(f"{short_repr(server)} is not a server of the SDK or of FastMCP; mount it as it is")
    config = ServerConfig(
        name=name or getattr(server, "name", None) or "server",
        transport=MemoryTransport(server),
        required=True,
        protocol=protocol,
    )
    gateway = Gateway([config])

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with gateway:
            yield

    features = replace(gateway.features, mounted_lifespans=(Lifespan(running),))
    return replace(features, tasks=None) if protocol == "legacy" else features  # that era has no tasks
