"""Limits of HTTP connections, their defaults, and each address's share of the connections."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.server.limits.accounts import caller_key

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


class ConnectionShares:
    """The open connections of one process, by address.

    One address may have all of them, as a proxy in front of the server does. Once all are taken, an address with fewer
    connections takes the place of a connection of the address that has most, but never of one on which a call runs.

    Args:
        max_connections: How many may be open; None for as many as come.
    """

    def __init__(self, max_connections: int | None) -> None:
        self._max = max_connections
        self._count = 0
        # The connections of an address are in the order in which they were opened.
        self._by_address: defaultdict[str, dict[Any, None]] = defaultdict(dict)

    def add(self, connection: Any) -> bool:
        """Count a connection; returns whether there is room for it.

        Args:
            connection: uvicorn's protocol of it.
        """
        if self._max is None:
            return True
        address = caller_key({"client": connection.client})
        if self._count >= self._max and not self._make_room(address):
            return False
        self._by_address[address][connection] = None
        self._count += 1
        return True

    def discard(self, connection: Any) -> None:
        """Count a connection no more."""
        address = caller_key({"client": connection.client})
        if connection in self._by_address.get(address, ()):
            del self._by_address[address][connection]
            self._count -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room(self, address: str) -> bool:
        own = len(self._by_address.get(address, ()))
        most = max(self._by_address.values(), key=len)
        if len(most) <= own + 1:
            return False
        for can_close in (_waits_for_request, _is_stream):
            if (found := next(filter(can_close, most), None)) is not None:
                self.discard(found)
                found.transport.close()
                return True
        return False


def _waits_for_request(connection: Any) -> bool:
    """Whether no request has come whole that is not answered."""
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        return True
    return getattr(cycle, "more_body", False) and not cycle.response_started


def _is_stream(connection: Any) -> bool:
    """Whether a stream is open that belongs to no call; its client opens it anew."""
    scope = getattr(connection.cycle, "scope", None)  # a call that is run without ASGI has none
    return scope is not None and (
        scope["method"] == "GET" or (b"mcp-method", b"subscriptions/listen") in scope["headers"]
    )
