"""Pictures of the inspector's page for the documentation: ``make pictures``.

Times are replaced, so that the same page gives the same picture.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from tests.browsers import launched
from tests.docs.page_files import RECORDED, page_digest
from tests.inspector.browser.conftest import call, choose, inspected, show_app, signed_in
from tests.inspector.browser.tour import take_tour
from tests.inspector.conftest import TRAVEL
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from playwright.sync_api import Browser, FloatRect, Page

BOARD = "tests/inspector/board.py"
PICTURES = ROOT / "docs" / "command-line" / "pictures"
WIDTH, HEIGHT = 1120, 720
NEUTRAL_TIMES = """
    for (const time of document.querySelectorAll("time")) time.textContent = "10:00:00.000";
    for (const figures of document.querySelectorAll(".figures"))
        figures.textContent = figures.textContent.replace(/[0-9.]+ m?s\\b/, "12 ms");
"""


@contextmanager
def shown(browser: Browser, url: str, scheme: Literal["light", "dark"] = "light") -> Iterator[Page]:
    """The page in a window of its own."""
    context = signed_in(
        browser,
        url,
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme=scheme,
        timezone_id="UTC",
        locale="en-GB",
    )
    page = context.new_page()
    page.goto(url.partition("?")[0])
    expect(page.locator(".item-link").first).to_be_visible()
    yield page
    context.close()


def take(page: Page, name: str, height: int = HEIGHT) -> None:
    """Take a picture of the upper part of a window."""
    page.evaluate(NEUTRAL_TIMES)
    clip: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": height}
    page.screenshot(path=PICTURES / f"{name}.png", clip=clip, animations="disabled", caret="hide")


def take_form(page: Page) -> None:
    """A form beside its JSON."""
    choose(page, "book")
    page.get_by_label("destination").fill("Rome")
    page.get_by_label("departure").fill("2030-05-17")
    page.get_by_role("group", name="passengers").get_by_role("button", name="Add item").click()
    page.get_by_role("textbox", name="name").fill("Ada Lovelace")
    page.get_by_role("textbox", name="age").fill("36")
    page.get_by_role("heading", name="Book a journey").click()
    take(page, "form")


def take_result(page: Page) -> None:
    """A result with its figures."""
    choose(page, "ticket")
    page.get_by_label("reference").fill("J-0517")
    outcome = call(page, "ticket")
    expect(outcome.locator("audio")).to_be_visible()
    take(page, "result")


def take_question(page: Page) -> None:
    """A question of a tool."""
    choose(page, "cancel_journey")
    page.get_by_label("reference").fill("J-0517")
    call(page, "cancel_journey")
    question = page.get_by_role("dialog")
    question.get_by_label("Reason").select_option("illness")
    take(page, "question", 660)  # without the moving bar below
    question.get_by_role("button", name="Decline").click()
    expect(question).to_have_count(0)


def take_history(page: Page) -> None:
    """A call of the history as a command and as a test."""
    choose(page, "distance")
    page.get_by_label("start").fill("Vienna")
    expect(call(page, "distance")).to_contain_text("1000")
    page.get_by_role("link", name="History").click()
    page.locator("a.row").first.click()
    page.get_by_role("button", name="Reuse").click()
    expect(page.get_by_text("As a test")).to_be_visible()
    page.evaluate(
        """root => { for (const pre of document.querySelectorAll("pre")) pre.textContent =
            pre.textContent.replaceAll(root + "/tests/inspector/", ""); }""",
        str(ROOT),
    )
    take(page, "history")


def take_traffic(page: Page) -> None:
    """Messages of both directions, in dark colours."""
    page.get_by_role("link", name="Traffic").click()
    page.get_by_label("Method").fill("tools/call")
    page.locator("button.row").first.click()
    expect(page.locator("pre")).to_contain_text("jsonrpc")
    take(page, "traffic")


def take_app(page: Page) -> None:
    """An app that asks to call a tool."""
    choose(page, "board")
    page.get_by_label("station").fill("Rome")
    show_app(call(page, "board"))
    app = page.frame_locator("iframe")
    expect(app.locator("#result")).to_have_text('{"departures":4}')
    app.get_by_role("button", name="Refresh").click()
    expect(page.get_by_role("group", name="Wish of the app")).to_be_visible()
    page.evaluate("scrollTo(0, 310)")
    take(page, "app")


CARD = """
<style>body { margin: 0; width: 1200px; height: 630px; background: #3f51b5; color: #fff;
display: grid; align-content: center;
font: 44px/1.35 "DejaVu Sans", sans-serif; padding: 0 90px; box-sizing: border-box; }
img { width: 120px; }
h1 { margin: 18px 0 10px; font-size: 76px; } p { margin: 0; }</style>
<img src="data:image/svg+xml;base64,%s"><h1>bridge</h1>
<p>Python functions as tools of every MCP client,<br>and tools of MCP servers as Python functions</p>"""


def take_card(browser: Browser) -> None:
    """Take the card of the site in messages and social networks."""
    page = browser.new_page(viewport={"width": 1200, "height": 630})
    page.set_content(CARD % b64encode((ROOT / "docs" / "logo.svg").read_bytes()).decode())
    page.screenshot(path=ROOT / "docs" / "card.png")
    page.close()


def main() -> None:
    """Take all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, launched(playwright) as browser, inspected(TRAVEL) as url:
        with shown(browser, url) as page:
            take_form(page)
            take_result(page)
            take_question(page)
            take_history(page)
        with shown(browser, url, "dark") as page:
            take_traffic(page)
        with inspected(BOARD) as boards, shown(browser, boards) as page:
            take_app(page)
        take_tour(browser)
        take_card(browser)
    RECORDED.write_text(f"{page_digest()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
