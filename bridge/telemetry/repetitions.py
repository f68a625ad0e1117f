"""Rate limit for repeated log lines, which counts the lines that were left out."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

QUIET_SECONDS = 10.0
"""Default minimum seconds between two lines about the same matter."""

_MAX_KEPT = 1024
_OTHERS = object()


class Repetitions:
    """Counts log lines by matter, and the ones that are left out.

    Args:
        quiet_seconds: Minimum seconds between two lines about the same matter.
        clock: Monotonic clock.
    """

    def __init__(self, quiet_seconds: float = QUIET_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._until = clock()
        self._counts: dict[Hashable, int] = {}
        self._counts_before: dict[Hashable, int] = {}

    def addition(self, *matter: Hashable) -> str | None:
        """Return a text to append to a line about a matter; None if the line is to be left out.

        Beyond 1,024 matters at once, all others count as one.
        """
        now = self._clock()
        if now >= self._until:
            self._until = now + self._quiet_seconds
            self._counts_before, self._counts = self._counts, {}
        key: Hashable = matter if matter in self._counts or len(self._counts) < _MAX_KEPT else _OTHERS
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > 1:
            return None
        omitted = self._counts_before.pop(key, 1) - 1
        return f" (and {omitted} times more before)" if omitted else ""
