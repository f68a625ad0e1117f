"""Unread responses: connections whose clients do not read are closed.

The transport buffers unread data. Above its high-water mark uvicorn pauses writing, but the buffer stays in memory
while the connection is open. Afterwards some of it is in reference cycles: the exception of a task that is cancelled
while it sends refers to its frames, and anyio's task group to the exception. So unread data of `COLLECTED_BYTES` is
followed by a garbage collection, which might not come by itself for long.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from bridge.hosting.connection_limits import ConnectionLimits

_logger = logging.getLogger("bridge.hosting")

COLLECTED_BYTES = 32 * 1024 * 1024
"""Unread bytes of closed connections after which garbage is collected."""
_COLLECTION_SECONDS = (0.5, 5.0)
"""Seconds in which the tasks of closed connections end, and in which they end on a busy machine."""


def reading(protocol: type[Any], bounds: ConnectionLimits) -> type[Any]:  # noqa: C901 - methods of a class
    """Add limits of unread data to one of uvicorn's protocols.

    Args:
        protocol: The protocol.
        bounds: Maximum seconds without reading, and maximum unread bytes of all clients.
    """
    unread = _Unread(bounds.max_unread_bytes)
    seconds = bounds.max_unread_seconds

    class ReadingProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """Protocol with limits of unread data."""

        unread_bytes = 0
        """Unread bytes at the last measurement."""
        _unread_timer: asyncio.TimerHandle | None = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self.measure()
            unread.add(self)
            if self._unread_timer is None:
                self._unread_timer = self.loop.call_later(seconds, self._check_reading)

        def resume_writing(self) -> None:
            self._read_on()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._unread_timer is not None and unread.is_to_be_collected(self.unread_bytes):
                for each in _COLLECTION_SECONDS:
                    self.loop.call_later(each, gc.collect)
            self._read_on()
            super().connection_lost(exc)

        def measure(self) -> int:
            """Measure the unread bytes."""
            self.unread_bytes = self.transport.get_write_buffer_size()
            return self.unread_bytes

        def cut_off(self) -> None:
            """Close the connection and drop unread data."""
            _logger.info("closed a connection whose client left %d bytes unread", self.unread_bytes)
            self._read_on()
            self.transport.abort()

        def _check_reading(self) -> None:
            before = self.unread_bytes
            if self.measure() >= before:
                self.cut_off()
            else:
                self._unread_timer = self.loop.call_later(seconds, self._check_reading)

        def _read_on(self) -> None:
            unread.discard(self)
            if self._unread_timer is not None:
                self._unread_timer.cancel()
                self._unread_timer = None

    return ReadingProtocol


class _Unread:
    """Connections of one server with paused writing."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._paused: dict[Any, int] = {}
        self._bytes = self._dropped_bytes = 0

    def is_to_be_collected(self, dropped_bytes: int) -> bool:
        """Count the unread bytes of a closed connection; return True if garbage is to be collected."""
        self._dropped_bytes += dropped_bytes
        if self._dropped_bytes < COLLECTED_BYTES:
            return False
        self._dropped_bytes = 0
        return True

    def add(self, connection: Any) -> None:
        """Add a connection; over the limit, close the fullest connection of the address with the most unread bytes."""
        self.discard(connection)
        self._paused[connection] = connection.unread_bytes
        self._bytes += connection.unread_bytes
        while self._bytes > self._max_bytes:
            self._paused = {each: each.measure() for each in self._paused}
            self._bytes = sum(self._paused.values())
            if self._bytes <= self._max_bytes:
                return
            of_addresses: Counter[object] = Counter()
            for each, unread_bytes in self._paused.items():
                of_addresses[_address_of(each)] += unread_bytes
            ((most, _),) = of_addresses.most_common(1)
            max((each for each in self._paused if _address_of(each) == most), key=self._paused.__getitem__).cut_off()

    def discard(self, connection: Any) -> None:
        """Remove a connection."""
        self._bytes -= self._paused.pop(connection, 0)


def _address_of(connection: Any) -> object:
    peer = connection.transport.get_extra_info("peername")
    return peer[0] if isinstance(peer, tuple) else None
