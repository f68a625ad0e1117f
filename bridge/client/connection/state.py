"""States: how a connection is, and how it came to be so."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.errors import ServerError

Era: TypeAlias = Literal["handshake", "modern"]
"""Which half of MCP's history a server speaks: up to 2025-11-25, or from 2026-07-28 on."""

TransportKind: TypeAlias = Literal["stdio", "http", "sse", "memory"]
"""How a server is reached."""


class ConnectionState(Enum):
    """How a connection is."""

    CLOSED = "closed"
    """Not opened yet, or closed by this side."""
    CONNECTING = "connecting"
    """Opened, and not ready for the first time yet."""
    READY = "ready"
    """Greeted; calls go straight out."""
    DEGRADED = "degraded"
    """Lost after it was ready, and being brought back; the tools are still known."""
    NEEDS_AUTH = "needs_auth"
    """The server asks for credentials; the next call tries again."""
    FAILED = "failed"
    """Never ready so far, or lost for a reason that does not go away by itself. The next call tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server says of itself. Untrusted."""

    name: str | None = None
    """None where it does not say, which the modern era allows."""
    version: str | None = None
    title: str | None = None
    """A name for people."""
    instructions: str | None = None
    """What a model should know about the server as a whole."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """MCP's ServerCapabilities."""

    @property
    def announces_tools(self) -> bool:
        """Whether it says that it tells of changes to its tools."""
        tools = self.capabilities.get("tools")
        return isinstance(tools, dict) and tools.get("listChanged") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatus:
    """A connection at one moment."""

    name: str
    """The server's name."""
    state: ConnectionState
    transport: TransportKind | None
    """How the server is reached; None where that is still to be found out."""
    address: str
    """The command line or the URL, redacted."""
    era: Era | None = None
    """None before the first greeting."""
    protocol_version: str | None = None
    """MCP's version, such as ``2025-11-25``; None before the first greeting."""
    server_info: ServerInfo | None = None
    """What the server said of itself when it was last greeted."""
    last_error: ServerError | None = None
    """What last ended, or prevented, the connection; None once it is ready again."""
    connects: int = 0
    """How many times the server has been greeted."""


class ToolListing(NamedTuple):
    """A server's tools, all pages."""

    tools: list[dict[str, Any]]
    """Each as MCP's ``Tool``, exactly as it came; see `bridge.wire.tools.tool_from_wire`."""
    ttl_seconds: float | None
    """How long the server says they stay as they are; None where it does not say."""
    malformed: tuple[str, ...] = ()
    """What it lists that is no tool, each a sentence with the reason; left out of the tools."""
    refused: tuple[str, ...] = ()
    """What its pins refuse, likewise."""
