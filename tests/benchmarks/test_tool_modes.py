"""The table of what a model reads with all tools, tool search and code mode, in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.tool_modes.__main__ import table

PAGE = Path(__file__).parents[2] / "docs" / "what-the-model-reads.md"
TOLERANCE = 0.05


def rows_of(text: str) -> dict[tuple[str, str], list[int]]:
    """Return the numbers of each row, by task and mode; without the seconds, which differ between machines."""
    found = {}
    for line in text.splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if len(cells) == 7 and cells[1] in ("`all`", "`search`", "`code`"):
            found[cells[0], cells[1]] = [int(each.replace(",", "")) for each in cells[2:6]]
    return found


@pytest.mark.slow
def test_the_documentation_has_the_measured_numbers() -> None:
    measured, documented = rows_of(table()), rows_of(PAGE.read_text("utf-8"))
    assert measured.keys() == documented.keys()
    assert len(measured) == 9
    assert all(numbers == pytest.approx(documented[key], rel=TOLERANCE) for key, numbers in measured.items())


def test_code_mode_reads_the_least_where_results_are_large() -> None:
    documented = rows_of(PAGE.read_text("utf-8"))
    task = "twelve calls with large results"
    (of_all, *_, all_read), (*_, search_read), (*_, code_read) = (
        documented[task, mode] for mode in ("`all`", "`search`", "`code`")
    )
    assert of_all > 50_000
    assert code_read < search_read < all_read
