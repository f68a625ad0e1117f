"""Permissions of webhooks: announcement, scopes, removed keys, tokens that expire, and types that are gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette

from bridge import Server
from bridge.events import EventType
from bridge.events.event_type import Feed
from bridge.protocol.versions import FORBIDDEN, NOT_FOUND, UNSUPPORTED
from bridge.server import EventOptions, SqliteTaskStore, http_app, mount
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.auth.tokens import VerifiedToken
from bridge.skills import skills_in
from tests.server.events.hooks import ADA, BOB, CAROL, EVE, OTHER, Client, number, served
from tests.server.events.receiver import Receiver, receiving
from tests.server.http_server import serving
from tests.skills.written import write_skill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_extensions_are_announced_to_callers_who_see_something_of_them(receiver: Receiver, tmp_path: Path) -> None:
    write_skill(tmp_path, "refunds")
    limited = [("event", BOB, ("num*",)), ("skill", CAROL, ("refunds",)), ("none", EVE, ("x",))]
    keys = ApiKeys(ApiKey("ada", ADA), *(ApiKey(name, key, tools=tools) for name, key, tools in limited))
    with served(receiver.url, auth=keys, types=[number, skills_in(tmp_path)]) as (client, _):
        announced = {key: client.ask("server/discover", {}, key)["capabilities"] for key in (ADA, BOB, CAROL, EVE)}
    events, skills = "io.modelcontextprotocol/events", "io.modelcontextprotocol/skills"
    assert {key: set(each.get("extensions", ())) for key, each in announced.items()} == {
        ADA: {events, skills},
        BOB: {events},
        CAROL: {skills},
        EVE: set(),
    }
    assert [key for key, each in announced.items() if "events" in each] == [ADA, BOB]
    assert [key for key, each in announced.items() if "resources" in each] == [ADA, CAROL]  # which skills need


def test_scopes_of_tools_hold_for_events_of_their_names(receiver: Receiver) -> None:
    keys = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB, scopes=frozenset()))
    with served(receiver.url, auth=Auth(keys, tool_scopes={"num*": ["ci"]})) as (client, server):
        assert "id" in client.subscribe(receiver.url, ADA)
        for answer in (
            client.subscribe(receiver.url, BOB),
            client.ask("events/poll", {"name": "number"}, BOB),
            client.ask("events/stream", {"name": "number"}, BOB),
        ):
            assert (answer["code"], "needs a scope" in answer["message"]) == (FORBIDDEN, True)
        assert "events" in client.ask("events/poll", {"name": "other"}, BOB)
        keys.replace(ApiKey("ada", ADA, scopes=frozenset()))
        server.emit("number", {"value": 1})
        assert receiver.next().json["type"] == "terminated"


def test_a_key_that_was_removed_ends_its_webhooks_and_the_callback_is_told(receiver: Receiver) -> None:
    keys = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB), ApiKey("carol", CAROL))
    with served(receiver.url, auth=keys) as (client, server):
        begun = {key: client.subscribe(receiver.url, key)["id"] for key in (ADA, BOB, CAROL)}
        keys.replace(ApiKey("ada", EVE), ApiKey("carol", CAROL, tools=("other",)))  # Ada's key was rotated
        server.emit("number", {"value": 1})
        received = {each.headers["x-mcp-subscription-id"]: each.json for each in (receiver.next() for _ in range(3))}
        assert received[begun[ADA]]["data"] == {"value": 1}
        for key in (BOB, CAROL):
            assert received[begun[key]]["type"] == "terminated"
            assert received[begun[key]]["error"]["code"] == FORBIDDEN
            assert received[begun[key]]["error"]["data"] == {"reason": "access_revoked"}
        while len(server.events.webhooks._stored._known) > 1:  # type: ignore[union-attr]
            """The subscriptions that have ended are being deleted."""
        server.emit("number", {"value": 2})
        assert receiver.next().headers["x-mcp-subscription-id"] == begun[ADA]
        assert receiver.is_empty


def test_a_key_that_was_removed_ends_a_webhook_without_events(receiver: Receiver) -> None:
    keys = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB))
    with served(receiver.url, auth=keys, heartbeat_seconds=0.05) as (client, _):
        client.subscribe(receiver.url, BOB)
        keys.replace(ApiKey("ada", ADA))
        assert receiver.next().json["type"] == "terminated"


def test_a_webhook_ends_with_the_token_of_its_last_request(receiver: Receiver) -> None:
    class Tokens:
        """Accepts a token that is the time at which it expires."""

        issuer = "https://issuer.example"

        async def verify_token(self, token: str) -> VerifiedToken:
            return VerifiedToken(
                token=token,
                client_id="app",
                subject="ada",
                scopes=[],
                expires_at=int(token),
                claims={"iss": self.issuer},
            )

    now = int(datetime.now(UTC).timestamp())
    with served(receiver.url, auth=Tokens()) as (client, _):
        for lifetime, granted in ((600, 600), (7200, 3600)):
            found = client.subscribe(receiver.url, str(now + lifetime))["refreshBefore"]
            assert now + granted - 1 <= datetime.fromisoformat(found).timestamp() <= now + granted + 60
        assert (
            datetime.fromisoformat(client.subscribe(receiver.url, str(now + 600))["refreshBefore"]).timestamp()
            <= now + 600
        )


def test_a_type_that_is_gone_or_changed_after_a_restart_ends_its_webhooks(receiver: Receiver, tmp_path: Path) -> None:
    with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (client, _):
        client.subscribe(receiver.url, arguments={"least": 2})
    for types, error in (
        ([OTHER], {"code": NOT_FOUND, "data": {"kind": "event"}}),
        (
            [EventType(name="number", input_schema={"type": "object", "properties": {"least": {"type": "string"}}})],
            {"code": UNSUPPORTED, "data": {"feature": "inputSchema", "reason": "schema_changed"}},
        ),
    ):
        with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept"), types=types) as (client, _):
            told = receiver.next().json
            assert (told["type"], {key: told["error"][key] for key in error}) == ("terminated", error)
        with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (client, _):
            assert "deliveryStatus" not in client.subscribe(receiver.url, arguments={"least": 2})  # it is a new one


@pytest.mark.parametrize("unsubscribes", [False, True])
def test_a_webhook_that_is_subscribed_to_again_while_it_ends_is_delivered_once(
    unsubscribes: bool, receiver: Receiver
) -> None:
    both = ApiKey("ada", ADA), ApiKey("bob", BOB)
    keys = ApiKeys(*both)
    with served(receiver.url, auth=keys, heartbeat_seconds=0.05) as (client, server):
        client.subscribe(receiver.url, BOB)
        with receiver.holding("/"):
            keys.replace(both[0])
            receiver.wait_for_held(1)
            keys.replace(*both)
            if unsubscribes:
                assert client.unsubscribe(receiver.url, BOB)["resultType"] == "complete"
            assert "id" in client.subscribe(receiver.url, BOB)
        assert receiver.next().json["type"] == "terminated"
        server.emit("number", {"value": 1})
        assert receiver.next_event()["data"] == {"value": 1}
        assert client.unsubscribe(receiver.url, BOB)["resultType"] == "complete"
        assert client.unsubscribe(receiver.url, BOB)["code"] == NOT_FOUND
        assert "id" in client.subscribe(f"{receiver.url}/other", BOB)
        for value in (2, 3):
            server.emit("number", {"value": value})
            received = receiver.next()
            assert (received.path, received.json["data"]) == ("/other", {"value": value})


def test_keys_of_each_app_of_a_server_count_for_its_webhooks_and_those_of_an_app_that_has_ended_do_not(
    receiver: Receiver,
) -> None:
    options = EventOptions(webhooks=True, callback_origins=(receiver.url,), heartbeat_seconds=0.05)
    server = Server([replace(number, feed=Feed())], name="hooks", events=options)
    parent, keys = Starlette(), ApiKeys(ApiKey("ada", ADA), ApiKey("carol", CAROL))
    mount(parent, "/one", server, auth=keys)
    mount(parent, "/two", server, auth=ApiKeys(ApiKey("bob", BOB)))
    http_app(server, auth=ApiKeys(ApiKey("carol", CAROL)))  # which does not run
    with serving(parent) as url:
        one, two = (Client(url, path) for path in ("/one", "/two"))
        begun = {key: app.subscribe(receiver.url, key)["id"] for app, key in ((one, ADA), (two, BOB), (one, CAROL))}
        keys.replace(ApiKey("ada", ADA))
        received = receiver.next()
        assert (received.headers["x-mcp-subscription-id"], received.json["type"]) == (begun[CAROL], "terminated")
        server.emit("number", {"value": 1})
        delivered = [receiver.next() for _ in range(2)]
        assert {each.headers["x-mcp-subscription-id"] for each in delivered} == {begun[ADA], begun[BOB]}
        assert {each.json["data"]["value"] for each in delivered} == {1}
    assert server.keys_of_apps == ()
