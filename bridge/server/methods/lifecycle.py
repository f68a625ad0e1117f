"""``initialize``, ``ping`` and ``server/discover``.

Clauses: MCP 2025-11-25, "Lifecycle" and "Ping"; 2026-07-28, "Discovery".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import to_json

from bridge.protocol.session import Session
from bridge.server.methods.method import HANDSHAKE, MODERN, Method

if TYPE_CHECKING:
    from bridge.server.core import ServerCore
    from bridge.server.exchange import ServedExchange
    from bridge.types import Json


class Initialize(Method):
    """The handshake."""

    name = "initialize"
    waits_for_start = False
    eras = HANDSHAKE

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._written: dict[str, tuple[Json, bytes]] = {}
        """The last result of each version for callers who see everything."""

    def plan(self, exchange: ServedExchange) -> bytes:
        """Return the server's name, version and capabilities, in the version that is negotiated."""
        session, core = exchange.session, self._core
        negotiated = session or Session()
        negotiated.initialize(exchange.params)
        exchange.version = version = negotiated.version
        access = exchange.access
        result = {
            "protocolVersion": version,
            "capabilities": core.capabilities_for(access, modern=False, has_session=session is not None),
            "serverInfo": core.implementation,
        }
        if (instructions := core.instructions_for(access)) is not None:
            result["instructions"] = instructions
        last, written = self._written.get(version, (None, b""))
        if result != last:
            written = to_json(result)
            if access.sees_all:
                self._written[version] = result, written
        return written


class Ping(Method):
    """Check that the connection is alive, in the handshake era."""

    name = "ping"
    waits_for_start = False
    eras = HANDSHAKE

    def plan(self, exchange: ServedExchange) -> bytes:  # noqa: ARG002 - the base's
        """Return an empty result."""
        return b"{}"


class Discover(Method):
    """The versions and capabilities of the server, in the modern era."""

    name = "server/discover"
    waits_for_start = False
    eras = MODERN

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._written: tuple[Json, bytes] = {}, b""
        """The last result for callers who see everything."""

    def plan(self, exchange: ServedExchange) -> bytes:
        """Return what the caller may use of the server, which is written again when that has changed."""
        result = self._core.discovery(exchange.access)
        last, written = self._written
        if result != last:
            written = exchange.write(dict(result))
            if exchange.access.sees_all:
                self._written = result, written
        return written
