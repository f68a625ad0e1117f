"""Reading of a connection that leaves time for others, whatever it receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_MAX_BUSY_SECONDS = 0.02


class FairReading:
    """Reading of one connection: paused while its reader asks for that, and while it rests.

    Args:
        transport: The connection.
        loop: The event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._is_paused = self._is_resting = False

    def pause(self) -> None:
        """Stop reading."""
        self._set(is_paused=True, is_resting=self._is_resting)

    def resume(self) -> None:
        """Continue reading, at the latest after the rest."""
        self._set(is_paused=False, is_resting=self._is_resting)

    def rest_after(self, busy_seconds: float) -> None:
        """Rest as long as data that was received has kept the event loop busy, if that was long.

        A server may send tens of thousands of tiny chunks at once, again and again.
        """
        if busy_seconds > _MAX_BUSY_SECONDS and not self._is_resting:
            self._set(is_paused=self._is_paused, is_resting=True)
            self._loop.call_later(busy_seconds, self._end_rest)

    def _end_rest(self) -> None:
        self._set(is_paused=self._is_paused, is_resting=False)

    def _set(self, *, is_paused: bool, is_resting: bool) -> None:
        was_reading = not (self._is_paused or self._is_resting)
        self._is_paused, self._is_resting = is_paused, is_resting
        is_reading = not (is_paused or is_resting)
        if is_reading != was_reading and not self._transport.is_closing():
            (self._transport.resume_reading if is_reading else self._transport.pause_reading)()
