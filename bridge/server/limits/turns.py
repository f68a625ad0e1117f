"""Turns at a bounded resource, for which callers wait without delaying each other."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Turns:
    """Places that callers wait for; whatever one caller does, places stay free for others.

    Args:
        places: Number of places.
        places_of_one: Number of places of one caller.
    """

    def __init__(self, places: int, places_of_one: int) -> None:
        self._all = anyio.CapacityLimiter(places)
        self._places_of_one = places_of_one
        self._of: WeakValueDictionary[str, anyio.CapacityLimiter] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, caller: str) -> AsyncIterator[None]:
        """Wait for a place, and take it in this context."""
        own = self._of.get(caller)
        if own is None:
            own = self._of[caller] = anyio.CapacityLimiter(self._places_of_one)
        async with own, self._all:
            yield
