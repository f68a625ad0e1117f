"""The table that ends a run of the benchmarks: what was measured, how long it took, and beside what."""

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
    """How many times as long one thing took as another, round beside round: what disturbs one disturbs the other."""

    time: float
    """The median of the rounds' ratios."""
    cpu: float | None
    """The same of the time for which a processor worked, which others on the machine change less; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: the seconds that one unit of work takes, such as a call."""

    group: str
    """The heading under which it stands."""
    name: str
    """What was measured."""
    best_seconds: float
    median_seconds: float
    p99_seconds: float | None = None
    """None where a round is many units of work, or rounds are few."""
    cpu_seconds: float | None = None
    """How long a processor worked for the server; None where there is none, or where the system does not tell."""
    memory_kib: int | None = None
    """How much memory the server has; None where that is not measured."""
    beside: str | None = None
    """The name of the row of the same group with which it is compared; its own, or one that is not here, is none."""
    ratios: Ratios | None = None
    """By how much it differs from that, where both were measured in turn."""


class Table:
    """The rows of a run, in the order in which they came."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}
        self._load = _load()

    def add(self, row: Row) -> None:
        """Add a row after those that are here."""
        self._rows[row.group, row.name] = row

    def write(self, path: Path) -> None:
        """Write the rows to a file of JSON, by group and name; what the file has of other rows stays there."""
        groups: dict[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for (group, name), row in self._rows.items():
            figures = asdict(row)
            del figures["group"], figures["name"]
            groups.setdefault(group, {})[name] = _kept(figures)
        path.write_text(json.dumps(groups, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def lines(self) -> Iterator[str]:
        """The table as text; nothing where nothing was measured."""
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
        # Of the best rounds: what else the machine does disturbs them least.
        more = row.best_seconds - other.best_seconds
        times = row.best_seconds / other.best_seconds
        return f"{'-' if more < 0 else '+'}{duration(abs(more))}, {_three_digits(times)} x {other.name}"


def _kept(figures: dict[str, Any]) -> dict[str, Any]:
    """What there is of some figures, with as many digits as mean something."""
    return {
        name: _kept(value) if isinstance(value, dict) else float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in figures.items()
        if value is not None
    }


def duration(seconds: float) -> str:
    """A time in the unit that suits it, with three digits."""
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{_three_digits(seconds / size)} {unit}"


def _three_digits(number: float) -> str:
    whole_digits = len(str(int(number)))
    return f"{number:.{max(0, 3 - whole_digits)}f}"


def markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown with its head first; cells that a row leaves out are blank."""
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
    """How busy the machine was in the last minute, where the system tells."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
