"""Limits, Rate and meters (GCRA).

The limits of one server, as its operator says them.

Rates: so many in so much time, counted by the generic cell rate algorithm (ITU-T I.371).

Capacity comes back evenly, and all of it may be used at once. A meter is one number, and asking it takes a fifth of a
microsecond; a library that does the same takes five, which is why there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import DefinitionError
from bridge.server.auth.access import matches

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOTHING: Mapping[str, Any] = {}

_WRITTEN = re.compile(r"(?P<calls>\d+)/(?P<seconds>\d+(?:\.\d+)?)")

_ROUNDING_SECONDS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one caller may take. None means without limit.

    A caller is whoever bears a key or token, by the name that it proves, and where nobody is asked for one, whoever
    comes from one address: of IPv6, one network of 64 bits.
    """

    rate: Rate | None = None
    """How many requests over HTTP, messages of SSE among them."""
    concurrency: int | None = None
    """How many calls at once, in each process, whatever became of the requests that asked for them."""
    max_streams: int | None = None
    """How many streams at once, in each process: those of sessions, of subscriptions and of SSE."""
    tool_rates: Mapping[str, Rate] = field(default_factory=lambda: _NOTHING)
    """How many calls of one tool, by its name or a pattern such as ``delete_*``; where several match, all count."""
    tool_concurrency: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """How many calls of one tool at once, likewise."""
    max_result_bytes: int | None = None
    """How long the result of one call may be, as JSON; a longer one is an error instead."""
    tool_result_bytes: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """The same of one tool, by its name or a pattern; of all that are said of a tool the smallest counts."""

    def __post_init__(self) -> None:
        counts = {"concurrency": self.concurrency, "max_streams": self.max_streams}
        counts |= {"max_result_bytes": self.max_result_bytes}
        counts |= {f"tool_concurrency[{name!r}]": count for name, count in self.tool_concurrency.items()}
        counts |= {f"tool_result_bytes[{name!r}]": count for name, count in self.tool_result_bytes.items()}
        for name, count in counts.items():
            if count is not None and count < 1:
                raise DefinitionError(f"{name} must be at least 1, or None, not {count!r}")

    def result_bytes_of(self, tool: str) -> int | None:
        """How long a result of a tool may be; None without limit."""
        most = [count for name, count in self.tool_result_bytes.items() if matches((name,), tool)]
        if self.max_result_bytes is not None:
            most.append(self.max_result_bytes)
        return min(most, default=None)

    @property
    def are_of_results(self) -> bool:
        """Whether results have to be measured."""
        return self.max_result_bytes is not None or bool(self.tool_result_bytes)

    @property
    def are_of_requests(self) -> bool:
        """Whether requests over HTTP have to be looked at."""
        return self.are_of_calls or self.rate is not None or self.max_streams is not None

    @property
    def are_of_calls(self) -> bool:
        """Whether calls have to be counted."""
        return self.concurrency is not None or bool(self.tool_rates or self.tool_concurrency)


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
