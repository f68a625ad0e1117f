"""The built site needs no other host, and helps readers and their tools: `make docs` builds it, and then runs this."""

from __future__ import annotations

import json
import re
import tomllib
from html import unescape
from typing import Any

import pytest

from tests.markdown import ROOT

SITE = ROOT / "site"
URL = "https://mcp-toolbridge.github.io/bridge/"
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


def documents() -> list[dict[str, Any]]:
    """The sections of the search index."""
    found: list[dict[str, Any]] = json.loads((SITE / "search" / "search_index.json").read_text("utf-8"))["docs"]
    return found


def test_the_search_ranks_guides_before_the_reference() -> None:
    boosts = {each["location"].startswith("reference/"): each.get("boost", 1) for each in documents()}
    assert boosts[True] < boosts[False]


def test_the_button_of_a_console_copies_commands_alone() -> None:
    page = (SITE / "quickstart.html").read_text("utf-8")
    copied = [unescape(each) for each in re.findall(r'data-copy="([^"]*)"', page)]
    assert any(each.startswith("bridge list tools.py") for each in copied)
    assert [each for each in copied if not each or each.startswith("$")] == []
    assert len(copied) == len(
        re.findall(r'<div class="highlight"[^>]*>(?:(?!</div>).)*?<span class="gp">', page, re.DOTALL)
    )
    (bundle,) = (SITE / "assets" / "javascripts").glob("bundle.*.js")
    assert "data-copy" in bundle.read_text("utf-8")


def test_language_models_find_every_guide() -> None:
    index, full = ((SITE / name).read_text("utf-8") for name in ("llms.txt", "llms-full.txt"))
    assert [link for link in re.findall(r"\]\((\S+)\)", index) if not (SITE / link.removeprefix(URL)).is_file()] == []
    assert full.count("\n# ") >= index.partition("## Reference")[0].count("- [") - 2
    assert "bridge doctor --client" in full


def test_a_page_has_its_neighbours_and_a_link_to_its_source() -> None:
    page = (SITE / "quickstart.html").read_text("utf-8")
    assert "md-footer__link--next" in page
    assert "https://github.com/mcp-toolbridge/bridge/edit/main/docs/quickstart.md" in page
    assert "bridge/edit/main" not in (SITE / "reference" / "doctor.html").read_text("utf-8")


def test_the_site_has_a_map_the_changelog_and_a_page_for_missing_ones() -> None:
    assert f"<loc>{URL}quickstart.html</loc>" in (SITE / "sitemap.xml").read_text("utf-8")
    assert "The first version." in (SITE / "changelog.html").read_text("utf-8")
    missing = (SITE / "404.html").read_text("utf-8")
    targets = re.findall(r'<li><a href="/bridge/([^"]+)"', missing)
    assert len(targets) == 4
    assert [target for target in targets if not (SITE / target).is_file()] == []


def test_a_page_has_a_card_for_messages_and_names_its_version() -> None:
    page = (SITE / "connect" / "cursor.html").read_text("utf-8")
    assert f'property="og:image" content="{URL}card.png"' in page
    assert 'property="og:title" content="Cursor - bridge"' in page
    assert (SITE / "card.png").is_file()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"Version {version}" in page
    assert 'href="../changelog.html"' in page
    assert "/tags" in page
