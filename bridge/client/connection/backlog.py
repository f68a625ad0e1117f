"""Backlog: messages of a server that are being delivered; beyond a limit, its further messages are not read.

    message of a call, or of none ──> there is room ──────────────────────> delivered
                        ╰──> full ──> wait until one was delivered ───────> delivered
                                ╰──> none was for a second, others wait ──> dropped, or refused if it is a request

So a server cannot fill the memory of this process, and a caller that does not read delays no other one for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_MESSAGES = 256
"""Maximum messages of one call, or of no call, that are being delivered."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Maximum memory that they take, in bytes; one message may take more."""
STALL_SECONDS = 1.0
"""Seconds without a delivery after which messages are dropped, if others wait."""

_VALUE_BYTES = 50


class Backlog:
    """Messages that are being delivered: those of one call, or those of a session that belong to none.

    Attributes:
        drops: True if further messages are dropped while it is full.
    """

    def __init__(self) -> None:
        self.drops = False
        self._messages = self._bytes = 0
        self._is_stalled = False
        self._ended: anyio.Event | None = None

    @property
    def is_full(self) -> bool:
        """True if no further message is to be read."""
        return self._messages >= MAX_MESSAGES or self._bytes >= MAX_MESSAGE_BYTES

    @property
    def has_to_drop(self) -> bool:
        """True if the next message has to be dropped."""
        return self.drops and self.is_full

    async def has_room(self, delays_others: Callable[[], bool]) -> bool:
        """Wait for room; return False if a message has to be dropped.

        Args:
            delays_others: Returns True if others wait, too.
        """
        while self.is_full:
            if self._is_stalled and delays_others():
                return False
            ended = self._ended = self._ended or anyio.Event()
            with anyio.move_on_after(STALL_SECONDS):
                await ended.wait()
            self._is_stalled = not ended.is_set()
        return True

    async def deliver(self, size_bytes: int, delivery: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Deliver a message that was added by `begin`."""
        try:
            await delivery(*arguments)
        finally:
            self._messages -= 1
            self._bytes -= size_bytes
            self._is_stalled = False
            if self._ended is not None:
                self._ended.set()
                self._ended = None

    def begin(self, size_bytes: int) -> None:
        """Add a message, which `deliver` removes."""
        self._messages += 1
        self._bytes += size_bytes


def memory_of(params: Any) -> int:
    """Estimate the memory that parameters of a message take, in bytes."""
    text = to_json(params, fallback=str, inf_nan_mode="null") if params else b""
    return len(text) + _VALUE_BYTES * (text.count(b",") + text.count(b"[") + text.count(b"{"))
