"""Time in which a client has to send what is awaited of it; one timer for a connection.

first byte ──> head ──> body ──> nothing, while the request is answered ──> next request
                        each part anew
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from bridge.hosting.http.limits import ConnectionLimits

NOTHING, FIRST_BYTE, HEAD, BODY, NEXT, REFUSED = range(6)
"""Things to wait for; `REFUSED` is the request of a refused connection, whose client then reads the response."""
_REFUSED_SECONDS = 1.0


class ReadTimer:
    """Timer of a connection. It is not set anew for each request, but looks again when it is due.

    Args:
        loop: The event loop.
        limits: Maximum seconds of each.
        keep_alive_seconds: Maximum seconds until the next request.
        late: Called once the client is late.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        keep_alive_seconds: float,
        late: Callable[[], None],
    ) -> None:
        self.awaited = NOTHING
        self._loop, self._late = loop, late
        self._seconds = (
            0.0,
            limits.max_silence_seconds,
            limits.max_head_seconds,
            limits.max_body_pause_seconds,
            keep_alive_seconds,
            _REFUSED_SECONDS,
        )
        self._deadline = self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, awaited: int) -> None:
        """Begin to wait for something."""
        self.awaited = awaited
        if awaited == NOTHING:
            return
        seconds = self._seconds[awaited]
        self._deadline = deadline = self._loop.time() + seconds
        if self._timer is not None:
            if self._due <= deadline:
                return
            self._timer.cancel()
        self._timer, self._due = self._loop.call_later(seconds, self._look), deadline

    def stop(self) -> None:
        """Wait no more."""
        self.awaited = NOTHING
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        del self._late  # it refers to the connection

    def _look(self) -> None:
        self._timer = None
        if self.awaited == NOTHING:
            return
        left_seconds = self._deadline - self._loop.time()
        if left_seconds > 0:
            self._timer, self._due = self._loop.call_later(left_seconds, self._look), self._deadline
        else:
            self._late()
