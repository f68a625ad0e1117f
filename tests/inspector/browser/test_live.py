"""Changes while the page is open: subscriptions, lists, tasks; and two calls beside each other."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.inspector.browser.conftest import call, choose, inspected, opened
from tests.skills.written import write_skill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

SERVER = '''
import anyio

from bridge import InvocationContext, ResourceBox, ToolBox, resource, tool
from bridge.events import event
from bridge.skills import skills_in
from bridge.server import Features
from bridge.server import Server

count = 0


@resource("count://now")
async def current() -> str:
    return str(count)


resources = ResourceBox(current)


@tool
async def increase() -> int:
    """Increase the count, and announce that."""
    global count
    count += 1
    resources.updated("count://now")
    return count


@event("count.raised")
def raised(payload: dict[str, int], least: int = 0) -> bool:
    """The count was raised."""
    return payload["count"] >= least


@tool
async def emit(value: int) -> str:
    """Emit an event."""
    raised.emit({"count": value})
    return "emitted"


@tool
async def extend() -> str:
    """Add a tool."""

    @tool(name=f"added_{len(box)}")
    async def added() -> str:
        return "added"

    box.add(added)
    return "extended"


@tool(task=True)
async def long(context: InvocationContext, pages: int) -> str:
    """Run as a task; without pages it never ends."""
    for page in range(pages):
        await context.progress(page + 1, pages, f"page {page + 1}")
    if not pages:
        await context.progress(1, 9, "the first page")
        try:
            await anyio.sleep_forever()
        finally:
            resources.updated("count://now")
    return "written"


box = ToolBox(increase, emit, extend, long)
server = Server([box, resources, raised, skills_in("skills")], name="live")
'''


@pytest.fixture(scope="module", params=["auto", "legacy"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the page of a server that changes, in both eras."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "live.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": ["-m", "bridge", "serve", str(folder / "live.py:server")]}
    write_skill(folder / "skills", "refunds", {"a.md": "An example."})
    servers = {"live": {**entry, "protocol": request.param, "cwd": str(folder)}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    with inspected(str(folder / "mcp.json")) as url:
        yield url


@pytest.fixture
def page(browser: Browser, live: str) -> Iterator[Page]:
    """The page of that server."""
    with opened(browser, live) as page:
        yield page


def test_updates_of_a_resource_and_changes_of_lists_are_seen_live(page: Page) -> None:
    choose(page, "current")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    status = page.locator(".subscription").get_by_role("status")
    expect(status).to_have_text("0 updates")
    expect(call(page, "increase")).to_contain_text("Done")
    choose(page, "current")
    expect(status).to_have_text("1 update")
    before = page.locator(".item-link").count()
    expect(call(page, "extend")).to_contain_text("extended")
    expect(page.locator(".item-link")).to_have_count(before + 1)
    choose(page, "ready live")
    expect(page.locator(".changes li").filter(has_text="list changed tools").first).to_be_visible()
    expect(page.locator(".changes li").filter(has_text="resource updated count://now").first).to_be_visible()
    choose(page, "current")
    page.get_by_role("button", name="Unsubscribe").click()
    expect(page.get_by_role("button", name="Subscribe", exact=True)).to_be_visible()


def test_events_are_polled_from_the_position_of_the_last_answer(page: Page) -> None:
    def emit(value: int) -> None:
        choose(page, "emit")
        page.get_by_label("value").fill(str(value))
        expect(call(page, "emit")).to_contain_text("emitted")

    def polled(button: str) -> Any:
        choose(page, "count.raised")
        page.get_by_role("button", name=button).click()
        outcome = page.get_by_role("region", name="Outcome")
        outcome.get_by_role("button", name="JSON", exact=True).click()
        return outcome

    choose(page, "count.raised")
    expect(page.get_by_text("delivered by")).to_contain_text("poll")
    expect(page.locator(".description")).to_have_text("The count was raised.")
    page.get_by_label("least").fill("5")
    expect(polled("Poll for the current position")).to_contain_text('"events"')
    for value in (4, 7):
        emit(value)
    outcome = polled("Poll for the events since the last answer")
    expect(outcome).to_contain_text('"count": 7')
    expect(outcome).not_to_contain_text('"count": 4')
    emit(8)
    outcome = polled("Poll for the events since the last answer")
    expect(outcome).to_contain_text('"count": 8')
    expect(outcome).not_to_contain_text('"count": 7')


def test_files_of_a_skill_are_read(page: Page) -> None:
    page.locator("a.item-link", has_text="skill://refunds/SKILL.md").click()
    expect(page.get_by_text("files: 2")).to_be_visible()
    page.get_by_role("button", name="Read").nth(1).click()
    expect(page.get_by_role("region", name="Outcome")).to_contain_text("An example.")


def test_two_calls_are_compared(page: Page) -> None:
    outcomes = [call(page, "increase") for _ in range(2)]
    expect(outcomes[1]).to_contain_text("Done")
    page.get_by_role("link", name="History").click()
    page.locator("a.row").first.click()
    page.get_by_label("Compare with").select_option(index=1)
    expect(page.get_by_role("heading", name="Arguments equal")).to_be_visible()
    expect(page.get_by_role("heading", name="Results different")).to_be_visible()
    expect(page.get_by_label("Results of the first").locator("mark").first).to_be_visible()
    expect(page.get_by_label("Results of the second").locator("mark").first).to_be_visible()
    assert page.locator("mark").all_inner_texts() != []


def test_a_task_shows_its_progress_and_is_cancelled(page: Page, request: pytest.FixtureRequest) -> None:
    is_modern = request.node.callspec.params["live"] == "auto"
    choose(page, "long")
    page.get_by_label("pages").fill("0")
    outcome: Any = call(page, "long")
    expect(outcome).to_contain_text("the first page")
    expect(outcome.get_by_text("task", exact=False)).to_have_count(1 if is_modern else 0)
    outcome.get_by_role("button", name="Cancel").click()
    expect(outcome).to_contain_text("Cancelled")
    if is_modern:
        page.get_by_role("link", name="Traffic").click()
        expect(page.get_by_role("button", name="sent tasks/cancel request")).to_be_visible()
        choose_and_write(page)


def choose_and_write(page: Page) -> None:
    """Run a task to its end."""
    page.get_by_role("link", name="Explore").click()
    choose(page, "long")
    page.get_by_label("pages").fill("2")
    expect(call(page, "long")).to_contain_text("written")
