"""Connection states, reconnect policy, listeners.

States: how a connection is, and how it came to be so.

Healing: how soon a lost server is tried again, and how an idle one is watched.

Listeners: whoever is to be told of something, until they no longer want to be.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.errors import ServerError

Era: TypeAlias = Literal["handshake", "modern"]
"""Which half of MCP's history a server speaks: up to 2025-11-25, or from 2026-07-28 on."""

TransportKind: TypeAlias = Literal["stdio", "http", "sse", "memory"]
"""How a server is reached."""

MAX_BACK_OFF_SECONDS = 10.0
"""However often it failed, a lost server is tried again after this long."""

_logger = logging.getLogger("bridge.client")

News = ParamSpec("News")


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


async def wait_with_timeout(event: anyio.Event, seconds: float) -> None:
    """Wait for an event, for so long at most."""
    with anyio.move_on_after(seconds):
        await event.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Healing:
    """How a connection heals. `wait` and `jitter` are the only clock and chance in it."""

    first_delay_seconds: float = 0.2
    """How long to wait after the first failure; each further one doubles it."""
    max_delay_seconds: float = MAX_BACK_OFF_SECONDS
    """How long to wait at most."""
    health_check_seconds: float = 30.0
    """How long nothing may be heard before the server is asked whether it is there."""
    health_timeout_seconds: float = 10.0
    """How long it may take to answer that."""
    jitter: Callable[[], float] = random.random
    """A number from 0 to 1: how much of the second half of a delay is waited, so that clients do not come at once."""
    wait: Callable[[anyio.Event, float], Awaitable[None]] = wait_with_timeout
    """Waits for an event, for a number of seconds at most."""

    def delay_seconds(self, failures: int) -> float:
        """How long to wait after this many failures in a row; 0 failures: not at all."""
        if failures <= 0:
            return 0.0
        longest = min(self.first_delay_seconds * 2.0 ** min(failures - 1, 30), self.max_delay_seconds)
        return longest * (0.5 + 0.5 * self.jitter())


class Listeners(Generic[News]):
    """Functions that are called with each piece of news, in the order in which they came."""

    def __init__(self) -> None:
        self._listeners: list[Callable[News, None]] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Callable[News, None]) -> Callable[[], None]:
        """Have a listener told from now on; returns a function that ends that, and may be called again."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def tell(self, *news: News.args, **more: News.kwargs) -> None:
        """Tell all; what a listener raises is logged."""
        for listener in tuple(self._listeners):
            try:
                listener(*news, **more)
            except Exception:
                _logger.exception("a listener failed")
