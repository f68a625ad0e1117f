"""The documentation is true: every block of every page is run, and links lead somewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.walkthrough import Walkthrough
from tests.markdown import ROOT, Document, codes

if TYPE_CHECKING:
    from pathlib import Path

OUTSIDE = ("README.md", "CONTRIBUTING.md")
"""Pages that are not on the site."""
CHANGELOG = "changelog.md"
"""Page that the site makes of the changelog."""
PAGES = [Document(path) for path in [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in OUTSIDE)]]
GENERATED = "docs/reference/"
WITH_CODE = [page for page in PAGES if page.all_blocks and not repr(page).startswith(GENERATED)]
ADDRESS = re.compile(r"https?://")
OWN_PATH = re.compile(r"(bridge|docs|examples|servers|tests)/[\w./-]*")


@pytest.mark.parametrize("page", WITH_CODE, ids=repr)
def test_a_page_does_what_it_shows(page: Document, tmp_path: Path) -> None:
    with Walkthrough(page, tmp_path) as reader:
        reader.follow()


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_every_fence_is_a_block_that_is_known(page: Document) -> None:
    fences = re.findall(r"^ *```", page.text, re.MULTILINE)
    assert len(fences) == 2 * len([block for block in page.all_blocks if not block.is_comment])


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_links_lead_to_a_file_and_a_heading(page: Document) -> None:
    for link in page.links():
        if ADDRESS.match(link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        assert target.is_file(), link
        if anchor and not repr(Document(target)).startswith(GENERATED):
            assert anchor in Document(target).anchors(), link


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_a_path_of_the_checkout_that_a_page_names_exists(page: Document) -> None:
    for code in codes(page.prose):
        if OWN_PATH.fullmatch(code):
            assert (ROOT / code).exists(), code


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"(?:: |- )([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted({repr(page).removeprefix("docs/") for page in PAGES} - {*OUTSIDE} | {CHANGELOG})


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_no_command_shows_an_ellipsis_alone(page: Document) -> None:
    assert [command.line for command in page.commands() if command.shown == ("…",)] == []
