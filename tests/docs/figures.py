"""``python -m tests.docs.figures``: write the stored figures into charts and tables, after they were measured.

`TABLES` are the tables in the README and in docs/performance.md. A chart has no background, and colours that are
legible on light and dark pages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from tests.benchmarks import bench_peer_features, bench_peers, bench_telemetry, peers
from tests.benchmarks.load import breadth, gateway, lab
from tests.markdown import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = ROOT / "docs" / "figures"
STORED = FOLDER / "benchmarks.json"
LOADS = FOLDER / "load.json"
"""Tables that `make load` has measured, by the heading of their first column."""
TEXT, OURS, OTHERS = "#7b7f87", "#5f78e0", "#8a8078"
"""Colours of text, of bars of bridge, and of other bars."""
WIDTH, LABELS, VALUES = 800, 360, 90
BAR, STEP, TOP = 20, 30, 40
PEERS = (bench_peers.__doc__ or "").partition("\n")[0]
FEATURES = (bench_peer_features.__doc__ or "").partition("\n")[0]
OBSERVING = (bench_telemetry.__doc__ or "").partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    label: str
    value: float
    shown: str
    is_ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Bars of rows of one group, in the order in which they were measured."""

    name: str
    """Name of the file, without its suffix."""
    title: str
    group: str
    """Heading of the rows; see `tests.benchmarks.table.Row`."""
    starts_with: str = ""
    """Prefix of the rows' names; the rest of a name is the label of its bar."""
    figure: str
    """The figure of a row: a key, or keys separated by points."""
    unit: str
    """Unit of the values."""
    times: float = 1.0
    """Factor that converts a figure to the unit."""

    def bars(self, stored: dict[str, Any]) -> Iterator[Bar]:
        """Return the bars of stored figures."""
        for name, row in stored.get(self.group, {}).items():
            figure = row
            for key in self.figure.split("."):
                figure = figure.get(key) if isinstance(figure, dict) else None
            if name.startswith(self.starts_with) and figure is not None:
                label, value = name.removeprefix(self.starts_with), figure * self.times
                is_ours = label == peers.OURS or self.group == OBSERVING
                yield Bar(label, value, f"{rounded(value)} {self.unit}", is_ours)

    def svg(self, stored: dict[str, Any]) -> str:
        """Return the chart.

        Raises:
            ValueError: It has no stored figures.
        """
        bars = list(self.bars(stored))
        if not bars:
            raise ValueError(f"{STORED.name} has no figures of {self.name!r}: run `make figures`")
        scale = (WIDTH - LABELS - VALUES) / max(bar.value for bar in bars)
        parts = [_text(0, 20, self.title, 'font-weight="600"')]
        for number, bar in enumerate(bars):
            y, width = TOP + number * STEP, max(1.0, bar.value * scale)
            colour = OURS if bar.is_ours else OTHERS
            parts += [
                _text(LABELS - 10, y + 15, bar.label, 'text-anchor="end"'),
                f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
                _text(LABELS + width + 8, y + 15, bar.shown),
            ]
        height = TOP + len(bars) * STEP
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        style = f'font-family="system-ui, sans-serif" font-size="14" fill="{TEXT}">'
        return "\n".join([head + style, f"<title>{escape(self.title)}</title>", *parts, "</svg>", ""])


CHARTS = (
    Chart(
        name="http",
        title="Processor time of the server for a call over HTTP, 2026-07-28",
        group=PEERS,
        starts_with="HTTP, 2026-07-28, a call: ",
        figure="cpu_seconds",
        unit="µs",
        times=1e6,
    ),
    Chart(
        name="http-session",
        title="Processor time of the server for a call over HTTP, in a session of 2025-11-25",
        group=PEERS,
        starts_with="HTTP, 2025-11-25, a call: ",
        figure="cpu_seconds",
        unit="µs",
        times=1e6,
    ),
    Chart(
        name="stdio-start",
        title="Over stdio, from start to the first list",
        group=PEERS,
        starts_with="stdio, from start to the first list: ",
        figure="median_seconds",
        unit="ms",
        times=1e3,
    ),
    Chart(
        name="observing",
        title="Processor time of a call over HTTP, by what is switched on",
        group=OBSERVING,
        figure="ratios.cpu",
        unit="times",
    ),
)


