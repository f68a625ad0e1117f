"""Routing: what the head of a request says about its message, read once for many requests with the same head.

MCP 2025-11-25 and 2026-07-28, "Transports", Streamable HTTP; 2026-07-28, "Standard Request Headers".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import unsupported_version
from bridge.protocol.messages import ProtocolError
from bridge.protocol.param_headers import decoded_header
from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.types import Json

_CACHED_HEADER_VALUES = 256
_HANDSHAKE = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)
_ROUTING_HEADERS = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")


@dataclass(frozen=True, slots=True)
class Routing:
    """The headers that route a message."""

    is_modern: bool
    """True for a request of the modern era, judged by ``MCP-Protocol-Version`` alone."""
    version: str
    """``MCP-Protocol-Version``; empty without it."""
    session_id: str | None
    """``Mcp-Session-Id``; None in the modern era."""
    method: str | None
    """``Mcp-Method``."""
    name: str | None
    """``Mcp-Name``."""
    accepts_json: bool
    accepts_events: bool
    has_json: bool
    """True if the body is JSON by its content type."""
    repeated: str | None
    """A routing header that occurs more than once; None if none does."""

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes], lines: list[tuple[bytes, bytes]]) -> Routing:
        """Read the headers.

        Args:
            headers: Headers by name.
            lines: The same, in which a header may occur more than once.
        """
        version = headers.get(b"mcp-protocol-version")
        is_modern = version is not None and version not in _HANDSHAKE
        repeated = None
        if len(headers) < len(lines):
            names = [name for name, _ in lines]
            repeated = next((name.decode() for name in _ROUTING_HEADERS if names.count(name) > 1), None)
            headers = {**headers, **{each: _joined(lines, each) for each in (b"accept", b"content-type")}}
        accepts_json, accepts_events = _accepted(headers.get(b"accept", b""))
        session = headers.get(b"mcp-session-id")
        return cls(
            is_modern,
            "" if version is None else version.decode(errors="surrogateescape"),
            None if session is None or is_modern else session.decode(errors="surrogateescape"),
            _text(headers.get(b"mcp-method")),
            None if b"mcp-name" not in headers else decoded_header(headers[b"mcp-name"]),
            accepts_json,
            accepts_events,
            _is_json(headers.get(b"content-type", b"")),
            repeated,
        )

    def version_problem(self) -> ProtocolError | None:
        """Return the error for a modern request of a version that the server does not support; None for others."""
        return None if not self.is_modern or self.version in MODERN_VERSIONS else unsupported_version(self.version)

    def check(self, message: Json, targets: Mapping[str, str]) -> None:
        """Check that the headers of a modern request agree with its message.

        Args:
            message: The request.
            targets: The parameter that ``Mcp-Name`` repeats, by method.

        Raises:
            ProtocolError: They do not agree. Other errors of the envelope are left to whoever reads it.
        """
        if self.repeated is not None:
            raise ProtocolError(HEADER_MISMATCH, f"{self.repeated} header appears more than once")
        params: Any = message.get("params")
        meta = params.get("_meta") if type(params) is dict else None
        if type(meta) is not dict or PROTOCOL_VERSION_KEY not in meta or CAPABILITIES_KEY not in meta:
            return
        if meta[PROTOCOL_VERSION_KEY] != self.version:
            problem = "mcp-protocol-version header does not match the request envelope's protocol version"
            raise ProtocolError(HEADER_MISMATCH, problem)
        method = message["method"]
        if self.method != method:
            raise ProtocolError(HEADER_MISMATCH, "mcp-method header does not match the request body's method")
        param = targets.get(method)
        if param is None or (value := params.get(param)) is None or value == self.name:
            return
        if param == "taskId" and self.name is None:  # FastMCP 4.1 sends none
            return
        raise ProtocolError(HEADER_MISMATCH, f"mcp-name header does not match the request body's {param!r} parameter")


def _text(value: bytes | None) -> str | None:
    # Bytes that are not UTF-8 become surrogates, which no text of a message has.
    return None if value is None else value.decode(errors="surrogateescape")


def _joined(lines: list[tuple[bytes, bytes]], name: bytes) -> bytes:
    """Return the value of a header that may occur more than once (RFC 9110 section 5.3)."""
    return b", ".join(value for each, value in lines if each == name)


@lru_cache(_CACHED_HEADER_VALUES)
def _accepted(accept: bytes) -> tuple[bool, bool]:
    """Return whether a client accepts JSON, and event streams."""
    kinds = {kind.split(b";")[0].strip().lower() for kind in accept.split(b",")}
    if b"*/*" in kinds:
        return True, True
    return (
        not kinds.isdisjoint({b"application/json", b"application/*"}),
        not kinds.isdisjoint({b"text/event-stream", b"text/*"}),
    )


@lru_cache(_CACHED_HEADER_VALUES)
def _is_json(content_type: bytes) -> bool:
    return [kind.split(b";")[0].strip().lower() for kind in content_type.split(b",")] == [b"application/json"]
