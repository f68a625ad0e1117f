"""Healing: how soon a lost server is tried again, and how an idle one is watched."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_BACK_OFF_SECONDS = 10.0
"""However often it failed, a lost server is tried again after this long."""


async def wait_at_most(event: anyio.Event, seconds: float) -> None:
    """Wait for an event, for so long at most."""
    with anyio.move_on_after(seconds):
        await event.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Healing:
    """How a connection heals. `wait` and `jitter` are the only clock and chance in it."""

    first_delay_seconds: float = 0.2
    """How long to wait after the first failure; each further one doubles it."""
    max_delay_seconds: float = MAX_BACK_OFF_SECONDS
    """How long to wait at most."""
    health_check_seconds: float = 30.0
    """How long nothing may be heard before the server is asked whether it is there."""
    health_timeout_seconds: float = 10.0
    """How long it may take to answer that."""
    jitter: Callable[[], float] = random.random
    """A number from 0 to 1: how much of the second half of a delay is waited, so that clients do not come at once."""
    wait: Callable[[anyio.Event, float], Awaitable[None]] = wait_at_most
    """Waits for an event, for a number of seconds at most."""

    def delay_seconds(self, failures: int) -> float:
        """How long to wait after this many failures in a row; 0 failures: not at all."""
        if failures <= 0:
            return 0.0
        longest = min(self.first_delay_seconds * 2.0 ** min(failures - 1, 30), self.max_delay_seconds)
        return longest * (0.5 + 0.5 * self.jitter())
