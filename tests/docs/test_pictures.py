"""Pictures of the documentation show what there is: those of terminals exactly, those of the page as it was changed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.docs.terminal_pictures import PICTURES, path_of, picture_of
from tests.markdown import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ("bridge/inspector/static", ":!bridge/inspector/static/vendor")
"""Files of the inspector's page, which the pictures show."""
OF_PAGE = [*sorted((ROOT / "docs" / "command-line" / "pictures").glob("*.png")), ROOT / "docs" / "tour.gif"]
MAX_BYTES = 100_000
REMEDY = "run `make pictures`, and commit them"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"this is not a clone of the repository: {done.stderr}")
    return done.stdout.strip()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_a_terminal_shows_what_the_command_prints(name: str) -> None:
    assert path_of(name).read_text(encoding="utf-8") == picture_of(name), REMEDY


@pytest.mark.parametrize("picture", OF_PAGE, ids=lambda path: str(path.name))
def test_a_picture_of_the_page_is_newer_than_the_page(picture: Path) -> None:
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this clone has no history")
    if git("status", "--porcelain", "--", str(picture)):
        return  # it is being replaced
    taken, changed = (int(git("log", "-1", "--format=%ct", "--", *paths)) for paths in ([str(picture)], PAGE))
    assert taken >= changed, f"the page was changed after {picture.name}: {REMEDY}"


def test_pictures_are_small_and_shown_by_a_page() -> None:
    pictures = [*OF_PAGE, *map(path_of, PICTURES), ROOT / "docs" / "logo.svg"]
    assert {path.name: path.stat().st_size for path in pictures if path.stat().st_size > MAX_BYTES} == {}
    pages = [ROOT / "README.md", ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [path.name for path in pictures if path.name not in texts] == []
