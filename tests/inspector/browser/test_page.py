"""The page itself: search, keyboard, narrow and dark windows, and servers that attack it."""

from __future__ import annotations

import re
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, ClassVar

import pytest
from playwright.sync_api import expect

from bridge.cli.inspect import _private_file
from tests.inspector.browser.conftest import HOSTILE, call, choose, inspected, opened, signed_in
from tests.inspector.browser.hostile import ELSEWHERE, SCRIPT
from tests.inspector.conftest import TRAVEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

    from playwright.sync_api import Browser, Page

ITEMS = 13
"""Texts of the travel agency's page."""


def test_search_and_keyboard_lead_to_a_tool(page: Page) -> None:
    expect(page.locator(".item-link")).to_have_count(ITEMS)
    page.keyboard.press("/")
    page.keyboard.type("TIMETABLE after")
    expect(page.locator(".item-link")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="search", exact=True)).to_be_visible()
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("/")
    page.keyboard.type("book")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Book a journey", exact=True)).to_be_visible()
    page.goto(page.url.replace("/book", "/search"))
    page.get_by_label("destination").focus()
    page.keyboard.type("a/b")
    expect(page.get_by_label("destination")).to_have_value("a/b")


def test_the_page_is_opened_by_a_file_without_its_token_in_an_address(browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    with inspected(TRAVEL) as url, _private_file(url) as file_url:
        page.goto(file_url)
        expect(page.locator(".item-link")).to_have_count(ITEMS)
        assert page.url.rstrip("#/") == url.partition("/?")[0]
        page.reload()
        expect(page.locator(".item-link")).to_have_count(ITEMS)
    context.close()


def test_an_address_opens_the_page_in_one_browser(browser: Browser) -> None:
    with inspected(TRAVEL) as url:
        first, second = browser.new_context(), browser.new_context()
        page, other = first.new_page(), second.new_page()
        for _ in range(2):  # the second time with the cookie
            page.goto(url)
            expect(page.locator(".item-link")).to_have_count(ITEMS)
            assert "token" not in page.url
        response = other.goto(url)
        assert response is not None
        assert response.status == 403
        expect(other.get_by_text("this address was opened before")).to_be_visible()
        first.close()
        second.close()


@pytest.mark.parametrize("width", [340, 700, 1000])
def test_no_view_is_wider_than_its_window(browser: Browser, travel: str, width: int) -> None:
    with opened(browser, travel, viewport={"width": width, "height": 700}) as page:
        for path in ("#/", "#/tool/travel/book", "#/server/travel", "#/history", "#/traffic"):
            page.goto(travel.partition("?")[0] + path)
            expect(page.get_by_role("link", name="Traffic")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_narrow_window_has_the_list_at_the_start(browser: Browser, travel: str) -> None:
    with opened(browser, travel, viewport={"width": 400, "height": 700}) as page:
        choose(page, "distance")
        expect(page.get_by_role("navigation", name="Servers")).to_be_hidden()
        expect(page.get_by_role("heading", name="distance")).to_be_visible()
        page.get_by_role("link", name="Explore").click()
        expect(page.get_by_role("navigation", name="Servers")).to_be_visible()


def test_colours_follow_the_system(browser: Browser, travel: str) -> None:
    shades = []
    for scheme in ("light", "dark"):
        with opened(browser, travel, color_scheme=scheme) as page:
            shades.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert shades == ["rgb(255, 255, 255)", "rgb(22, 24, 29)"]


def test_the_theme_is_switched_and_kept(browser: Browser, travel: str) -> None:
    shade = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, travel, color_scheme="light") as page:
        theme = page.get_by_role("combobox", name="Theme")
        theme.select_option("dark")
        assert page.evaluate(shade) == "rgb(22, 24, 29)"
        page.reload()
        expect(theme).to_have_value("dark")
        assert page.evaluate(shade) == "rgb(22, 24, 29)"
        page.emulate_media(color_scheme="dark")
        theme.select_option("light")
        assert page.evaluate(shade) == "rgb(255, 255, 255)"
        theme.select_option("system")
        assert page.evaluate(shade) == "rgb(22, 24, 29)"


TITLED = """
from bridge import ToolAnnotations, prompt, resource, tool


@tool(title="Erase a disk", annotations=ToolAnnotations(destructive=False, idempotent=True, open_world=False))
async def erase() -> str:
    return "erased"


@resource("disk://first", title="First disk")
async def first() -> str:
    return "first"


@prompt(title="Make a plan")
async def plan() -> str:
    return "plan"
"""


def test_titles_are_beside_names_and_hints_have_their_names(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "titled.py").write_text(TITLED)
    with inspected(str(tmp_path / "titled.py")) as url, opened(browser, url) as page:
        links = page.locator(".item-link")
        expect(links).to_have_text(["erase Erase a disk", "first First disk", "plan Make a plan"])
        choose(page, "erase")
        expect(page.locator(".chips span")).to_have_text(["non-destructive", "idempotent", "closed world"])


def test_every_control_has_a_name(page: Page) -> None:
    controls = "[...document.querySelectorAll('input, select, textarea, button')]"
    unnamed = f"{controls}.filter(c => !c.labels?.length && !c.ariaLabel && !c.textContent.trim())"
    for view in ("#/tool/travel/book", "#/tool/travel/search", "#/history", "#/traffic"):
        page.goto(page.url.partition("#")[0] + view)
        expect(page.locator("main h2")).to_be_visible()
        assert page.evaluate(f"{unnamed}.length") == 0


def test_the_token_is_not_in_the_address_after_the_page_has_opened(page: Page, browser: Browser, travel: str) -> None:
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""
    context = browser.new_context()
    response = context.new_page().goto(travel.partition("?")[0])
    assert response is not None
    assert response.status == 403
    context.close()


class Listening(BaseHTTPRequestHandler):
    """Another server of this machine, which keeps the headers of requests."""

    received: ClassVar[dict[str, Message]] = {}

    def do_GET(self) -> None:
        """Answer any request with a page."""
        self.received[self.path] = self.headers
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<title>another</title>")

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def test_a_link_to_another_port_of_this_machine_gets_neither_cookie_nor_referrer(
    browser: Browser, tmp_path: Path
) -> None:
    with HTTPServer(("127.0.0.1", 0), Listening) as another:
        thread = Thread(target=another.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{another.server_port}/requests"
        program = (
            f"from bridge import tool\n\n@tool\nasync def lead() -> str:\n    return '**Go** to [it]({address})'\n"
        )
        (tmp_path / "leading.py").write_text(program)
        with inspected(str(tmp_path / "leading.py")) as url:
            context = signed_in(browser, url)
            page = context.new_page()
            page.goto(url.partition("?")[0])
            with context.expect_page() as found:
                call(page, "lead").locator(f"a[href='{address}']").click()
            expect(found.value).to_have_title("another")
            assert context.cookies()[0]["path"] == "/" + url.split("/")[3] + "/"
            context.close()
        another.shutdown()
        thread.join()
    headers = Listening.received["/requests"]
    assert (headers["cookie"], headers["referer"]) == (None, None)


def test_the_end_of_the_inspector_is_shown(browser: Browser) -> None:
    context = browser.new_context()
    with inspected(TRAVEL) as url:
        page = context.new_page()
        page.goto(url)
        expect(page.locator(".item-link").first).to_be_visible()
    expect(page.get_by_text("Connecting to the inspector…")).to_be_visible()
    context.close()


@pytest.fixture(scope="module")
def attacking() -> Iterator[str]:
    """Address of the page of the hostile server."""
    with inspected("--", sys.executable, str(HOSTILE)) as url:
        yield url


@pytest.fixture
def attacked(browser: Browser, attacking: str) -> Iterator[Page]:
    """The page of the hostile server; it has reached no other host, and no script of the server has run."""
    with opened(browser, attacking) as page:
        expect(page.locator(".item-link").first).to_be_visible()
        yield page
        assert page.evaluate("globalThis.pwned") is None
        assert page.url.startswith(attacking.partition("?")[0])


def test_texts_of_a_hostile_server_are_texts(attacked: Page) -> None:
    for index in range(attacked.locator(".sidebar a").count()):
        attacked.locator(".sidebar a").nth(index).click()
        expect(attacked.locator("main h2")).to_be_visible()
        assert attacked.locator("main script, main iframe, main [onerror], main a[href^='http']").count() == 0
    choose(attacked, "attack")
    expect(attacked.get_by_role("heading", name=SCRIPT)).to_be_visible()
    expect(attacked.locator(".description")).to_contain_text("ab⟨U+202E⟩dc⟨U+200B⟩")
    attacked.get_by_text("Definition", exact=True).click()
    expect(attacked.locator("details.definition pre")).to_contain_text("ab⟨U+202E⟩dc⟨U+200B⟩")


def test_a_hostile_schema_is_a_form_like_any_other(attacked: Page) -> None:
    choose(attacked, "attack")
    attacked.locator("textarea[aria-label='__proto__']").first.fill("a")
    expect(attacked.get_by_label("Arguments as JSON")).to_have_value(
        re.compile(r'^\{\n  "__proto__": "a",\n  "loop": \{')
    )
    assert attacked.evaluate("({}).a") is None


def test_results_of_a_hostile_server_run_nothing_and_lead_nowhere(attacked: Page) -> None:
    choose(attacked, "attack")
    attacked.get_by_label("Arguments as JSON").fill("{}")
    outcome = call(attacked, "attack")
    expect(outcome).to_contain_text("<script>pwned=1</script>")
    expect(outcome).to_contain_text("The data is not Base64.")
    expect(outcome.get_by_role("img")).to_have_count(1)
    assert outcome.locator("a:not([download])").count() == 0
    for tab in ("JSON", "Reuse"):
        outcome.get_by_role("button", name=tab).click()
    expect(outcome).to_contain_text("def test_attack() -> None:")
    for view in ("Traffic", "History"):
        attacked.get_by_role("link", name=view).click()
        attacked.locator(".row").first.click()


def test_markdown_of_a_hostile_server_runs_nothing_and_loads_nothing(attacked: Page) -> None:
    outcome = call(attacked, "markdown")
    expect(outcome.get_by_role("heading", name="<b>Title</b>")).to_be_visible()
    expect(outcome).to_contain_text("<script>pwned=1</script>")
    expect(outcome).to_contain_text("ab⟨U+202E⟩dc⟨U+200B⟩")
    links = outcome.locator("a:not([download])")
    assert [link.get_attribute("href") for link in links.all()] == [f"{ELSEWHERE}/login", f"{ELSEWHERE}/i.png"]
    assert {link.get_attribute("rel") for link in links.all()} == {"noopener noreferrer"}
    expect(outcome.locator(".target").first).to_have_text(f"{ELSEWHERE}/login")
    assert outcome.locator("img, script, iframe, [onerror]").count() == 0
    outcome.get_by_role("button", name="Text", exact=True).click()
    expect(outcome.locator("pre.text")).to_contain_text("[sign in](http://attacker.example/login)")


def test_markdown_that_takes_parsers_long_leaves_the_page_alive(attacked: Page) -> None:
    for text in ("[" * 50_000, "> " * 50_000, "*a_" * 30_000, "`" * 50_000 + "a", "|a" * 40_000 + "\n" + "|-" * 40_000):
        taken = attacked.evaluate(
            """async text => {
                const { markdown } = await import("./static/js/content/markdown.js");
                const { render } = await import("./static/js/lit.js");
                render(markdown(`**a** ${text}`), document.createElement("div"));
                return true;
            }""",
            text,
        )
        assert taken


def test_a_document_of_a_hostile_server_is_kept_apart(attacked: Page) -> None:
    attacked.locator(".item-link[href*='resource']").click()
    attacked.get_by_role("button", name="Read").click()
    assert attacked.locator("iframe").count() == 0
    attacked.get_by_role("button", name="Show as a document").click()
    expect(attacked.locator("iframe")).to_have_attribute("sandbox", "allow-scripts")
    document = attacked.frame_locator("iframe").locator("body")
    expect(document).to_contain_text("null, kept out, kept out, kept out")


def test_a_page_to_visit_of_a_hostile_server_is_no_link(attacked: Page) -> None:
    call(attacked, "ask")
    question = attacked.get_by_role("dialog")
    expect(question).to_contain_text("javascript:pwned=1")
    assert question.get_by_role("link").count() == 0
    question.get_by_role("button", name="Decline").click()
    expect(question).to_have_count(0)


def test_the_policy_stops_what_would_slip_through(browser: Browser, attacking: str) -> None:
    context = signed_in(browser, attacking)
    page = context.new_page()
    page.goto(attacking.partition("?")[0])
    for attempt in ('document.body.innerHTML = "<b>x</b>"', 'document.body.setAttribute("onclick", "pwned = 1")'):
        assert page.evaluate(f"() => {{ try {{ {attempt}; return false; }} catch {{ return true; }} }}"), attempt
    page.evaluate("() => { try { setTimeout('pwned = 1'); } catch { /* as it should be */ } }")
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.message)") == "Failed to fetch"
    assert page.evaluate("globalThis.pwned") is None
    context.close()
