from __future__ import annotations

import pytest

from tests.benchmarks.table import Ratios, Row, Table, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.234, "1.23 s"),
        (0.0123, "12.3 ms"),
        (5e-5, "50.0 µs"),
        (1.4e-6, "1.40 µs"),
        (1.2e-7, "120 ns"),
        (0, "0.00 ns"),
    ],
)
def test_a_time_has_three_digits_and_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rows_stand_under_their_group_beside_what_they_are_compared_with() -> None:
    table = Table()
    table.add(Row(group="Calls", name="bare", best_seconds=1e-6, median_seconds=2e-6, beside="bare"))
    table.add(
        Row(
            group="Calls",
            name="tool",
            best_seconds=4e-6,
            median_seconds=5e-6,
            p99_seconds=9e-6,
            cpu_seconds=3e-6,
            memory_kib=17 * 1024,
            beside="bare",
        )
    )
    table.add(Row(group="Starts", name="empty", best_seconds=1, median_seconds=1, beside="not measured"))
    assert "\n".join(table.lines()).splitlines()[:-2] == [
        "",
        "Calls",
        "",
        "|      |    best |  median |     p99 | server CPU | memory |                beside |",
        "|------|--------:|--------:|--------:|-----------:|-------:|----------------------:|",
        "| bare | 1.00 µs | 2.00 µs |         |            |        |                       |",
        "| tool | 4.00 µs | 5.00 µs | 9.00 µs |    3.00 µs | 17 MiB | +3.00 µs, 4.00 x bare |",
        "",
        "Starts",
        "",
        "|       |   best | median | p99 | server CPU | memory | beside |",
        "|-------|-------:|-------:|----:|-----------:|-------:|-------:|",
        "| empty | 1.00 s | 1.00 s |     |            |        |        |",
    ]


def test_what_was_measured_in_turn_is_compared_round_by_round() -> None:
    table = Table()
    table.add(Row(group="Calls", name="bare", best_seconds=1e-6, median_seconds=2e-6))
    ratios = Ratios(time=1.05, cpu=0.95)
    table.add(Row(group="Calls", name="tool", best_seconds=1e-6, median_seconds=2e-6, beside="bare", ratios=ratios))
    assert " 1.05 x in time, 0.95 x in CPU, of bare" in "\n".join(table.lines())


def test_without_rows_there_is_no_table() -> None:
    assert list(Table().lines()) == []
