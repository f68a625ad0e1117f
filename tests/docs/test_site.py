"""The built site needs no other host: `make docs` builds it, and then runs this."""

from __future__ import annotations

import re

import pytest

from tests.markdown import ROOT

SITE = ROOT / "site"
PAGES = sorted(SITE.rglob("*.html"))
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|icon|preconnect|dns-prefetch))[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
IMPORTED = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)")

pytestmark = pytest.mark.docs


def test_no_page_loads_anything_from_another_host() -> None:
    assert PAGES, "run `make docs`"
    assert [(page.name, found.group()) for page in PAGES for found in LOADED.finditer(page.read_text("utf-8"))] == []


def test_no_style_sheet_loads_anything_from_another_host() -> None:
    sheets = sorted(SITE.rglob("*.css"))
    assert sheets
    assert [(sheet.name, found[1]) for sheet in sheets for found in IMPORTED.finditer(sheet.read_text("utf-8"))] == []


def test_the_search_index_is_local_and_covers_the_reference() -> None:
    assert "bridge.McpToolProvider" in (SITE / "search" / "search_index.json").read_text("utf-8")
