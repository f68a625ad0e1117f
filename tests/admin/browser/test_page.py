"""The page of the administration in Chromium."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import httpx
from playwright.sync_api import expect

from tests.admin.board import ADA_KEY, OPERATOR_KEY, SECRET
from tests.processes import DEADLINE_SECONDS
from tests.server.http_server import call, modern, modern_headers

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.admin.board import Board


def sign_in(page: Page, key: str = OPERATOR_KEY) -> None:
    page.get_by_label("Key of an operator").fill(key)
    page.get_by_role("button", name="Open").click()


def show(page: Page, view: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()


def called(gateway: Board, tool: str, **arguments: object) -> httpx.Response:
    """Call a tool as Ada."""
    message = modern(call(tool, arguments))
    headers = {**modern_headers(message), "authorization": f"Bearer {ADA_KEY}"}
    return httpx.post(f"{gateway.origin}/mcp", json=message, headers=headers, timeout=DEADLINE_SECONDS)


def test_a_wrong_key_shows_nothing(page: Page, complaints: list[str]) -> None:
    sign_in(page, "wrong-wrong-wrong-wrong-wrong")
    expect(page.get_by_role("alert")).to_have_text("This key is not one of an operator.")
    expect(page.get_by_label("Key of an operator")).to_be_visible()
    assert all("401" in each for each in complaints)  # the browser logs the status itself


def test_servers_are_shown_with_their_states_and_can_be_restarted(
    page: Page, gateway: Board, complaints: list[str]
) -> None:
    sign_in(page)
    servers = page.get_by_role("region", name="Servers")
    expect(servers.get_by_role("row", name="tools ready")).to_be_visible()
    expect(servers.get_by_role("row", name="gone")).to_contain_text("command not found")
    before = next(each["pid"] for each in gateway.state()["servers"] if each["name"] == "tools")
    servers.get_by_role("button", name="Restart tools").click()
    gateway.state_when(
        lambda state: next(each["pid"] for each in state["servers"] if each["name"] == "tools") not in {None, before}
    )
    page.reload()  # the tab keeps the key
    expect(page.get_by_role("region", name="Servers").get_by_role("row", name="tools ready")).to_be_visible()
    assert complaints == []


def test_a_call_under_way_is_shown_with_progress_and_cancelled(
    page: Page, gateway: Board, complaints: list[str]
) -> None:
    answers: list[httpx.Response] = []
    caller = threading.Thread(target=lambda: answers.append(called(gateway, "tools_wait", text=SECRET)))
    caller.start()
    sign_in(page)
    row = page.get_by_role("region", name="Calls under way").get_by_role("row", name="tools_wait")
    expect(row).to_contain_text("3/10")
    expect(row).to_contain_text("ada")
    assert SECRET not in page.content()
    row.get_by_role("button").click()
    expect(row).to_have_count(0)
    caller.join(DEADLINE_SECONDS)
    assert "an operator of the server cancelled" in answers[0].text
    show(page, "Recent")
    recent = page.get_by_role("region", name="Recent")
    expect(recent.get_by_role("row", name="admin cancel").first).to_contain_text("olga")
    assert complaints == []


def test_callers_tools_and_profiles_are_shown_and_tools_are_disabled(
    page: Page, gateway: Board, complaints: list[str]
) -> None:
    called(gateway, "tools_add", a=1, b=2)
    sign_in(page)
    show(page, "Callers")
    expect(page.get_by_role("region", name="Teams").get_by_role("row", name="data")).to_be_visible()
    expect(page.get_by_role("region", name="Keys").get_by_role("row", name="ada data")).to_be_visible()
    limits = page.get_by_role("region", name="Limits").get_by_role("row", name="ada caller")
    expect(limits.get_by_text("% of 50 MiB in 1 h")).to_be_visible()
    show(page, "Tools")
    tools = page.get_by_role("region", name="Tools")
    expect(page.get_by_role("region", name="Profiles").get_by_role("row", name="some 1")).to_be_visible()
    tools.get_by_role("button", name="Disable tools_add").click()
    tools.get_by_role("button", name="Enable tools_add").click()
    expect(tools.get_by_role("button", name="Disable tools_add")).to_be_visible()
    assert complaints == []


def test_draining_asks_first(page: Page, gateway: Board, complaints: list[str]) -> None:
    sign_in(page)
    page.get_by_role("button", name="Drain").click()
    page.get_by_role("alertdialog").get_by_role("button", name="No").click()
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    assert gateway.state()["state"] == "ready"
    page.get_by_role("button", name="Reload").click()
    gateway.state_when(lambda state: state["recent"] and state["recent"][0].get("action") == "reload")
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_label("Key of an operator")).to_be_visible()
    assert complaints == []
