"""Pictures of the documentation show what there is: those of terminals exactly, those of the page as it is."""

from __future__ import annotations

import pytest

from tests.docs.page_files import RECORDED, page_digest
from tests.docs.terminal_pictures import PICTURES, path_of, picture_of
from tests.markdown import ROOT

OF_PAGE = [*sorted((ROOT / "docs" / "command-line" / "pictures").glob("*.png")), ROOT / "docs" / "tour.gif"]
MAX_BYTES = 100_000
REMEDY = "run `make pictures`, and commit them"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_a_terminal_shows_what_the_command_prints(name: str) -> None:
    assert path_of(name).read_text(encoding="utf-8") == picture_of(name), REMEDY


def test_pictures_of_the_page_are_of_the_page_as_it_is() -> None:
    assert RECORDED.read_text(encoding="utf-8").strip() == page_digest(), f"the page was changed: {REMEDY}"


def test_pictures_are_small_and_shown_by_a_page() -> None:
    pictures = [*OF_PAGE, *map(path_of, PICTURES), ROOT / "docs" / "logo.svg"]
    assert {path.name: path.stat().st_size for path in pictures if path.stat().st_size > MAX_BYTES} == {}
    pages = [ROOT / "README.md", ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [path.name for path in pictures if path.name not in texts] == []
