"""A real browser for tests of pages, which `make test-browser` runs: what their folders share."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Playwright

IGNORED = [] if find_spec("playwright") else ["test_*.py"]
"""The tests of a folder, unless `make test-browser` has installed what they need; its ``collect_ignore_glob``."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_SECONDS = 60


def mark_tests(items: list[pytest.Item], folder: Path) -> None:
    """Mark the tests of a folder; they need a browser."""
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.browser)


@contextmanager
def launched(playwright: Playwright) -> Iterator[Browser]:
    """Chromium without a window."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    assert program is not None, "there is no Chromium; `make test-browser` installs it"
    is_root = sys.platform != "win32" and os.geteuid() == 0  # its sandbox needs another user
    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"] if is_root else [])
    yield browser
    browser.close()


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


@contextmanager
def new_page(browser: Browser, complaints: list[str], **options: Any) -> Iterator[Page]:
    """A page of somebody who has no cookies yet."""
    context = browser.new_context(**options)
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
