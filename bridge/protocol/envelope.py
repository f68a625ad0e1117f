"""Envelopes: what a request says about itself in ``_meta``, in either era.

MCP 2025-11-25 and 2026-07-28, "Basic protocol", ``_meta``; 2026-07-28, "Per-request protocol fields".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    LOG_LEVEL_KEY,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    UNSUPPORTED_VERSION,
)
from bridge.text import clip
from bridge.types import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.types import Json

_KNOWN = frozenset({PROTOCOL_VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY})
ENVELOPE_KEYS = _KNOWN | {"progressToken"}
"""Keys of ``_meta`` that concern the sender and the receiver of a request alone."""
_CAPABILITIES = ("elicitation", "experimental", "extensions", "roots", "sampling", "tasks")
_TEXTS = ("title", "description", "websiteUrl")


def invalid_params(problem: str) -> ProtocolError:
    """Return the error for parameters that are not valid."""
    return ProtocolError(INVALID_PARAMS, f"Invalid request parameters: {problem}")


def check_meta(meta: object) -> None:
    """Check the ``_meta`` of a request of the handshake era.

    Raises:
        ProtocolError: It is malformed.
    """
    if meta is None:
        return
    if type(meta) is not dict:
        raise invalid_params("'_meta' must be an object")
    _check_token(meta)


def _check_token(meta: Json) -> None:
    if "progressToken" in meta and type(meta["progressToken"]) not in {int, str}:
        raise invalid_params("'progressToken' must be an integer or text")


class ModernEnvelopes:
    """Checks the ``_meta`` of the modern era; remembers the last valid one, since clients repeat it."""

    def __init__(self) -> None:
        self._last: Json | None = None

    def check(self, meta: Any) -> None:
        """Check the ``_meta`` of a request.

        Args:
            meta: The ``_meta``, which may be anything.

        Raises:
            ProtocolError: It is malformed, or of a version that the server does not support.
        """
        if type(meta) is not dict:
            raise ProtocolError(
                INVALID_PARAMS,
                f"params._meta must be an object carrying the required {PROTOCOL_VERSION_KEY!r} and "
                f"{CAPABILITIES_KEY!r} envelope keys",
            )
        if meta == self._last:
            return
        stated = {key: value for key, value in meta.items() if key != "progressToken"}
        if stated != self._last:
            _check_stated(stated)
            if stated.keys() <= _KNOWN:  # others, such as a trace, differ from request to request
                self._last = stated
        _check_token(meta)


def _check_stated(meta: Json) -> None:
    """Check the members that describe the client."""
    missing = [key for key in (PROTOCOL_VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise ProtocolError(
            INVALID_PARAMS, f"params._meta is missing the required envelope key(s): {', '.join(missing)}"
        )
    _check_version(meta[PROTOCOL_VERSION_KEY])
    check_capabilities(meta[CAPABILITIES_KEY])
    if meta.get(CLIENT_INFO_KEY) is not None:
        check_implementation(meta[CLIENT_INFO_KEY], "clientInfo")
    if meta.get(LOG_LEVEL_KEY) is not None and meta[LOG_LEVEL_KEY] not in LOG_LEVELS:
        raise invalid_params(f"{LOG_LEVEL_KEY!r} must be one of {', '.join(LOG_LEVELS)}")


def _check_version(version: object) -> None:
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, "the protocol-version envelope value must be a string")
    if version not in MODERN_VERSIONS:
        raise unsupported_version(version)


def unsupported_version(requested: str) -> ProtocolError:
    """Return the error for a protocol version that the server does not support."""
    data = {"supported": sorted(MODERN_VERSIONS), "requested": requested}
    return ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def check_capabilities(value: object) -> None:
    """Check a client's capabilities: an object, whose known members are objects.

    Raises:
        ProtocolError: They are malformed.
    """
    if type(value) is not dict:
        raise invalid_params("the client's capabilities must be an object")
    for name in _CAPABILITIES:
        if not isinstance(value.get(name), dict | None):
            raise invalid_params(f"the client's capability {name!r} must be an object")


def check_implementation(value: object, member: str) -> None:
    """Check the name and version of a program.

    Raises:
        ProtocolError: They are malformed.
    """
    if type(value) is not dict:
        raise invalid_params(f"{member!r} must be an object")
    for name in ("name", "version"):
        if type(value.get(name)) is not str:
            raise invalid_params(f"{name!r} of {member!r} must be text")
    for name in _TEXTS:
        if not isinstance(value.get(name), str | None):
            raise invalid_params(f"{name!r} of {member!r} must be text")


def capabilities_in(params: Mapping[str, Any]) -> Json:
    """Return the capabilities in the parameters of ``initialize`` without what they leave open (null)."""
    return {name: value for name, value in params["capabilities"].items() if value is not None}


def client_name(params: Mapping[str, Any]) -> str | None:
    """Name of the client program in the parameters of ``initialize``, or of a modern request; cut, since it is foreign.

    None without one.
    """
    meta = params.get("_meta")
    info = params.get("clientInfo") or (meta.get(CLIENT_INFO_KEY) if isinstance(meta, dict) else None)
    name = info.get("name") if isinstance(info, dict) else None
    return clip(name) if isinstance(name, str) and name else None


def agreed_version(requested: object) -> str:
    """Negotiate the version of a session (MCP 2025-11-25, "Lifecycle", "Version Negotiation")."""
    return requested if isinstance(requested, str) and requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
