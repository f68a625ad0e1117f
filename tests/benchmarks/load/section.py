"""Section of the report: a table with a heading, and the load of the machine."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tests.benchmarks.table import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_PERCENTILES = (50, 90, 99)


class Section:
    """Table that is filled row by row; the load of the machine is read at the beginning and at the end.

    Args:
        title: The heading.
        columns: Headings of the columns.
        first: Heading of the first column. A table of the documentation that has it shows these figures.
    """

    def __init__(self, title: str, *columns: str, first: str = "") -> None:
        self._title = title
        self.first = first
        """Heading of the first column; empty for figures that no table shows as they are."""
        self.rows: list[tuple[str, ...]] = [(first, *columns)]
        """Header and rows."""
        self._load = _load()
        self.failures: list[str] = []
        """Problems that were found."""

    def add(self, name: str, *figures: str) -> None:
        """Add a row.

        Args:
            name: Name of the row.
            figures: Cells from the left; the rest is blank.
        """
        self.rows.append((name, *figures))

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
        yield from markdown(self.rows)


def store(path: Path, section: Section) -> None:
    """Write the rows of a section to a JSON file, by the heading of its first column; other sections are kept."""
    if section.first and not section.failures:
        stored: dict[str, object] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        stored[section.first] = section.rows
        path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def percentiles(seconds: Sequence[float]) -> list[float]:
    """Return the median, and the 90th and 99th percentile."""
    ordered = sorted(seconds)
    return [ordered[min(len(ordered) - 1, len(ordered) * each // 100)] for each in _PERCENTILES]


def _load() -> str:
    """Return the load average of the last minute; None if the system does not report it."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
