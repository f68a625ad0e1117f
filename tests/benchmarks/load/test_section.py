from __future__ import annotations

from tests.benchmarks.load.section import Section, percentiles


def test_figures_are_a_table_in_markdown() -> None:
    section = Section("Calls", "p50", "errors")
    section.add("fast", "1.00 ms", "0")
    section.add("through the SDK", "12.0 ms")
    title, blank, *rows = section.lines()
    assert title.startswith("Calls  [load average ")
    assert blank == ""
    assert rows == [
        "|                 |     p50 | errors |",
        "|-----------------|--------:|-------:|",
        "| fast            | 1.00 ms |      0 |",
        "| through the SDK | 12.0 ms |        |",
    ]


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentiles([float(each) for each in range(100, 0, -1)]) == [51.0, 91.0, 100.0]
    assert percentiles([3.0]) == [3.0, 3.0, 3.0]
