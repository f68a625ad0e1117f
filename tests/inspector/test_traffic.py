"""The messages between the inspector and its servers, in both eras and over each transport."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge.inspector import traffic
from bridge.inspector.traffic import Traffic
from tests.inspector.conftest import inspecting, travel

if TYPE_CHECKING:
    from tests.inspector.conftest import OpenPage

pytestmark = pytest.mark.anyio


def seen(page: OpenPage) -> list[tuple[str, str, str]]:
    return [(each["direction"], each["kind"], each["method"]) for each in page.inspector.traffic.summaries()]


@pytest.mark.parametrize(("era", "first"), [("legacy", "initialize"), ("2026-07-28", "server/discover")])
async def test_messages_of_both_eras_are_shown(era: Any, first: str) -> None:
    async with inspecting(travel(protocol=era)) as page:
        await page.listed()
        number = await page.call("distance", {"start": "Vienna"})
        await page.ended(number)
        assert seen(page)[0] == ("sent", "request", first)
        assert ("received", "result", first) in seen(page)
        assert {("sent", "request", "tools/call"), ("received", "result", "tools/call")} <= set(seen(page))
        sent = next(each for each in page.inspector.traffic.summaries() if each["method"] == "tools/call")
        message = await page.get(f"/messages/{sent['number']}")
        assert message["params"]["arguments"] == {"start": "Vienna"}
        shown = await page.event("message", number=sent["number"])
        assert shown["bytes"] == sent["bytes"] > len(json.dumps(message["params"]))
        assert shown["server"] == "travel"


async def test_progress_and_errors_are_messages_too(page: OpenPage) -> None:
    await page.ended(await page.call("search", {"destination": "Rome", "until": 1}))
    await page.ended(await page.start("resources/read", uri="travel://nowhere"))
    assert ("received", "notification", "notifications/progress") in seen(page)
    assert ("received", "error", "resources/read") in seen(page)


async def test_messages_are_cleared(page: OpenPage) -> None:
    await page.post("/messages/clear")
    await page.event("state", messages=[])
    assert (await page.client.get("/messages/1")).status_code == 404


def test_methods_of_the_last_requests_are_known_although_others_are_never_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traffic, "_MAX_OPEN_REQUESTS", 2)
    kept = Traffic(lambda _: None)
    for number in range(3):
        kept.record("a", "sent", json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}))
    for number in range(3):
        kept.record("a", "received", json.dumps({"jsonrpc": "2.0", "id": number, "result": {}}))
    assert [each["method"] for each in kept.summaries()][3:] == ["", "ping", "ping"]


def test_the_oldest_messages_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_MESSAGES", 3)
    published: list[Any] = []
    kept = Traffic(published.append)
    for number in range(5):
        kept.record("a", "sent", json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}))
    assert [each["number"] for each in kept.summaries()] == [3, 4, 5]
    assert len(published) == 5
    monkeypatch.setattr(traffic, "MAX_BYTES", 60)
    kept.record("a", "received", '{"jsonrpc":"2.0","id":4,"result":{}}')
    assert [(each["number"], each["method"], each["kind"]) for each in kept.summaries()] == [(6, "ping", "result")]


def test_equal_ids_of_two_directions_and_servers_are_two_requests() -> None:
    kept = Traffic(lambda _: None)
    kept.record("a", "sent", '{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
    kept.record("a", "received", '{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    kept.record("b", "received", '{"jsonrpc":"2.0","id":1,"result":{}}')
    kept.record("a", "sent", '{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}')
    kept.record("a", "received", '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}')
    kept.record("a", "received", '{"jsonrpc":"2.0","method":"notifications/message"}')
    assert [(each["kind"], each["method"]) for each in kept.summaries()] == [
        ("request", "tools/call"),
        ("request", "roots/list"),
        ("result", ""),
        ("result", "roots/list"),
        ("error", "tools/call"),
        ("notification", "notifications/message"),
    ]
