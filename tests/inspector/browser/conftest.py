"""A real browser that shows the page of ``bridge inspect``."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest

from tests import browsers
from tests.browsers import DEADLINE_SECONDS, IGNORED, mark_tests
from tests.inspector.conftest import TRAVEL
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

collect_ignore_glob = IGNORED
browser = browsers.browser
HOSTILE = Path(__file__).with_name("hostile.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    mark_tests(items, Path(__file__).parent)


@contextmanager
def inspected(*targets: str) -> Iterator[str]:
    """Run ``bridge inspect``; yields the address with its token."""
    with subprocess.Popen(
        [sys.executable, "-m", "bridge", "inspect", "--no-browser", *targets],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None
            yield found[0]
        finally:
            process.terminate()


_COOKIES: dict[str, Any] = {}
"""State of the browser that has opened each address, which opens the page only once."""


def signed_in(browser: Browser, url: str, **options: Any) -> BrowserContext:
    """A context of the browser that may open the page at its path."""
    if url not in _COOKIES:
        first = browser.new_context()
        first.new_page().goto(url)
        _COOKIES[url] = first.storage_state()
        first.close()
    context = browser.new_context(storage_state=_COOKIES[url], **options)
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    return context


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """The page in a window of its own, which has logged no error and reached no other host when it is closed."""
    context = signed_in(browser, url, permissions=["clipboard-read", "clipboard-write"], **options)
    page = context.new_page()
    origin = url.partition("/?")[0]
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("request", lambda request: _note_foreign(request.url, origin, errors))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    page.goto(f"{origin}/")
    try:
        yield page
    finally:
        context.close()
    assert errors == []


def _note_foreign(url: str, origin: str, errors: list[str]) -> None:
    frames = urljoin(origin, "/frames/")
    if not url.startswith((f"{origin}/", frames, "data:")):
        errors.append(f"requested {url}")


@pytest.fixture(scope="module")
def travel() -> Iterator[str]:
    """Address of the page of the travel agency."""
    with inspected(TRAVEL) as url:
        yield url


@pytest.fixture
def page(browser: Browser, travel: str) -> Iterator[Page]:
    """The page of the travel agency."""
    with opened(browser, travel, viewport={"width": 1200, "height": 900}) as page:
        yield page


def choose(page: Page, item: str) -> None:
    """Choose an item of the list, which may have its title beside its name, and wait until it is shown."""
    links = page.get_by_role("navigation", name="Servers")
    links.get_by_role("link", name=re.compile(rf"^{re.escape(item)}( |$)")).click()
    page.locator(".sidebar a[aria-current]", has_text=item.rpartition(" ")[2]).wait_for(state="attached")


def call(page: Page, item: str) -> Any:
    """Call a tool without arguments, or with those of its form; returns its outcome."""
    choose(page, item)
    page.get_by_role("button", name="Call", exact=True).click()
    return page.get_by_role("region", name="Outcome")


def show_app(outcome: Any) -> None:
    """Open the app of an outcome, which is shown only when the user asks for it."""
    outcome.get_by_role("button", name="App", exact=True).click()
    outcome.get_by_role("button", name="Show the app").click()


def arguments(page: Page) -> Any:
    """The JSON beside the form."""
    return page.get_by_label("Arguments as JSON")
