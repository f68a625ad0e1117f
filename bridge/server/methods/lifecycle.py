"""``initialize``, ``ping`` and ``server/discover``.

The SDK's server has handlers for all of them. Clauses: MCP 2025-11-25, "Lifecycle" and "Ping"; 2026-07-28, "Discovery".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import to_json

from bridge.protocol.versions import HANDSHAKE_VERSIONS
from bridge.server.methods.envelope import are_plain_capabilities, is_plain_implementation
from bridge.server.methods.method import Method

if TYPE_CHECKING:
    from bridge.server.core import ServerCore
    from bridge.server.methods.method import PlainRequest
    from bridge.types import Json

_INITIALIZE = frozenset({"protocolVersion", "capabilities", "clientInfo"})


def agreed_version(requested: object) -> str:
    """Negotiate the protocol version (Lifecycle, "Version Negotiation")."""
    return requested if isinstance(requested, str) and requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]


class Initialize(Method):
    """The handshake."""

    name = "initialize"
    planned_in = frozenset({"opening"})

    def plan(self, request: PlainRequest) -> bytes | None:
        """Return the server's name, version and capabilities, in the version of the request."""
        params = request.params
        if not (
            params.keys() == _INITIALIZE
            and type(params["protocolVersion"]) is str
            and are_plain_capabilities(params["capabilities"])
            and is_plain_implementation(params["clientInfo"])
        ):
            return None
        core = self._core
        result = {
            "protocolVersion": request.version,
            "capabilities": core.capabilities,
            "serverInfo": core.implementation,
        }
        if core.instructions is not None:
            result["instructions"] = core.instructions
        return to_json(result)


class Ping(Method):
    """Check that the connection is alive, in the handshake era."""

    name = "ping"
    planned_in = frozenset({"handshake"})

    def plan(self, request: PlainRequest) -> bytes | None:
        """Return an empty result."""
        return None if request.params else b"{}"


class Discover(Method):
    """The versions and capabilities of the server, in the modern era."""

    name = "server/discover"
    planned_in = frozenset({"modern"})

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._result: bytes | None = None
        self._extensions: Json = {}

    def plan(self, request: PlainRequest) -> bytes | None:
        """Return the description of the server, which is written again when its extensions have changed."""
        if len(request.params) != 1:
            return None
        extensions = self._core.extensions
        if self._result is None or extensions != self._extensions:
            self._result, self._extensions = request.write(self._core.discovery), extensions
        return self._result
