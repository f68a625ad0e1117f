"""Repetitions: what is said again and again is said once in a while, with how often it was not said."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

QUIET_SECONDS = 10.0
"""How often, at most, the same is said."""

_MAX_KEPT = 1024
_OTHERS = object()


class Repetitions:
    """Counts what is not said.

    Args:
        quiet_seconds: How often, at most, the same is said.
        clock: Gives the time in seconds.
    """

    def __init__(self, quiet_seconds: float = QUIET_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._until = clock()
        self._counts: dict[Hashable, int] = {}
        self._counts_before: dict[Hashable, int] = {}

    def addition(self, *matter: Hashable) -> str | None:
        """What to add to a line of the log about a matter; None where the line is to be left out.

        Beyond a thousand matters at once, all others are one.
        """
        now = self._clock()
        if now >= self._until:
            self._until = now + self._quiet_seconds
            self._counts_before, self._counts = self._counts, {}
        key: Hashable = matter if matter in self._counts or len(self._counts) < _MAX_KEPT else _OTHERS
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > 1:
            return None
        unsaid = self._counts_before.pop(key, 1) - 1
        return f" (and {unsaid} times more before)" if unsaid else ""
