"""Limits of HTTP connections, and shares of the connections by address."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from bridge.server.limits.accounts import caller_key

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

DEFAULT_MAX_HEADER_BYTES = 64 * 1024
"""Default maximum length of a request's head."""
MAX_HEADERS = 200
"""Maximum number of a request's headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of connections: their number, and the size and duration of requests and unread responses."""

    max_header_bytes: int = DEFAULT_MAX_HEADER_BYTES
    """Maximum length of a request's target and headers together."""
    max_connections: int | None = None
    """Maximum number of open connections; None for no limit."""
    max_silence_seconds: float = 75.0
    """Maximum seconds until the first byte of a new connection, as between two requests."""
    max_head_seconds: float = 30.0
    """Maximum seconds from the first byte of a request's head to its last."""
    max_body_pause_seconds: float = 30.0
    """Maximum seconds between two parts of a body."""
    max_unread_seconds: float = 60.0
    """Maximum seconds for which a client may read nothing of its responses."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """Maximum bytes of unread responses of all clients in this process."""

    def are_exceeded_by(self, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """True if the head of a request is too long, or has too many headers."""
        head_bytes = len(url) + sum(len(name) + len(value) for name, value in headers)
        return len(headers) > MAX_HEADERS or head_bytes > self.max_header_bytes


class LimitedConnection(Protocol):
    """A connection, for its limits."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    client: tuple[str, int | None] | None
    """Address of the client."""

    @property
    def waits_for_client(self) -> bool:
        """True if no complete request waits for its response."""
        ...

    @property
    def is_stream(self) -> bool:
        """True for a stream that belongs to no call, which its client can reopen."""
        ...


class ConnectionShares:
    """Open connections of one process, by address.

    One address may have all connections, as a proxy does. At the limit, an address with fewer connections displaces one
    of the address with most, but never one on which a call runs.

    Args:
        max_connections: Maximum number of open connections; None for no limit.
    """

    def __init__(self, max_connections: int | None) -> None:
        self._max = max_connections
        self._count = 0
        # Connections of an address in the order of their opening.
        self._by_address: defaultdict[str, dict[LimitedConnection, None]] = defaultdict(dict)

    def add(self, connection: LimitedConnection) -> bool:
        """Add a connection; return False if there is no room."""
        if self._max is None:
            return True
        address = caller_key({"client": connection.client})
        if self._count >= self._max and not self._make_room(address):
            return False
        self._by_address[address][connection] = None
        self._count += 1
        return True

    def discard(self, connection: LimitedConnection) -> None:
        """Remove a connection."""
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
        for can_close in ("waits_for_client", "is_stream"):
            if (found := next(filter(attrgetter(can_close), most), None)) is not None:
                self.discard(found)
                found.transport.close()
                return True
        return False
