"""A real browser at the connect pages of a gateway."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.inspector.browser.conftest import DEADLINE_SECONDS, launched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

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


@pytest.fixture
def complaints() -> list[str]:
    """Complaints of the browser, such as of a violated policy."""
    return []


@pytest.fixture
def page(browser: Browser, complaints: list[str]) -> Iterator[Page]:
    """A page of somebody who has no cookies yet."""
    context = browser.new_context()
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
