"""Arrival: what a client has begun to send has to come, else its connection is closed.

    nothing yet ──> part of a head ──> part of a body ──> a whole request ──> uvicorn's own timer, once it is answered
    silence         the whole head     each further part  (whoever is at work on it takes what time it takes)

uvicorn has a timer for what comes after an answer alone, and ends it with the first byte. Here a connection has at most
one more: made when it is opened, and where a request does not come whole at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from bridge.hosting.protocols import ConnectionBounds


def arriving(protocol: type[Any], bounds: ConnectionBounds, too_late: bytes) -> type[Any]:  # noqa: C901 - methods of a class
    """One of uvicorn's protocols, which waits for a client within bounds.

    Args:
        protocol: The protocol.
        bounds: How long it waits.
        too_late: What is answered where only a part of a request has come.
    """
    silence, head, body = bounds.max_silence_seconds, bounds.max_head_seconds, bounds.max_body_pause_seconds

    class ArrivingProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """A protocol that waits within bounds."""

        _timer: asyncio.TimerHandle | None = None
        _has_begun = False
        """Whether something has come of what is waited for."""
        _is_in_body = False
        _heard_at = 0.0
        """When a part of a body came last."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(silence, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_waited_for():
                self._wait(is_in_body=self.cycle is not None and not self.cycle.response_complete)
            elif self._timer is not None:
                self._wait_no_more()

        def _is_waited_for(self) -> bool:
            """Whether it is the client's turn, and no timer of uvicorn's runs."""
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                return self.timeout_keep_alive_task is None
            return getattr(cycle, "more_body", False)  # a call that is run without ASGI has come whole

        def _wait(self, *, is_in_body: bool) -> None:
            if is_in_body:
                self._heard_at = self.loop.time()
            if self._timer is None or not self._has_begun or is_in_body is not self._is_in_body:
                self._wait_no_more()
                self._has_begun, self._is_in_body = True, is_in_body
                self._timer = self.loop.call_later(body if is_in_body else head, self._look)

        def _wait_no_more(self) -> None:
            timer, self._timer, self._has_begun = self._timer, None, False
            if timer is not None:
                timer.cancel()

        def _look(self) -> None:
            """Close the connection, unless something came meanwhile, or was not read."""
            self._timer = None
            if self.transport.is_closing() or not self._is_waited_for():
                return
            if self._is_in_body and (left := self._seconds_left()) > 0:
                self._timer = self.loop.call_later(left, self._look)
                return
            if self._has_begun and not (self._is_in_body and self.cycle.response_started):
                self.transport.write(too_late)
            self.transport.close()

        def _seconds_left(self) -> float:
            return body if self.flow.read_paused else self._heard_at + body - self.loop.time()

    return ArrivingProtocol
