"""Servers of the page: their state and their lists, which follow the server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from bridge.client import ServerConfig, StdioTransport
from bridge.inspector import events
from bridge.inspector.events import Events
from bridge.inspector.page_json import page_json
from bridge.types import FEATURES
from tests.client.conftest import python_config
from tests.client.scripted import listed, scripted_config
from tests.inspector.conftest import TRAVEL, inspecting, travel
from tests.processes import ROOT

if TYPE_CHECKING:
    from bridge.types import Feature
    from tests.inspector.conftest import OpenPage

pytestmark = pytest.mark.anyio


async def test_a_server_is_shown_with_what_it_says_about_itself(page: OpenPage) -> None:
    server = await page.listed()
    assert (server["name"], server["state"], server["transport"]) == ("travel", "ready", "http")
    assert (server["era"], server["protocolVersion"]) == ("modern", "2026-07-28")
    assert server["info"]["name"] == "travel"
    assert server["problems"] == []
    tools = {tool["name"]: tool for tool in server["tools"]}
    assert tools["distance"]["annotations"] == {"readOnlyHint": True}
    assert 20 < tools["distance"]["tokens"] < tools["book"]["tokens"]


async def test_a_page_that_is_opened_later_gets_everything(page: OpenPage) -> None:
    await page.ended(await page.call("distance", {"start": "Vienna"}))
    page.events.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(page.follow)
        state = await page.event("state")
        tasks.cancel_scope.cancel()
    assert [server["name"] for server in state["servers"]] == ["travel"]
    assert [request["state"] for request in state["requests"]] == ["done"]
    assert len(state["messages"]) > 3


async def test_a_server_that_cannot_be_started_is_shown_with_the_reason() -> None:
    code = "import sys; print('no key', file=sys.stderr); sys.exit(3)"
    broken = ServerConfig(name="broken", transport=StdioTransport(sys.executable, args=("-c", code)))
    async with inspecting(broken, travel()) as page:
        shown = await page.event("server", name="broken", state="failed")
        assert "no key" in shown["error"]
        await page.listed()


async def test_a_restarted_server_is_another_process() -> None:
    async with inspecting(travel()) as page:
        await page.listed()
        await page.post("/servers/travel/restart")
        ended = await page.ended(await page.call("distance", {"start": "A"}))
        assert ended["state"] == "done"
        await page.event("server", state="closed")
        messages = [(each["method"], each["kind"]) for each in page.inspector.traffic.summaries()]
        assert messages.count(("server/discover", "result")) == 2


async def test_malformed_tools_are_named_and_the_others_listed() -> None:
    config = scripted_config([listed("good"), {"name": "bad"}])
    async with inspecting(config) as page:
        server = await page.listed("child")
        assert [tool["name"] for tool in server["tools"]] == ["good"]
        assert server["problems"] == ["the tool 'bad' is malformed: inputSchema: Field required"]


async def test_tools_that_the_configuration_excludes_are_not_shown() -> None:
    async with inspecting(travel(include=("pay", "ticket"))) as page:
        assert [tool["name"] for tool in (await page.listed())["tools"]] == ["pay", "ticket"]


async def test_lists_are_fetched_again_on_request(page: OpenPage) -> None:
    server = page.inspector.servers["travel"]
    before = server.offers
    await page.post("/servers/travel/refresh")
    while server.offers is before:
        await anyio.lowlevel.checkpoint()
    assert server.offers == before


@pytest.mark.parametrize("feature", FEATURES)
async def test_lists_follow_announced_changes(page: OpenPage, feature: Feature) -> None:
    server = page.inspector.servers["travel"]
    before = server.offers
    server.connection._events.list_listeners[feature].notify()
    while server.offers is before:
        await anyio.lowlevel.checkpoint()
    assert [prompt["name"] for prompt in server.offers.prompts] == ["plan"]


async def test_a_page_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING_EVENTS", 2)
    published = Events()
    slow, quick = published.of_page("state", 0), published.of_page("state", 0)
    first = "event: state\ndata: 0\n\n"
    assert [await anext(slow), await anext(quick)] == [first, first]
    received = []
    for number in range(4):
        published.publish("message", number)
        received.append(await anext(quick))
    assert received == [f"event: message\ndata: {number}\n\n" for number in range(4)]
    assert [event async for event in slow] == received[:2]
    published.close()
    assert [event async for event in quick] == []


async def test_waiting_events_are_bounded_in_their_size_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING_CHARS", 1_000)
    published = Events()
    page = published.of_page("state", 0)
    await anext(page)
    published.publish("state", "x" * 2_000)  # a single one may be longer
    assert "xxx" in await anext(page)
    published.publish("message", "a" * 900)
    published.publish("message", "b" * 900)
    assert ["aaa" in event async for event in page] == [True]


async def test_only_the_last_state_of_an_object_waits_for_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING_CHARS", 1_000)
    published = Events()
    page = published.of_page("state", 0)
    await anext(page)
    for number in range(1_000):
        published.publish("request", {"number": 1, "progress": number}, replaces=1)
        published.publish("request", {"number": 2, "progress": number}, replaces=2)
    published.close()
    assert [event async for event in page] == [
        events.event_text("request", {"number": number, "progress": 999}) for number in (1, 2)
    ]


@pytest.mark.parametrize("method", ["tools/list", "prompts/list"])
async def test_a_list_that_is_not_answered_readably_is_named(method: str) -> None:
    code = UNREADABLE.replace("METHOD", method)
    config = python_config(code, protocol="legacy", timeout_seconds=1.0)
    async with inspecting(config) as page:
        await page.event("server", state="ready", awaited=method)
        while not page.inspector.servers["child"].offers.problems:
            await anyio.lowlevel.checkpoint()
        [problem] = page.inspector.servers["child"].summary()["problems"]
        assert method in problem
        assert page.inspector.servers["child"].summary()["awaited"] is None


UNREADABLE = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        told = {"name": "odd", "version": "1"}
        offers = {"tools": {}, "prompts": {}}
        result = json.dumps({"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": told})
    elif message["method"] == "METHOD":
        result = "{no JSON"
    else:
        result = '{"tools": [], "prompts": []}'
    if message["method"] != "server/discover" and "id" in message:
        print('{"jsonrpc": "2.0", "id": %s, "result": %s}' % (json.dumps(message["id"]), result), flush=True)
"""
NON_FINITE = """
import json, sys

TOOLS = '[{"name": "odd", "inputSchema": {"type": "object", "maximum": 1e999, "default": NaN}}]'
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        told = {"name": "odd", "version": "1"}
        result = json.dumps({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": told})
    elif message["method"] == "tools/list":
        result = '{"tools": %s}' % TOOLS
    else:
        result = '{"content": [], "structuredContent": {"least": -1e999}}'
    if message["method"] != "server/discover" and "id" in message:
        print('{"jsonrpc": "2.0", "id": %s, "result": %s}' % (json.dumps(message["id"]), result), flush=True)
"""


