"""A real browser at the page of the administration."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.admin.board import board
from tests.inspector.browser.conftest import DEADLINE_SECONDS, launched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.admin.board import Board

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]
"""Skip the tests unless `make test-browser` has installed what they need."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; they need a browser."""
    folder = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of all tests."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the group browser

    with sync_playwright() as playwright, launched(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A gateway that the tests of a module share."""
    profiles = {"default": {}, "some": {"include": ["tools_add"]}}
    with board(tmp_path_factory.mktemp("gateway"), profiles=profiles) as running:
        yield running


@pytest.fixture
def complaints() -> list[str]:
    """Complaints of the browser, such as of a violated policy."""
    return []


@pytest.fixture
def page(browser: Browser, complaints: list[str], gateway: Board) -> Iterator[Page]:
    """The page, before the key is given."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{gateway.admin_origin}/admin/")
    yield page
    context.close()
