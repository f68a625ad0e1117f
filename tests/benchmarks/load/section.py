"""Section of the report: a table with a heading, and the load of the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.benchmarks.table import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PERCENTILES = (50, 90, 99)


class Section:
    """Table that is filled row by row; the load of the machine is read at the beginning and at the end.

    Args:
        title: The heading.
        columns: Headings of the columns.
    """

    def __init__(self, title: str, *columns: str) -> None:
        self._title = title
        self._rows: list[tuple[str, ...]] = [("", *columns)]
        self._load = _load()
        self.failures: list[str] = []
        """Problems that were found."""

    def add(self, name: str, *figures: str) -> None:
        """Add a row.

        Args:
            name: Name of the row.
            figures: Cells from the left; the rest is blank.
        """
        self._rows.append((name, *figures))

    def fail(self, reason: str) -> None:
        """Report a problem.

        Args:
            reason: Its description.
        """
        self.failures.append(reason)

    def lines(self) -> Iterator[str]:
        """Return the section as a heading and a table in Markdown, as in docs/performance.md."""
        yield f"{self._title}  [load average {self._load} before, {_load()} after]"
        yield ""
        yield from markdown(self._rows)


def percentiles(seconds: Sequence[float]) -> list[float]:
    """Return the median, and the 90th and 99th percentile."""
    ordered = sorted(seconds)
    return [ordered[min(len(ordered) - 1, len(ordered) * each // 100)] for each in _PERCENTILES]


def _load() -> str:
    """Return the load average of the last minute; None if the system does not report it."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