async def test_numbers_that_are_not_finite_are_null_for_the_page() -> None:
    async with inspecting(python_config(NON_FINITE, protocol="legacy")) as page:
        await page.listed("child")
        page.events.clear()
        await page.post("/messages/clear")
        [server] = (await page.event("state"))["servers"]
        assert server["tools"][0]["inputSchema"] == {"type": "object", "maximum": None, "default": None}
        ended = await page.ended(await page.call("odd", server="child"))
        assert ended["answer"]["result"]["structuredContent"] == {"least": None}


def test_every_text_for_the_page_is_json_of_browsers() -> None:
    data = {"a": [1e999, -1e999, float("nan"), 1.5, (2, "NaN")]}
    assert page_json(data) == '{"a": [null, null, null, 1.5, [2, "NaN"]]}'


async def test_an_event_is_one_line_of_ascii_whatever_a_server_says() -> None:
    text = events.event_text("message", {"text": "a\r\nevent: b\u2028\ud800ü"})
    assert text.isascii()
    assert text.splitlines() == ["event: message", text.splitlines()[1], ""]


async def test_arguments_of_prompts_and_variables_of_templates_are_completed(page: OpenPage) -> None:
    async def values(name: str, text: str, ref: Any, **others: str) -> Any:
        params = {"ref": ref, "argument": {"name": name, "value": text}, "context": {"arguments": others}}
        return (await page.post("/complete", {"server": "travel", "params": params}))["values"]

    plan, timetable = (
        {"type": "ref/prompt", "name": "plan"},
        {"type": "ref/resource", "uri": "travel://timetable/{city}"},
    )
    assert await values("city", "ro", plan) == ["Rome", "Rovaniemi"]
    assert await values("days", "", plan, city="Oslo") == ["2 days in Oslo", "3 days in Oslo"]
    assert await values("city", "v", timetable) == ["Vienna"]
    assert await values("city", "v", {"type": "ref/prompt", "name": "none"}) == []


async def test_servers_are_added_changed_disabled_and_enabled() -> None:
    arguments = ["-m", "bridge", "serve", TRAVEL]
    entry = {"command": sys.executable, "args": arguments, "cwd": str(ROOT)}
    async with inspecting(travel()) as page:
        await page.listed()
        await page.post("/servers", {"name": "other", "entry": entry})
        other = await page.listed("other")
        assert [each["name"] for each in page.inspector.state()["servers"]] == ["travel", "other"]
        assert other["info"]["name"] == "travel"
        await page.post("/servers", {"name": "travel", "entry": {"disabled": True}})
        assert page.inspector.state()["servers"][0]["state"] == "disabled"
        refused = await page.client.post("/requests", json={"server": "travel", "method": "tools/call", "params": {}})
        assert refused.status_code == 404
        await page.post("/servers", {"name": "travel", "entry": {}})  # its entry is not read again
        await page.listed()
        assert await page.get("/servers") == {"mcpServers": {"travel": {}, "other": entry}}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"name": "other", "entry": {"command": ""}}, "'command'"),
        ({"name": "other", "entry": {"url": "ftp://a"}}, "'url'"),
        ({"name": "travel", "entry": {"command": "a", "args": "b"}}, "'args'"),
        ({"name": " ", "entry": {"command": "a"}}, "a server has a name"),
        ({"name": "other", "entry": ["a"]}, "an entry, which is an object"),
    ],
)
async def test_an_entry_that_is_wrong_changes_nothing(page: OpenPage, body: Any, problem: str) -> None:
    before = page.inspector.servers["travel"]
    response = await page.client.post("/servers", json=body)
    assert (response.status_code, problem in response.text) == (400, True), response.text
    assert page.inspector.servers == {"travel": before}
    assert before.connection.state.value == "ready"
