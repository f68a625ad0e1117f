"""The charts show the stored figures, and are legible on light and dark pages."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from tests.docs.figures import (
    CHARTS,
    FOLDER,
    LOAD_TABLES,
    LOADS,
    STORED,
    TABLES,
    TEXT,
    FiguresTable,
    LoadTable,
    drawn,
)
from tests.markdown import ROOT, Document

WRITE = "run `python -m tests.docs.figures`"
PAGE = Document(ROOT / "docs" / "performance.md")
BACKGROUNDS = ("#ffffff", "#1e2129")
"""Background colours of the documentation's two schemes."""
MIN_CONTRAST = 3.0
"""Minimum contrast of graphics by WCAG 2.2."""
MIN_CONTRAST_OF_WORDS = 3.9
"""Minimum contrast of text; a colour can have 4.03 at most on both pages."""


def test_the_charts_are_those_of_the_stored_figures_and_stand_on_the_page() -> None:
    charts = drawn(json.loads(STORED.read_text(encoding="utf-8")))
    assert {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")} == charts, WRITE
    assert {f"figures/{path.name}" for path in charts} <= set(PAGE.links())


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.page.name} {table.first}")
def test_the_tables_have_the_stored_figures(table: FiguresTable) -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert table.put(stored) == table.page.read_text(encoding="utf-8"), WRITE


@pytest.mark.parametrize("table", LOAD_TABLES, ids=lambda table: f"{table.page.name} {table.first}")
def test_the_tables_of_loads_have_the_stored_figures(table: LoadTable) -> None:
    stored = json.loads(LOADS.read_text(encoding="utf-8"))
    assert table.first in stored, "run `make load` with this part"
    assert table.put(stored) == table.page.read_text(encoding="utf-8"), WRITE


def test_a_table_of_what_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="has no figures of 'HTTP, 2026-07-28: processor time of a call'"):
        TABLES[0].text({})


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_every_colour_of_a_chart_stands_out_from_the_page(background: str) -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    colours = {colour for svg in drawn(stored).values() for colour in re.findall(r'fill="(#\w{6})"', svg)}
    assert TEXT in colours
    assert [colour for colour in colours if contrast(colour, background) < MIN_CONTRAST] == []
    assert contrast(TEXT, background) >= MIN_CONTRAST_OF_WORDS


def test_bars_are_as_long_as_their_values_and_words_are_escaped() -> None:
    chart = CHARTS[0]
    names = {chart.starts_with + name: {"cpu_seconds": value * 1e-6} for name, value in (("a <b>", 100), ("c", 25))}
    drawing = ET.fromstring(chart.svg({chart.group: names}))
    lengths = [float(each.attrib["width"]) for each in drawing.iter("{http://www.w3.org/2000/svg}rect")]
    assert lengths[0] == pytest.approx(4 * lengths[1], rel=0.01)
    words = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert words == [chart.title, "a <b>", "100 µs", "c", "25.0 µs"]


def test_a_chart_of_what_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="has no figures of 'http': run `make figures`"):
        CHARTS[0].svg({})


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG 2.2 defines it."""
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
