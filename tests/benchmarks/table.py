"""The table at the end of the benchmarks: figures, their times, and comparisons."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_HEAD = ("", "best", "median", "p99", "server CPU", "memory", "beside")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Ratio of two times, round by round: a disturbance affects both."""

    time: float
    """Median of the rounds' ratios."""
    cpu: float | None
    """The same for processor time, which depends less on other load of the machine; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: the seconds that one unit of work takes, such as a call."""

    group: str
    """Heading of its group."""
    name: str
    """Name of the figure."""
    best_seconds: float
    median_seconds: float
    p99_seconds: float | None = None
    """None if a round is many units of work, or rounds are few."""
    cpu_seconds: float | None = None
    """Processor seconds of the server; None without a server, or if the system does not report them."""
    memory_kib: int | None = None
    """Memory of the server; None if it is not measured."""
    beside: str | None = None
    """Name of the row of the same group with which it is compared; none if that is its own, or is missing."""
    ratios: Ratios | None = None
    """Ratio to that row, if both were measured in turn."""


class Table:
    """Rows of a run, in order."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}
        self._load = _load()

    def add(self, row: Row) -> None:
        """Append a row."""
        self._rows[row.group, row.name] = row

    def write(self, path: Path) -> None:
        """Write the rows to a JSON file, by group and name; other rows in the file are kept."""
        groups: dict[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for (group, name), row in self._rows.items():
            figures = asdict(row)
            del figures["group"], figures["name"]
            groups.setdefault(group, {})[name] = _kept(figures)
        path.write_text(json.dumps(groups, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def lines(self) -> Iterator[str]:
        """Return the table as text; empty without rows."""
        if not self._rows:
            return
        groups: dict[str, list[tuple[str, ...]]] = {}
        for row in self._rows.values():
            groups.setdefault(row.group, [_HEAD]).append(self._cells(row))
        for group, cells in groups.items():
            yield from ("", group, "", *markdown(cells))
        version, machine = platform.python_version(), f"{os.cpu_count()} cores of {platform.machine()}"
        yield f"\nPython {version} on {machine}; load average {self._load} before, {_load()} after"

    def _cells(self, row: Row) -> tuple[str, ...]:
        times = (row.best_seconds, row.median_seconds, row.p99_seconds, row.cpu_seconds)
        memory = "" if row.memory_kib is None else f"{row.memory_kib / 1024:.0f} MiB"
        told = ["" if each is None else duration(each) for each in times]
        return row.name, *told, memory, self._comparison(row)

    def _comparison(self, row: Row) -> str:
        other = None if row.beside is None else self._rows.get((row.group, row.beside))
        if other is None or other is row:
            return ""
        if (ratios := row.ratios) is not None:
            cpu = "" if ratios.cpu is None else f", {_three_digits(ratios.cpu)} x in CPU"
            return f"{_three_digits(ratios.time)} x in time{cpu}, of {other.name}"
        # Of the best rounds, which are disturbed least.
        more = row.best_seconds - other.best_seconds
        times = row.best_seconds / other.best_seconds
        return f"{'-' if more < 0 else '+'}{duration(abs(more))}, {_three_digits(times)} x {other.name}"


def _kept(figures: dict[str, Any]) -> dict[str, Any]:
    """Format some figures with significant digits only."""
    return {
        name: _kept(value) if isinstance(value, dict) else float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in figures.items()
        if value is not None
    }


def duration(seconds: float) -> str:
    """Format a time with three digits and a suitable unit."""
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{_three_digits(seconds / size)} {unit}"


def _three_digits(number: float) -> str:
    whole_digits = len(str(int(number)))
    return f"{number:.{max(0, 3 - whole_digits)}f}"


def markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return a table in Markdown, header first; missing cells are blank."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    head, *lines = [_line(row, widths) for row in rows]
    yield head
    yield f"|{'-' * (widths[0] + 2)}|" + "".join(f"{'-' * (width + 1)}:|" for width in widths[1:])
    yield from lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *figures = (*cells, *[""] * (len(widths) - len(cells)))
    aligned = [figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True)]
    return f"| {' | '.join([name.ljust(widths[0]), *aligned])} |"


def _load() -> str:
    """Return the load average of the last minute; None if the system does not report it."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
