"""ConnectionLimits: limits of HTTP connections, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_MAX_HEADER_BYTES = 64 * 1024
"""How long the head of a request may be unless told otherwise."""

MAX_HEADERS = 200
"""How many headers a request may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections there may be, how long the head of a request, and how long it is waited for."""

    max_header_bytes: int = DEFAULT_MAX_HEADER_BYTES
    """Address and headers together."""
    max_connections: int | None = None
    """None for as many as come."""
    max_silence_seconds: float = 75.0
    """How long a new connection may say nothing: as long as one may between two requests."""
    max_head_seconds: float = 30.0
    """How long the head of a request may take from its first byte."""
    max_body_pause_seconds: float = 30.0
    """How long the next part of a body may take."""
    max_unread_seconds: float = 60.0
    """How long a client may read nothing of what is sent to it."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """What all clients together may leave unread in this process."""

    def are_exceeded_by(self, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether the head of a request is too long, or has too many headers."""
        head_bytes = len(url) + sum(len(name) + len(value) for name, value in headers)
        return len(headers) > MAX_HEADERS or head_bytes > self.max_header_bytes
