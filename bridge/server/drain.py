"""The drain: an app's orderly end, in which no call is lost that had begun."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.server.running_calls import RunningCalls

_logger = logging.getLogger("bridge.server")


class Drain:
    """Ends what is open, each in its own time. Each process that serves has one, as `http_app`'s ``state.drain``.

    Streams over which no answers come end at once: a subscription of the modern era with its result, a stream of a
    session of the handshake era by being closed. Over SSE a session ends when it has answered what it was asked. Calls
    go on until the time is over, and are then answered by an error.

    Args:
        running: The calls.
        farewells: What ends each kind of stream; called at the beginning.
    """

    def __init__(self, running: RunningCalls, farewells: Iterable[Callable[[], None]]) -> None:
        self._running = running
        self._farewells = farewells

    def __len__(self) -> int:
        """How many calls are waiting for something now."""
        return len(self._running)

    async def answered(self) -> None:
        """Wait until no call of the handshake era waits for what its client answers: that comes by a new request."""
        await self._running.answered()
        for farewell in self._farewells:  # to streams that were opened meanwhile
            farewell()

    async def __call__(self, timeout_seconds: float) -> None:
        """End the streams, and what runs after the time is over; to be cancelled when all connections are closed.

        Args:
            timeout_seconds: How long calls may go on.
        """
        for farewell in self._farewells:
            farewell()
        await anyio.sleep(timeout_seconds)
        if ended := self._running.end():
            _logger.warning(
                "cancelled %d %s that still ran after %g seconds of draining; the outcome is unknown",
                ended,
                "call" if ended == 1 else "calls",
                timeout_seconds,
            )
