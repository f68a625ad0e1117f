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
    eras = HANDSHAKE

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._results: dict[str, bytes] = {}
        """By version, written again when what they tell has changed."""
        self._varying: tuple[object, ...] = ()

    def plan(self, exchange: ServedExchange) -> bytes:
        """Return the server's name, version and capabilities, in the version that is negotiated."""
        session, core = exchange.session, self._core
        negotiated = session or Session()
        negotiated.initialize(exchange.params)
        exchange.version = version = negotiated.version
        varying = dict(core.features.extensions), tuple(core.features.boxes), core.instructions, session is None
        if varying != self._varying:
            self._varying, self._results = varying, {}
        if version not in self._results:
            result = {
                "protocolVersion": version,
                "capabilities": core.stateless_capabilities if session is None else core.capabilities,
                "serverInfo": core.implementation,
            }
            if core.instructions is not None:
                result["instructions"] = core.instructions
            self._results[version] = to_json(result)
        return self._results[version]


class Ping(Method):
    """Check that the connection is alive, in the handshake era."""

    name = "ping"
    eras = HANDSHAKE

    def plan(self, exchange: ServedExchange) -> bytes:  # noqa: ARG002 - the base's
        """Return an empty result."""
        return b"{}"


class Discover(Method):
    """The versions and capabilities of the server, in the modern era."""

    name = "server/discover"
    eras = MODERN

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._result: bytes | None = None
        self._varying: tuple[Json, tuple[str, ...], str | None] | None = None

    def plan(self, exchange: ServedExchange) -> bytes:
        """Return the description of the server, which is written again when what it tells has changed."""
        varying = self._core.extensions, tuple(self._core.features.boxes), self._core.instructions
        if self._result is None or varying != self._varying:
            self._result, self._varying = exchange.write(self._core.discovery), varying
        return self._result
