"""Apps of servers in their frames: the protocol between them and the page, and what they cannot reach."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.inspector.browser.conftest import call, choose, inspected, opened, show_app, signed_in
from tests.interop.packages import EXT_APPS_VERSION, npm_package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, FrameLocator, Page, Route

BOARD = "tests/inspector/board.py"


@pytest.fixture(scope="module")
def boards() -> Iterator[str]:
    """Address of the page of the server with apps."""
    with inspected(BOARD) as url:
        yield url


@pytest.fixture
def page(browser: Browser, boards: str) -> Iterator[Page]:
    """The page of the server with apps."""
    with opened(browser, boards, viewport={"width": 1200, "height": 1000}, color_scheme="light") as page:
        yield page


@pytest.fixture
def app(page: Page) -> FrameLocator:
    """The board, which has received its call."""
    choose(page, "board")
    page.get_by_label("station").fill("Rome")
    show_app(call(page, "board"))
    app = page.frame_locator("iframe")
    expect(app.locator("#result")).to_have_text('{"departures":4}')
    return app


def test_an_app_receives_the_call_that_it_belongs_to(page: Page, app: FrameLocator) -> None:
    expect(app.locator("#input")).to_have_text('{"arguments":{"station":"Rome"}}')
    expect(app.locator("#theme")).to_have_text('"light"')
    expect(page.get_by_text("It declares no domains.")).to_be_visible()
    expect(page.locator("iframe")).to_have_attribute("height", "411")
    expect(page.locator("iframe")).to_have_attribute("sandbox", "allow-scripts allow-forms")
    page.emulate_media(color_scheme="dark")
    expect(app.locator("#theme")).to_have_text('"dark"')


def test_an_app_that_declares_no_domain_is_loaded_only_when_the_user_asks_for_it(page: Page) -> None:
    choose(page, "board")
    page.get_by_label("station").fill("Rome")
    call(page, "board").get_by_role("button", name="App", exact=True).click()
    expect(page.get_by_text("(preconnect, WebRTC)")).to_be_visible()
    assert page.locator("iframe").count() == 0
    page.get_by_role("button", name="Show the app").click()
    expect(page.frame_locator("iframe").locator("#result")).to_have_text('{"departures":4}')


def test_an_app_does_not_learn_the_path_of_the_page(page: Page, app: FrameLocator) -> None:
    expect(app.locator("#result")).to_be_visible()
    path = page.url.split("/")[3]
    assert len(path) > 40
    frame = page.frames[1]
    assert frame.url.split("/")[3] == "frames"
    assert path not in frame.evaluate("location.href + document.referrer")


def test_an_app_calls_a_tool_only_with_consent(page: Page, app: FrameLocator) -> None:
    wish = page.get_by_role("group", name="Wish of the app")
    app.get_by_role("button", name="Refresh").click()
    expect(wish).to_contain_text("The app wants to call refresh")
    expect(wish).to_contain_text("platform")
    wish.get_by_role("button", name="Refuse").click()
    expect(app.locator("#answer")).to_have_text('{"code":-32000,"message":"the user refused"}')
    app.get_by_role("button", name="Refresh").click()
    wish.get_by_role("button", name="Allow once").click()
    expect(app.locator("#answer")).to_contain_text("platform 3: 08:15")
    app.get_by_role("button", name="Read").click()
    wish.get_by_role("button", name="Always in this app").click()
    expect(app.locator("#answer")).to_contain_text("mind the gap")
    app.get_by_role("button", name="Refresh").click()
    wish.get_by_role("button", name="Always in this app").click()
    expect(app.locator("#answer")).to_contain_text("platform 3: 08:15")
    app.get_by_role("button", name="Read").click()
    expect(app.locator("#answer")).to_contain_text("mind the gap")
    expect(wish).to_have_count(0)


def test_an_app_cannot_call_a_tool_that_is_not_for_apps(page: Page, app: FrameLocator) -> None:
    app.get_by_role("button", name="Buy").click()
    expect(app.locator("#answer")).to_contain_text('"code":-32602')
    app.get_by_role("button", name="Odd").click()
    expect(app.locator("#answer")).to_contain_text('"code":-32601')
    expect(page.get_by_role("group", name="Wish of the app")).to_have_count(0)


def test_a_link_of_an_app_is_opened_by_the_user(browser: Browser, boards: str) -> None:
    context = signed_in(browser, boards)  # which may reach what the user opens
    context.route("https://trains.example/**", lambda route: route.fulfill(body="trains"))
    page = context.new_page()
    page.goto(boards.partition("?")[0])
    choose(page, "board")
    page.get_by_label("station").fill("Rome")
    show_app(call(page, "board"))
    page.frame_locator("iframe").get_by_role("button", name="Open").click()
    wish = page.get_by_role("group", name="Wish of the app")
    expect(wish).to_contain_text("https://trains.example/board")
    with context.expect_page() as found:
        wish.get_by_role("button", name="Open").click()
    assert found.value.evaluate("[location.href, opener]") == ["https://trains.example/board", None]
    expect(page.frame_locator("iframe").locator("#answer")).to_have_text("{}")
    context.close()


def test_messages_of_an_app_are_shown_and_its_end_is_announced(page: Page, app: FrameLocator) -> None:
    app.get_by_role("button", name="Tell").click()
    expect(page.get_by_text("Platform 3 was chosen.").first).to_be_visible()
    page.get_by_text("Messages of the app").click()
    expect(page.locator(".app li").first).to_contain_text("ui/initialize")
    posted = page.evaluate_handle(
        "() => { const got = []; addEventListener('message', e => got.push(e.data)); return got; }"
    )
    page.get_by_role("button", name="Result", exact=True).click()
    expect(page.locator("iframe")).to_have_count(0)
    assert posted.evaluate("got => got.map(({ id, result }) => [id, result])") == [["teardown-1", {}]]
    show_app(page)
    expect(page.frame_locator("iframe").locator("#result")).to_have_text('{"departures":4}')


def test_the_extension_is_declared_and_what_is_no_app_is_an_error(browser: Browser, boards: str) -> None:
    context = signed_in(browser, boards)  # whose console says that the app was not found
    page = context.new_page()
    page.goto(boards.partition("?")[0])
    outcome = call(page, "broken")
    expect(outcome).to_contain_text("io.modelcontextprotocol/ui")
    outcome.get_by_role("button", name="App", exact=True).click()
    expect(outcome).to_contain_text("the resource is no app")
    context.close()


def test_a_hostile_app_reaches_nothing_but_the_domains_that_the_user_has_seen(browser: Browser, boards: str) -> None:
    context = signed_in(browser, boards)
    reached: list[str] = []

    def answer(route: Route) -> None:
        reached.append(route.request.url)
        route.fulfill(body="reached", headers={"access-control-allow-origin": "*"})

    context.route(re.compile(r"^(https|wss)://"), answer)
    page, origin = context.new_page(), boards.partition("?")[0]
    page.goto(origin)
    outcome = call(page, "spy")
    outcome.get_by_role("button", name="App", exact=True).click()
    expect(outcome).to_contain_text("It may connect to https://api.example")
    expect(outcome).to_contain_text("It may ask for: clipboardWrite.")
    expect(outcome.locator(".warning")).to_contain_text("https://x.example; script-src *")
    assert page.locator("iframe").count() == 0
    with page.expect_event("framenavigated", lambda frame: frame.url.startswith("chrome-error:")):
        page.get_by_role("button", name="Show the app").click()
    expect(page.locator("iframe")).to_have_attribute("allow", "clipboard-write *")
    expect(outcome.locator(".app")).to_contain_text("null,api")  # its origin, and what it has reached
    assert reached == ["https://api.example/x"]
    assert page.evaluate("globalThis.pwned") is None
    assert page.url.startswith(origin)
    context.close()


SDK_SERVER = """
from pathlib import Path