def drawn(stored: dict[str, Any]) -> dict[Path, str]:
    """Return all charts, by file name."""
    return {FOLDER / f"{chart.name}.svg": chart.svg(stored) for chart in CHARTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of a table: one figure of each peer."""

    title: str
    group: str
    """Heading of the rows of the figures."""
    starts_with: str
    """Prefix of the rows' names; the name of a peer follows."""
    figure: str
    unit: str
    times: float

    def cells(self, stored: dict[str, Any], columns: tuple[str, ...]) -> Iterator[str]:
        """Return the title, and the figure of each peer that was measured.

        Raises:
            ValueError: Nothing was measured.
        """
        rows = stored.get(self.group, {})
        figures = [rows.get(self.starts_with + peer, {}).get(self.figure) for peer in columns]
        if not any(figures):
            raise ValueError(f"{STORED.name} has no figures of {self.title!r}: run `make figures`")
        yield self.title
        for figure in figures:
            yield "" if figure is None else f"{rounded(figure * self.times)}{self.unit and ' ' + self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresTable:
    """A table of figures of peers; the name of its first column is unique on a page."""

    page: Path
    first: str
    columns: tuple[str, ...]
    """Peers, by the names under which they were measured."""
    lines: tuple[Line, ...]

    def text(self, stored: dict[str, Any]) -> str:
        """Return the table in Markdown."""
        header = [self.first, *("FastMCP 4" if name == peers.FASTMCP else name for name in self.columns)]
        rows = [list(line.cells(stored, self.columns)) for line in self.lines]
        return "\n".join([_row(header), "|" + "---|" * len(header), *map(_row, rows)])

    def put(self, stored: dict[str, Any]) -> str:
        """Return the page with this table in place of the one that it has."""
        return _put(self.page, self.first, self.text(stored))


def _put(page: Path, first: str, table: str) -> str:
    text = page.read_text(encoding="utf-8")
    start = text.index(f"| {first} |")
    end = text.index("\n\n", start)
    return text[:start] + table + text[end:]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTable:
    """A table as `make load` has measured it."""

    page: Path
    first: str
    """Heading of its first column, by which it is stored; unique on the page."""

    def put(self, stored: dict[str, Any]) -> str:
        """Return the page with this table in place of the one that it has; unchanged if it was not measured."""
        rows = stored.get(self.first)
        if rows is None:
            return self.page.read_text(encoding="utf-8")
        head, *lines = ([*row, *[""] * (len(rows[0]) - len(row))] for row in rows)
        return _put(
            self.page, self.first, "\n".join([_row(head), "|---|" + "--:|" * (len(head) - 1), *map(_row, lines)])
        )


def rounded(value: float) -> str:
    """Format a figure with three digits."""
    shown = float(f"{value:.3g}")
    return f"{shown:,.{max(0, 3 - len(str(int(shown))))}f}"


def _row(cells: list[str]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def _seconds(title: str, starts_with: str, figure: str, unit: str) -> Line:
    times = {"µs": 1e6, "ms": 1e3}[unit]
    return Line(title=title, group=PEERS, starts_with=starts_with, figure=figure, unit=unit, times=times)


MEASURED = (
    _seconds("HTTP, 2026-07-28: processor time of a call", "HTTP, 2026-07-28, a call: ", "cpu_seconds", "µs"),
    _seconds(
        "HTTP, session of 2025-11-25: processor time of a call", "HTTP, 2025-11-25, a call: ", "cpu_seconds", "µs"
    ),
    _seconds("stdio: start to the first list", "stdio, from start to the first list: ", "median_seconds", "ms"),
    _seconds("stdio: a call", "stdio, a call: ", "median_seconds", "µs"),
    Line(
        title="stdio: resident memory",
        group=PEERS,
        starts_with="stdio, from start to the first list: ",
        figure="memory_kib",
        unit="MiB",
        times=1 / 1024,
    ),
)
KINDS = ("call", "read", "read by template", "prompt", "list")
TABLES = (
    FiguresTable(
        page=ROOT / "README.md",
        first="measured",
        columns=(peers.OURS, peers.OFFICIAL, peers.FASTMCP),
        lines=MEASURED,
    ),
    FiguresTable(
        page=ROOT / "docs" / "performance.md",
        first="measured",
        columns=(peers.OURS, peers.OFFICIAL, peers.FASTMCP, peers.ROUTE),
        lines=MEASURED,
    ),
    FiguresTable(
        page=ROOT / "docs" / "performance.md",
        first="one kind at a time",
        columns=(peers.OURS, peers.OFFICIAL, peers.FASTMCP, peers.LIMIT),
        lines=tuple(
            Line(
                title=f"a {kind}",
                group=FEATURES,
                starts_with=f"HTTP, 2026-07-28, a {kind}: ",
                figure="cpu_seconds",
                unit="",
                times=1e6,
            )
            for kind in KINDS
        ),
    ),
)


_PERFORMANCE = ROOT / "docs" / "performance.md"
LOAD_TABLES = (
    *(LoadTable(page=_PERFORMANCE, first=heading) for heading in lab.HEADINGS),
    LoadTable(page=_PERFORMANCE, first=breadth.HEADING),
    *(LoadTable(page=_PERFORMANCE, first=heading) for heading in gateway.HEADINGS),
    LoadTable(page=ROOT / "docs" / "deploying" / "scale.md", first="in Redis"),
)


def main() -> None:
    """Write the charts and the tables."""
    loads = json.loads(LOADS.read_text(encoding="utf-8"))
    for load in LOAD_TABLES:
        load.page.write_text(load.put(loads), encoding="utf-8")
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    for path, svg in drawn(stored).items():
        path.write_text(svg, encoding="utf-8")
    for table in TABLES:
        table.page.write_text(table.put(stored), encoding="utf-8")


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}"{" " + more if more else ""}>{escape(words)}</text>'


if __name__ == "__main__":
    main()
