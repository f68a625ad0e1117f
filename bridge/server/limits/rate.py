"""Rates: so many in so much time, counted by the generic cell rate algorithm (ITU-T I.371).

Capacity comes back evenly, and all of it may be used at once. A meter is one number, and asking it takes a fifth of a
microsecond; a library that does the same takes five, which is why there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from bridge.errors import DefinitionError

_WRITTEN = re.compile(r"(?P<calls>\d+)/(?P<seconds>\d+(?:\.\d+)?)")
_ROUNDING_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so much time."""

    calls: int
    """How many."""
    per_seconds: float
    """In how much time."""

    def __post_init__(self) -> None:
        if self.calls < 1 or self.per_seconds <= 0:
            raise DefinitionError(f"a rate is at least 1 in more than 0 seconds, not {self.calls}/{self.per_seconds:g}")

    @classmethod
    def read(cls, text: str) -> Rate:
        """A rate as it is written: ``100/60`` for a hundred in a minute.

        Raises:
            DefinitionError: It is not written like that.
        """
        found = _WRITTEN.fullmatch(text.strip())
        if found is None:
            raise DefinitionError(f"a rate is written N/SECONDS, such as 100/60, not {text!r}")
        return cls(int(found["calls"]), float(found["seconds"]))

    def __str__(self) -> str:
        return f"{self.calls} in {self.per_seconds:g} s"


class Meter:
    """How much of a rate is used. It knows no clock: whoever asks says when it is, by one that never goes back.

    Args:
        rate: The rate.
    """

    __slots__ = ("_due", "_interval", "_leeway")

    def __init__(self, rate: Rate) -> None:
        self._interval = rate.per_seconds / rate.calls
        self._leeway = rate.per_seconds - self._interval + _ROUNDING_SECONDS
        self._due = 0.0

    def wait_seconds(self, now: float) -> float:
        """How long until one more is within the rate; 0 or less where it is at once."""
        return self._due - self._leeway - now

    def count(self, now: float) -> None:
        """One more."""
        self._due = max(self._due, now) + self._interval

    def is_unused(self, now: float) -> bool:
        """Whether nothing that was counted matters any more."""
        return self._due <= now


class MakeMeter(Protocol):
    """Makes the meter of a rate: for one process, or for several that count together."""

    def __call__(self, *of: str, rate: Rate) -> Meter:
        """A meter.

        Args:
            of: Of whom and what it is, so that processes that count together mean the same one.
            rate: The rate.
        """
        ...


def local_meter(*_: str, rate: Rate) -> Meter:
    """A meter of this process alone (`MakeMeter`)."""
    return Meter(rate)
