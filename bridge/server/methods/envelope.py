"""Plain envelopes: checks that a request has no members that the fast path does not know.

JSON-RPC 2.0, section 4; MCP 2026-07-28, "Basic protocol"; W3C Trace Context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
)
from bridge.telemetry.conventions import TRACE_KEYS
from bridge.tools.channel import LOG_LEVELS

if TYPE_CHECKING:
    from bridge.types import Json

_ENVELOPE = (
    frozenset({PROTOCOL_VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, "progressToken"}) | TRACE_KEYS
)
_OF_ONE_REQUEST = TRACE_KEYS | {"progressToken"}
_MAX_ID_CHARS = 256
"""Maximum length of the id of a plain request; `bridge.server.http.requests` refuses much longer ones."""
_LOG_LEVELS = (None, *LOG_LEVELS)
_IMPLEMENTATION = frozenset({"name", "version", "title", "description", "websiteUrl"})


def is_plain_message(message: Json) -> bool:
    """True for a request with JSON-RPC's members only, and an id that all JSON writers write alike."""
    request = message["id"]
    members = 4 if "params" in message else 3  # with jsonrpc, id and method, which every request has
    return len(message) == members and (type(request) is int or (request.isascii() and len(request) <= _MAX_ID_CHARS))


def is_plain_meta(meta: object) -> bool:
    """True for a ``_meta`` of the handshake era that has at most a progress token and a trace."""
    return meta is None or (
        type(meta) is dict and meta.keys() <= _OF_ONE_REQUEST and _has_token(meta) and _has_plain_trace(meta)
    )


class ModernEnvelopes:
    """Checks the ``_meta`` of the modern era; caches the last plain one, since clients repeat it."""

    def __init__(self) -> None:
        self._last: Json | None = None

    def is_plain(self, meta: Any) -> bool:
        """True for a ``_meta`` that has the members of every request of the modern era, and no others."""
        if meta == self._last and meta is not None:
            return True
        if type(meta) is dict and not _OF_ONE_REQUEST.isdisjoint(meta) and _has_token(meta) and _has_plain_trace(meta):
            meta = {key: value for key, value in meta.items() if key not in _OF_ONE_REQUEST}
            if meta == self._last:
                return True
        if not (
            type(meta) is dict
            and meta.keys() <= _ENVELOPE
            and type(meta.get(PROTOCOL_VERSION_KEY)) is str
            and meta[PROTOCOL_VERSION_KEY] in MODERN_VERSIONS
            and are_plain_capabilities(meta.get(CAPABILITIES_KEY))
            and (meta.get(CLIENT_INFO_KEY) is None or is_plain_implementation(meta[CLIENT_INFO_KEY]))
            and meta.get(LOG_LEVEL_KEY) in _LOG_LEVELS
            and _OF_ONE_REQUEST.isdisjoint(meta)
        ):
            return False
        self._last = meta
        return True


def are_plain_capabilities(value: object) -> bool:
    """True if each capability is an object of objects; ``roots`` may have a boolean ``listChanged``."""
    return type(value) is dict and all(
        type(capability) is dict
        and all(
            type(detail) is dict or (name == "roots" and detail_name == "listChanged" and type(detail) is bool)
            for detail_name, detail in capability.items()
        )
        for name, capability in value.items()
    )


def is_plain_implementation(value: object) -> bool:
    """True for a client's name and version, with further texts."""
    return (
        type(value) is dict
        and {"name", "version"} <= value.keys() <= _IMPLEMENTATION
        and all(type(detail) is str for detail in value.values())
    )


def _has_token(meta: Json) -> bool:
    return type(meta.get("progressToken", "")) in {int, str}


def _has_plain_trace(meta: Json) -> bool:
    return TRACE_KEYS.isdisjoint(meta) or all(type(meta.get(key, "")) is str for key in TRACE_KEYS)
