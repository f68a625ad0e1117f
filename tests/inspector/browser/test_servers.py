"""Servers in the page: the start, and servers that are added, changed, disabled, exported and saved."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.inspector.browser.conftest import call, inspected, opened
from tests.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

SERVER = """
import os

from bridge import InvocationContext, tool
from bridge.server import Server


@tool
async def place() -> str:
    return os.environ.get("PLACE", "nowhere")


server = Server([place], name="place", instructions="Ask for the place **before** you travel.")
"""


def entry(folder: Path, **settings: Any) -> Any:
    (folder / "place.py").write_text(SERVER)
    return {
        "command": sys.executable,
        "args": ["-m", "bridge", "serve", "place.py:server"],
        "cwd": str(folder),
        **settings,
    }


def configuration(folder: Path) -> Path:
    """A configuration with a comment, a server that works, one that does not, and a disabled one."""
    broken = {"command": sys.executable, "args": ["-c", "raise SystemExit('no key')"]}
    servers = {"place": entry(folder), "broken": broken, "off": {**entry(folder), "disabled": True}}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}, indent=2).replace("{", "{ // mine", 1))
    return file


def start(page: Page) -> Any:
    page.get_by_role("link", name="Explore").click()
    return page.locator("main .card")


def test_the_start_shows_servers_with_state_instructions_and_errors(browser: Browser, tmp_path: Path) -> None:
    with inspected(str(configuration(tmp_path))) as url, opened(browser, url) as page:
        place, broken, off = (page.locator("main .card").nth(index) for index in range(3))
        expect(place).to_contain_text("ready")
        expect(place).to_contain_text("1 tool")
        expect(place).to_contain_text("Ask for the place **before** you travel.")
        expect(broken.locator(".error")).to_contain_text("no key")
        expect(off).to_contain_text("disabled")
        page.get_by_role("button", name="Disable place").click()
        expect(place).to_contain_text("disabled")
        expect(page.locator(".item-link")).to_have_count(0)
        page.get_by_role("button", name="Enable off").click()
        expect(off).to_contain_text("ready")
        assert (
            "disabled"
            not in json.loads((tmp_path / "mcp.json").read_text().replace("// mine", ""))["mcpServers"]["place"]
        )


def test_a_server_is_changed_and_saved_only_if_asked(browser: Browser, tmp_path: Path) -> None:
    file = configuration(tmp_path)
    before = file.read_text()
    with inspected(str(file)) as url, opened(browser, url) as page:
        for saves, value in ((False, "Rome"), (True, "${PATH}")):
            start(page).first.get_by_role("link", name="Edit").click()
            written = page.get_by_label("Entry as JSON")
            expect(written).not_to_have_value("{}")
            written.fill(json.dumps(entry(tmp_path, env={"PLACE": value})))
            if saves:
                page.get_by_label(f"Save to {file}").check()
            page.get_by_role("button", name="Change").click()
            expect(page.locator("main .dot.ready")).to_be_visible()
            outcome = call(page, "place")
            expect(outcome).to_contain_text("Rome" if value == "Rome" else "/")
            if not saves:
                assert file.read_text() == before
        text = file.read_text()
        assert text.startswith("{ // mine")
        saved = json.loads(text.replace("// mine", ""))["mcpServers"]
        assert saved["place"] == entry(tmp_path, env={"PLACE": "${PATH}"})
        assert saved["off"]["disabled"] is True
        start(page)
        page.get_by_role("button", name="Export").click()
        expect(page.locator("pre")).to_contain_text('"PLACE": "${PATH}"')


def test_a_server_is_added_and_a_wrong_entry_is_refused(browser: Browser) -> None:
    with inspected("servers/calculator.py") as url, opened(browser, url) as page:
        page.get_by_role("link", name="Add a server").click()
        expect(page.get_by_text("the change is for this run")).to_be_visible()
        page.get_by_label("Name *").fill("travel")
        page.get_by_label("command").fill(sys.executable)
        args = page.get_by_role("group", name="args")
        args.get_by_role("button", name="Add").click()
        for index, word in enumerate(("-m", "bridge", "serve", str(ROOT / "tests/inspector/travel.py"))):
            if index:
                args.get_by_role("button", name="Add item").click()
            args.get_by_role("textbox").nth(index).fill(word)
        page.get_by_role("button", name="Add", exact=True).last.click()
        expect(page.locator("main .dot.ready")).to_be_visible()
        expect(page.get_by_role("heading", name="travel", exact=True)).to_be_visible()
        expect(start(page)).to_have_count(2)
