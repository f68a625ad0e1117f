"""Places that callers share: a bounded number, of which nobody can take all that others need."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Shares:
    """Counts the places that each caller has taken.

    A caller may take as many as are free afterwards (dynamic thresholds, Choudhury and Hahne 1998): one caller alone
    gets half of them, each of two callers a third.

    Args:
        places: Number of places, or of bytes.
    """

    __slots__ = ("_taken_by", "places", "taken")

    def __init__(self, places: int) -> None:
        self.places = places
        self.taken = 0
        """Places that are taken now."""
        self._taken_by: Counter[str] = Counter()

    def has_room(self, caller: str, wanted: int = 1) -> bool:
        """Whether a caller may take more.

        Args:
            caller: The caller's account; empty for the only caller of a process, who may take all.
            wanted: Number of places.
        """
        return self.taken + wanted + (self._taken_by[caller] if caller else 0) <= self.places

    def take(self, caller: str, count: int = 1) -> None:
        """Count places as taken, whether there is room or not."""
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
        """The time during which places are taken."""
        self.take(caller, count)
        try:
            yield
        finally:
            self.give_back(caller, count)

    @contextmanager
    def growing(self, caller: str) -> Iterator[Callable[[int], bool]]:
        """The time during which places are taken bit by bit; gives what takes some, if there is room."""
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
