"""Unread responses: connections whose clients do not read are closed.

The transport buffers unread data. Above its high-water mark it pauses writing, but the buffer stays in memory while the
connection is open. Afterwards some of it is in reference cycles: the exception of a task that is cancelled while it
sends refers to its frames, and anyio's task group to the exception. So unread data of `COLLECTED_BYTES` is followed by
a garbage collection, which might not come by itself for long.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from bridge.hosting.http.limits import ConnectionLimits, LimitedConnection

_logger = logging.getLogger("bridge.hosting")

COLLECTED_BYTES = 32 * 1024 * 1024
"""Unread bytes of closed connections after which garbage is collected."""
_COLLECTION_SECONDS = (0.5, 5.0)
"""Seconds in which the tasks of closed connections end, and in which they end on a busy machine."""


class UnreadResponses:
    """Connections of one server whose clients do not read.

    Args:
        limits: Maximum seconds without reading, and maximum unread bytes of all clients.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._seconds, self._max_bytes = limits.max_unread_seconds, limits.max_unread_bytes
        self._paused: dict[LimitedConnection, int] = {}
        """Unread bytes at the last measurement."""
        self._timers: dict[LimitedConnection, asyncio.TimerHandle] = {}
        self._bytes = self._dropped_bytes = 0

    def paused(self, connection: LimitedConnection) -> None:
        """Add a connection; over the limit, close the fullest connection of the address with the most unread bytes."""
        self._measure(connection)
        self._watch(connection)
        while self._bytes > self._max_bytes:
            for each in self._paused:
                self._measure(each)
            of_addresses: Counter[object] = Counter()
            for each, unread_bytes in self._paused.items():
                of_addresses[_address_of(each)] += unread_bytes
            if self._bytes <= self._max_bytes:
                return
            ((most, _),) = of_addresses.most_common(1)
            self._cut_off(
                max((each for each in self._paused if _address_of(each) == most), key=self._paused.__getitem__)
            )

    def resumed(self, connection: LimitedConnection) -> None:
        """Remove a connection whose client has read."""
        self._bytes -= self._paused.pop(connection, 0)
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    def closed(self, connection: LimitedConnection) -> None:
        """Remove a closed connection, and collect its garbage if necessary."""
        if (unread_bytes := self._paused.get(connection)) is not None:
            self._dropped_bytes += unread_bytes
            if self._dropped_bytes >= COLLECTED_BYTES:
                self._dropped_bytes = 0
                for each in _COLLECTION_SECONDS:
                    connection.loop.call_later(each, gc.collect)
        self.resumed(connection)

    def _measure(self, connection: LimitedConnection) -> int:
        found = connection.transport.get_write_buffer_size()
        self._bytes += found - self._paused.get(connection, 0)
        self._paused[connection] = found
        return found

    def _watch(self, connection: LimitedConnection) -> None:
        if connection not in self._timers:
            self._timers[connection] = connection.loop.call_later(self._seconds, self._check, connection)

    def _check(self, connection: LimitedConnection) -> None:
        del self._timers[connection]
        before = self._paused[connection]
        if self._measure(connection) >= before:
            self._cut_off(connection)
        else:
            self._watch(connection)

    def _cut_off(self, connection: LimitedConnection) -> None:
        """Close a connection and drop its unread data."""
        _logger.info("closed a connection whose client left %d bytes unread", self._paused[connection])
        self.resumed(connection)
        connection.transport.abort()


def _address_of(connection: LimitedConnection) -> object:
    return connection.client and connection.client[0]
