from __future__ import annotations

from tests.benchmarks.load.section import Section, percentiles


def test_figures_stand_right_aligned_under_their_columns() -> None:
    section = Section("Calls", "p50", "errors")
    section.add("fast", "1.00 ms", "0")
    section.add("through the SDK", "12.0 ms")
    title, *rows = section.lines()
    assert title.startswith("Calls  [load average ")
    assert rows == [
        "                       p50  errors",
        "  fast             1.00 ms       0",
        "  through the SDK  12.0 ms",
    ]


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentiles([float(each) for each in range(100, 0, -1)]) == [51.0, 91.0, 100.0]
    assert percentiles([3.0]) == [3.0, 3.0, 3.0]