from bridge import resource, tool


@tool(metadata={"ui": {"resourceUri": "ui://sdk"}})
async def weather(city: str) -> dict[str, str]:
    return {"sky": f"clear in {city}"}


@tool
async def forecast(days: int) -> str:
    return f"{days} days of sun"


@resource("ui://sdk", mime_type="text/html;profile=mcp-app")
async def page() -> str:
    return Path(__file__).with_name("app.html").read_text()
"""
SDK_APP = """<!doctype html>
<p id="input"></p><p id="result"></p><p id="host"></p><p id="answer"></p><button>More</button>
<script type="module">SDK
    const say = (id, value) => (document.getElementById(id).textContent = JSON.stringify(value));
    const app = new App({ name: "weather", version: "1" }, {});
    app.ontoolinput = (params) => say("input", params.arguments);
    app.ontoolresult = (result) => say("result", result.structuredContent);
    app.onteardown = async () => ({});
    document.querySelector("button").onclick = async () =>
        say("answer", (await app.callServerTool({ name: "forecast", arguments: { days: 2 } })).content[0].text);
    await app.connect();
    say("host", [app.getHostVersion().name, app.getHostContext().displayMode]);
    await app.sendLog({ level: "info", data: "ready" });
</script>"""


def test_an_app_of_the_official_sdk_works(browser: Browser, tmp_path: Path) -> None:
    package = npm_package("@modelcontextprotocol/ext-apps", EXT_APPS_VERSION)
    bundle = (package / "dist" / "src" / "app-with-deps.js").read_text()
    code, _, exports = bundle.rpartition("export{")
    (name,) = re.findall(r"([\w$]+) as App\b", exports)
    (tmp_path / "app.html").write_text(SDK_APP.replace("SDK", f"{code};const App = {name};", 1))
    (tmp_path / "weather.py").write_text(SDK_SERVER)
    with inspected(str(tmp_path / "weather.py")) as url, opened(browser, url) as page:
        choose(page, "weather")
        page.get_by_label("city").fill("Rome")
        show_app(call(page, "weather"))
        app = page.frame_locator("iframe")
        expect(app.locator("#input")).to_have_text('{"city":"Rome"}')
        expect(app.locator("#result")).to_have_text('{"sky":"clear in Rome"}')
        expect(app.locator("#host")).to_have_text('["bridge-inspect","inline"]')
        app.get_by_role("button", name="More").click()
        page.get_by_role("button", name="Allow once").click()
        expect(app.locator("#answer")).to_have_text('"2 days of sun"')
        page.get_by_role("button", name="Result", exact=True).click()
        expect(page.locator("iframe")).to_have_count(0)
