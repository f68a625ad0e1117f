"""Opening of a session by a client: the requests until both sides agree on a version.

    auto        server/discover ──> modern
                     ╰── any error but that of a modern server, or no usable result ──> initialize ──> handshake era
    legacy      initialize ──> handshake era
    2026-07-28  server/discover ──> modern

Clauses: MCP 2025-11-25, Lifecycle, "Initialization"; MCP 2026-07-28, "Discovery" and "Versioning".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    LATEST_MODERN_VERSION,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    UNSUPPORTED_VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.protocol.results import InvalidResultError
    from bridge.types import Json

Mode: TypeAlias = Literal["auto", "legacy", "2026-07-28"]
"""Era that a client wants: the newest that the server has, the handshake era, or the modern one."""
DISCOVER, INITIALIZE = "server/discover", "initialize"


class VersionError(Exception):
    """Both sides have no version in common."""


class Opening(NamedTuple):
    """A request that opens a session."""

    method: str
    params: Json
    version: str
    """Protocol version by which its result is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The result of a negotiation: version, capabilities, and the server's description of itself."""

    version: str
    stamps: Json
    """Members of ``_meta`` that each request has in the modern era; empty before."""
    capabilities: Mapping[str, Any]
    """The server's capabilities."""
    server_info: Mapping[str, Any]
    """The server's name and version; empty if it does not tell."""
    instructions: str | None


class Negotiation:
    """Decides which request opens a session, from the answers so far.

    Args:
        mode: The wanted era.
        client_info: Name and version of the client.
        capabilities: Returns the client's capabilities in a version.

    Attributes:
        agreement: The outcome; None until then.
    """

    def __init__(self, mode: Mode, client_info: Json, capabilities: Callable[[str], Json]) -> None:
        self.agreement: Agreement | None = None
        self._mode = mode
        self._client_info = client_info
        self._capabilities = capabilities
        self._probes = 0
        self._method = INITIALIZE if mode == "legacy" else DISCOVER

    def stamps(self, version: str) -> Json:
        """Members of ``_meta`` that each request of the modern era has."""
        return {
            PROTOCOL_VERSION_KEY: version,
            CLIENT_INFO_KEY: self._client_info,
            CAPABILITIES_KEY: self._capabilities(version),
        }

    def request(self) -> Opening:
        """Return the next request; answer it by `answered` or `refused`."""
        if self._method == DISCOVER:
            self._probes += 1
            return Opening(DISCOVER, {"_meta": self.stamps(LATEST_MODERN_VERSION)}, LATEST_MODERN_VERSION)
        version = HANDSHAKE_VERSIONS[-1]
        params = {
            "protocolVersion": version,
            "capabilities": self._capabilities(version),
            "clientInfo": self._client_info,
        }
        return Opening(INITIALIZE, params, version)

    def answered(self, result: Json) -> None:
        """Handle the valid result of the request.

        Raises:
            VersionError: There is no common version.
        """
        if self._method == INITIALIZE:
            self._initialized(result)
            return
        if MODERN_VERSIONS.isdisjoint(supported := result["supportedVersions"]):
            if self._mode != "auto":
                raise VersionError(f"it supports the protocol versions {supported}, not {LATEST_MODERN_VERSION}")
            self._method = INITIALIZE
            return
        info = (result.get("_meta") or {}).get(SERVER_INFO_KEY)
        self.agreement = Agreement(
            version=LATEST_MODERN_VERSION,
            stamps=self.stamps(LATEST_MODERN_VERSION),
            capabilities=_without_none(result["capabilities"]),
            server_info=info if isinstance(info, dict) else {},
            instructions=result.get("instructions"),
        )

    def refused(self, error: ProtocolError | InvalidResultError) -> None:
        """Handle an error instead of a result, or a result that is not valid.

        Raises:
            ProtocolError, InvalidResultError: There is no other way to open the session.
        """
        supported = _supported(error)
        may_probe = self._mode == "auto" and self._probes < 2  # noqa: PLR2004 - one more than without the error
        if self._method == DISCOVER:
            if self._mode != "auto":
                raise error
            if supported is not None and not MODERN_VERSIONS.isdisjoint(supported) and may_probe:
                return
            if supported is not None and not set(HANDSHAKE_VERSIONS) & set(supported):
                raise error  # a modern server of other versions
            self._method = INITIALIZE
        elif supported is not None and not MODERN_VERSIONS.isdisjoint(supported) and may_probe:
            self._method = DISCOVER  # a slow probe has made the connection modern meanwhile
        else:
            raise error

    def _initialized(self, result: Json) -> None:
        version = result["protocolVersion"]
        if version not in HANDSHAKE_VERSIONS:
            raise VersionError(f"Unsupported protocol version from the server: {version}")
        self.agreement = Agreement(
            version=version,
            stamps={},
            capabilities=_without_none(result["capabilities"]),
            server_info=result["serverInfo"],
            instructions=result.get("instructions"),
        )


def _supported(error: Exception) -> list[Any] | None:
    """Return the versions that a server names in its error; None for any other error."""
    data = error.data if isinstance(error, ProtocolError) and error.code == UNSUPPORTED_VERSION else None
    versions = data.get("supported") if isinstance(data, dict) else None
    is_list = isinstance(versions, list) and all(isinstance(version, str) for version in versions)
    return versions if is_list else None


def _without_none(value: Any) -> Any:
    """Return a value without null members of objects."""
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return value
