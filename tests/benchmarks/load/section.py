"""A section of the report: figures of several kinds in columns, under one heading, with how busy the machine was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.benchmarks.table import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PERCENTILES = (50, 90, 99)


class Section:
    """Rows that come one by one; the load of the machine is looked at when the section begins and when it is told.

    Args:
        title: The heading.
        columns: What stands above the figures of each row.
    """

    def __init__(self, title: str, *columns: str) -> None:
        self._title = title
        self._rows: list[tuple[str, ...]] = [("", *columns)]
        self._load = _load()
        self.failures: list[str] = []
        """What is not as it should be."""

    def add(self, name: str, *figures: str) -> None:
        """Add a row.

        Args:
            name: What was measured.
            figures: One for each column, from the left; those that are left out are blank.
        """
        self._rows.append((name, *figures))

    def fail(self, reason: str) -> None:
        """Note what is not as it should be.

        Args:
            reason: What it is.
        """
        self.failures.append(reason)

    def lines(self) -> Iterator[str]:
        """The section as a heading and a table in Markdown, as docs/performance.md has it."""
        yield f"{self._title}  [load average {self._load} before, {_load()} after]"
        yield ""
        yield from markdown(self._rows)


def percentiles(seconds: Sequence[float]) -> list[float]:
    """The median, and what 90 and 99 of a hundred do not exceed."""
    ordered = sorted(seconds)
    return [ordered[min(len(ordered) - 1, len(ordered) * each // 100)] for each in _PERCENTILES]


def _load() -> str:
    """How many processes wanted a processor in the last minute, where the system tells."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
