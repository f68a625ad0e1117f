"""The limits of one server, as its operator says them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError
from bridge.server.auth.access import matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.limits.rate import Rate

_NOTHING: Mapping[str, Any] = {}


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
