"""Accessibility of all views in both themes, by the rules of axe-core, which npm fetches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.axe import Checked, axe_source
from tests.inspector.browser.conftest import call, choose, inspected, opened
from tests.inspector.conftest import TRAVEL

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Source of axe-core."""
    return axe_source(tmp_path_factory.mktemp("axe"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_any_view(browser: Browser, axe: str, theme: Any) -> None:
    broken = ("--", "python", "-c", "raise SystemExit('no key')")
    options: Any = {"color_scheme": theme, "reduced_motion": "reduce"}
    with inspected(TRAVEL, *broken) as url, opened(browser, url, **options) as page:
        checked, path = Checked(page, axe), url.partition("?")[0]
        expect(page.locator(".card .error")).to_be_visible()
        checked.check("start")
        choose(page, "book")
        page.get_by_role("group", name="passengers").get_by_role("button", name="Add item").click()
        page.get_by_role("button", name="Call", exact=True).click()
        expect(page.locator(".missing").first).to_be_visible()
        checked.check("form with missing values")
        choose(page, "delay")
        page.get_by_label("train").fill("X")
        expect(call(page, "delay")).to_contain_text("Failed")
        checked.check("error")
        choose(page, "ticket")
        page.get_by_label("reference").fill("J")
        outcome = call(page, "ticket")
        expect(outcome.get_by_role("img")).to_be_visible()
        for tab in ("Result", "JSON", "Reuse"):
            outcome.get_by_role("button", name=tab).click()
            checked.check(f"{tab} of a result")
        choose(page, "guide")
        page.get_by_label("city").fill("Rome")
        expect(call(page, "guide").locator("strong").first).to_be_visible()
        checked.check("Markdown")
        choose(page, "cancel_journey")
        page.get_by_label("reference").fill("J")
        call(page, "cancel_journey")
        question = page.get_by_role("dialog")
        expect(question).to_be_visible()
        checked.check("question")
        question.get_by_role("button", name="Later").click()
        checked.check("badge")
        page.get_by_role("button", name="1 question").click()
        question.get_by_role("button", name="Decline").click()
        for view in ("#/server/travel", "#/new-server", "#/edit-server/travel", "#/history/1", "#/compare/1/2"):
            page.goto(path + view)
            expect(page.locator("main h2").first).to_be_visible()
            checked.check(view)
        page.goto(f"{path}#/traffic")
        page.locator("button.row").first.click()
        expect(page.locator("main pre")).to_contain_text("jsonrpc")
        checked.check("traffic")
        assert [f"{view}: {each}" for view, found in checked.found.items() for each in found] == []
