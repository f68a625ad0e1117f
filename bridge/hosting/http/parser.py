"""Parsers of HTTP/1.1 requests: bytes in, events out, whichever library parses them.

    head ──> part of the body ──> … ──> None: the request is complete
    any ──> malformed: the last event

Upgrades are ignored (RFC 9110 section 7.8), CONNECT is malformed (section 9.3.6), and trailers are dropped, since they
are no headers (section 6.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and headers."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    """Names in lower case, and values."""
    http_version: str
    """Such as ``1.1``."""
    keeps_alive: bool
    """True if further requests may follow on the connection."""


class Malformed:
    """Event for data that is not an HTTP request."""


MALFORMED: Final = Malformed()
Event = RequestHead | bytes | Malformed | None


class HttpParser(Protocol):
    """Parser for one connection."""

    @property
    def is_between_requests(self) -> bool:
        """True if the parser has no part of a request."""
        ...

    def feed(self, data: bytes) -> Sequence[Event]:
        """Parse data; after a malformed request, no more is parsed."""
        ...

    def close(self) -> None:
        """Forget what was parsed; otherwise it might be in reference cycles."""
        ...
