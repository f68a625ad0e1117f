"""The built site in a browser, from the disk: the search finds guides, and pages are accessible in both themes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.axe import Checked, axe_source
from tests.docs.test_site import SITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(find_spec("playwright") is None, reason="`make test-browser` installs what drives a browser"),
]
TOPICS = (
    *(
        "timeout",
        "progress",
        "error",
        "resource",
        "prompt",
        "cache",
        "retry",
        "authorization",
        "login",
        "key",
        "limits",
    ),
    *("rate", "task", "gateway", "stream", "memory", "schema", "image", "docker", "redis", "testing", "logging"),
    *("header", "session", "skills", "bundle", "approval", "pin"),
)
CHECKED = (
    *("index", "quickstart", "connect/claude-desktop", "command-line/bundle", "404"),
    *("reference/api/bridge-tools", "reference/api/client", "reference/doctor", "reference/command-line"),
)
"""Pages of every kind."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the group browser

    from tests.browsers import launched  # noqa: PLC0415 - likewise

    with sync_playwright() as playwright, launched(playwright) as browser:
        yield browser


def test_the_search_works_from_the_disk_and_finds_guides_before_the_reference(browser: Browser) -> None:
    from playwright.sync_api import expect  # noqa: PLC0415 - of the group browser

    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{SITE.as_uri()}/quickstart.html")
    found = {}
    field, heading = page.locator("input.md-search__input"), page.locator(".md-search-result__meta")
    field.click()
    expect(heading).to_have_text("Type to start searching")
    for topic in TOPICS:
        field.fill("")
        expect(heading).to_have_text("Type to start searching")
        field.press_sequentially(topic)
        expect(heading).to_contain_text("matching document")
        link = page.locator(".md-search-result__link").first
        href = str(link.get_attribute("href"))
        found[topic] = href.removeprefix(f"{SITE.as_uri()}/").partition("?")[0]
    page.close()
    assert {topic: where for topic, where in found.items() if where.startswith("reference/")} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_the_pages(browser: Browser, theme: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    axe = axe_source(tmp_path_factory.mktemp("axe"))
    page = browser.new_page(color_scheme=theme, reduced_motion="reduce", viewport={"width": 1280, "height": 900})
    checked = Checked(page, axe)
    for name in CHECKED:
        page.goto(f"{SITE.as_uri()}/{name}.html")
        checked.check(name)
    page.close()
    assert checked.found == {}
