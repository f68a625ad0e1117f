"""Shares of a bounded resource, of which no caller can take everything, and turns at it."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


class Shares:
    """Counts the places that each caller has taken.

    A caller may take as many places as stay free (dynamic thresholds, Choudhury and Hahne 1998): a single caller gets
    half of them, each of two callers a third.
    """

    __slots__ = ("_taken_by", "places", "taken")

    def __init__(self, places: int) -> None:
        self.places = places
        self.taken = 0
        """Number of taken places."""
        self._taken_by: Counter[str] = Counter()

    def has_room(self, caller: str, wanted: int = 1) -> bool:
        """Return True if a caller may take more places; the only caller of a process, ``""``, may take all."""
        return self.taken + wanted + (self._taken_by[caller] if caller else 0) <= self.places

    def take(self, caller: str, count: int = 1) -> None:
        """Count places as taken, even if there is no room."""
        self.taken += count
        self._taken_by[caller] += count

    def give_back(self, caller: str, count: int = 1) -> None:
        """Count places as free again."""
        self.taken -= count
        self._taken_by[caller] -= count
        if not self._taken_by[caller]:
            del self._taken_by[caller]

    @contextmanager
    def taking(self, caller: str, count: int = 1) -> Iterator[None]:
        """Context in which places are taken."""
        self.take(caller, count)
        try:
            yield
        finally:
            self.give_back(caller, count)

    @contextmanager
    def growing(self, caller: str) -> Iterator[Callable[[int], bool]]:
        """Context in which places are taken; yields a function that takes some, and returns False without room."""
        taken = 0

        def take(count: int) -> bool:
            nonlocal taken
            if not self.has_room(caller, count):
                return False
            self.take(caller, count)
            taken += count
            return True

        try:
            yield take
        finally:
            self.give_back(caller, taken)


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
