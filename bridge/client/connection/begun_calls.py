"""Begun calls: calls of a gateway's callers that are sent in the same turn in which they were received.

A task is made only for a call that needs one: `bridge.client.transports.plain_responses`. A server that takes longer
than `HAND_OVER_SECONDS` is waited for by a task, which has the deadlines, and to which its messages belong.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.client.transports.plain_responses import BegunRequest

HAND_OVER_SECONDS = 1.0
"""Seconds after which a task waits for the response."""


class BegunCalls:
    """The begun calls of one session."""

    def __init__(self) -> None:
        self._calls: dict[BegunRequest, None] = {}  # oldest first
        self._is_watched = False

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: BegunRequest) -> None:
        """Add a call that was sent."""
        self._calls[call] = None
        if not self._is_watched:
            self._watch(HAND_OVER_SECONDS)

    def discard(self, call: BegunRequest) -> None:
        """Remove a call that was answered, or is continued by a task."""
        self._calls.pop(call, None)

    def _watch(self, seconds: float) -> None:
        self._is_watched = True
        asyncio.get_running_loop().call_later(seconds, self._hand_over_slow)

    def _hand_over_slow(self) -> None:
        """Hand over the calls that have waited for so long."""
        self._is_watched = False
        now = asyncio.get_running_loop().time()
        for call in self._calls:
            left = call.began_at + HAND_OVER_SECONDS - now
            if left > 0:
                self._watch(left)
                break
            call.hand_over()
