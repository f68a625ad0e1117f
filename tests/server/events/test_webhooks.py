"""Webhooks of a real server over HTTP to a real receiver: challenge, signatures, retries, bounds, access, restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from bridge import Caller, Server
from bridge.errors import WireError
from bridge.events import verify_webhook
from bridge.protocol.versions import (
    FORBIDDEN,
    INVALID_PARAMS,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNSUPPORTED,
)
from bridge.server import SqliteTaskStore
from bridge.server.events import webhooks
from bridge.server.events.served import MAX_POSTS_OF_ONE
from bridge.server.events.sqlite_store import SqliteEventStore
from bridge.server.http.app import http_app
from tests.redis_server import RedisServer
from tests.server.events.hooks import ADA, BOB, EVE, KEYS, SECRET, Client, number, served
from tests.server.events.receiver import Receiver, new_secret, receiving
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.types import Json


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_a_callback_is_challenged_and_then_gets_signed_events(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        (listed, _) = client.ask("events/list", {})["events"]
        assert listed["delivery"] == ["poll", "push", "webhook"]
        url = f"{receiver.url}/hook?x=1"
        begun = client.subscribe(url, arguments={"least": 2})
        assert begun["id"].startswith("sub_")
        assert begun["truncated"] is False
        (challenge,) = receiver.challenges
        verify_webhook(SECRET, challenge.headers, challenge.body)
        assert challenge.path == "/hook?x=1"
        assert challenge.headers["webhook-id"].startswith("msg_verification_")
        server.emit("number", {"value": 1})
        server.emit("number", {"value": 2}, event_id="upstream-2")
        received = receiver.next()
        verify_webhook(SECRET, received.headers, received.body)
        with pytest.raises(WireError, match="not signed with this secret"):
            verify_webhook(new_secret(), received.headers, received.body)
        with pytest.raises(WireError, match="not signed with this secret"):
            verify_webhook(SECRET, received.headers, received.body + b" ")
        with pytest.raises(WireError, match="not within 300 seconds"):
            verify_webhook(SECRET, {**received.headers, "webhook-timestamp": "1700000000"}, received.body)
        assert received.headers["x-mcp-subscription-id"] == begun["id"]
        assert received.headers["webhook-id"] == "upstream-2"
        assert received.headers["content-type"] == "application/json"
        assert received.headers["host"] == receiver.url.removeprefix("http://")
        event_ = received.json
        assert {**event_, "timestamp": "", "cursor": ""} == {
            "eventId": "upstream-2",
            "name": "number",
            "timestamp": "",
            "data": {"value": 2},
            "cursor": "",
        }
        assert client.unsubscribe(url, arguments={"least": 2})["resultType"] == "complete"
        assert client.unsubscribe(url, arguments={"least": 2})["code"] == NOT_FOUND
        server.emit("number", {"value": 3})
        assert client.subscribe(f"{receiver.url}/other")["id"] != begun["id"]
        server.emit("number", {"value": 4})
        assert receiver.next().path == "/other"


def test_a_repeated_subscription_is_the_same_and_is_not_challenged_again(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        one = client.subscribe(receiver.url)
        server.emit("number", {"value": 1})
        delivered = receiver.next_event()
        two = client.subscribe(receiver.url, cursor="ignored while it lasts")
        assert two["id"] == one["id"]
        assert two["deliveryStatus"]["active"] is True
        assert two["deliveryStatus"]["lastError"] is None
        assert two["cursor"] in {one["cursor"], delivered["cursor"]}
        assert len(receiver.challenges) == 1
        server.emit("number", {"value": 2})
        assert receiver.next_event()["data"] == {"value": 2}


def test_a_new_secret_signs_beside_the_former_one(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        secret = new_secret()
        client.subscribe(receiver.url, secret=secret)
        assert len(receiver.challenges) == 1
        server.emit("number", {"value": 1})
        received = receiver.next()
        assert len(received.headers["webhook-signature"].split()) == 2
        for each in (SECRET, secret):
            verify_webhook(each, received.headers, received.body)


def test_a_delivery_is_repeated_with_a_fresh_signature_until_it_is_taken(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        receiver.statuses += [500, 302, 404, 200]
        receiver.location = f"{receiver.url}/elsewhere"
        server.emit("number", {"value": 1})
        server.emit("number", {"value": 2})
        attempts = [receiver.next() for _ in range(4)]
        for each in attempts:
            verify_webhook(SECRET, each.headers, each.body)
            assert (each.path, each.json["data"]) == ("/", {"value": 1})  # a redirect is not followed
        assert len({each.headers["webhook-id"] for each in attempts}) == 1
        assert receiver.next_event()["data"] == {"value": 2}


@pytest.mark.parametrize("status", [410, 413])
def test_an_event_that_a_callback_does_not_take_is_given_up_at_once(status: int, receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        receiver.statuses += [status]
        for value in (1, 2):
            server.emit("number", {"value": value})
        assert [receiver.next_event()["data"]["value"] for _ in range(2)] == [1, 2]


def test_deliveries_that_keep_failing_are_suspended_until_the_caller_asks_again(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        receiver.statuses += [503] * 6
        server.emit("number", {"value": 1})
        assert [receiver.next_event()["data"]["value"] for _ in range(6)] == [1] * 6
        found: Json = {}
        while found.get("deliveryStatus", {}).get("active", True):
            found = client.subscribe(receiver.url)
            if not receiver.is_empty:  # it was suspended, and goes on
                break
        server.emit("number", {"value": 2})
        assert [receiver.next_event()["data"]["value"] for _ in range(2)] == [1, 2]
        if "deliveryStatus" in found and not found["deliveryStatus"]["active"]:
            assert found["deliveryStatus"]["lastError"] == "http_5xx"


def test_replicas_share_webhooks_and_each_event_is_delivered_once(receiver: Receiver, redis: RedisServer) -> None:
    with (
        served(receiver.url, redis_url=redis.url) as (one, first),
        served(receiver.url, redis_url=redis.url) as (two, second),
    ):
        begun = one.subscribe(receiver.url)
        cursor = two.ask("events/poll", {"name": "number"})["cursor"]
        first.emit("number", {"value": 1})
        second.emit("number", {"value": 2})
        assert sorted(receiver.next_event()["data"]["value"] for _ in range(2)) == [1, 2]
        assert two.subscribe(receiver.url)["id"] == begun["id"]
        for client in (one, two):
            found = client.ask("events/poll", {"name": "number", "cursor": cursor})
            assert sorted(each["data"]["value"] for each in found["events"]) == [1, 2]
        assert two.unsubscribe(receiver.url)["resultType"] == "complete"
        assert one.unsubscribe(receiver.url)["code"] == NOT_FOUND
        assert receiver.is_empty


@pytest.mark.slow
def test_another_replica_delivers_when_the_one_that_did_is_gone(
    receiver: Receiver, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(webhooks, "LOOK_SECONDS", 0.05)
    with served(receiver.url, redis_url=redis.url) as (_, second):
        with served(receiver.url, redis_url=redis.url) as (client, first):
            begun = client.subscribe(f"{receiver.url}/left")
            first.emit("number", {"value": 1})
            assert receiver.next_event()["data"] == {"value": 1}
        second.emit("number", {"value": 2})  # whichever of both has led
        while (received := receiver.next()).json["data"] == {"value": 1}:
            """The one that left had delivered it, and not said so: each is delivered at least once."""
        assert (received.json["data"], received.headers["x-mcp-subscription-id"]) == ({"value": 2}, begun["id"])
    with served(receiver.url, redis_url=redis.url) as (client, third):
        third.emit("number", {"value": 3})
        while (data := receiver.next_event()["data"]) == {"value": 2}:
            """As above."""
        assert data == {"value": 3}
        assert client.unsubscribe(f"{receiver.url}/left")["resultType"] == "complete"


def test_only_authenticated_callers_have_webhooks_and_only_if_the_server_has_them(receiver: Receiver) -> None:
    with served(receiver.url, auth=None) as (client, _):
        (listed, _) = client.ask("events/list", {}, None)["events"]
        assert listed["delivery"] == ["poll", "push"]
        assert client.subscribe(receiver.url, None)["code"] == FORBIDDEN
        assert client.unsubscribe(receiver.url, None)["code"] == FORBIDDEN
    server = Server(number, name="none")
    with serving(http_app(server, auth=KEYS)) as url:
        refused = Client(url).subscribe(receiver.url)
        assert (refused["code"], refused["data"]) == (UNSUPPORTED, {"feature": "deliveryMode", "value": "webhook"})
    assert receiver.challenges == []


def test_callers_have_subscriptions_of_their_own_and_see_what_they_may(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        ada, bob = client.subscribe(receiver.url, ADA), client.subscribe(receiver.url, BOB)
        assert ada["id"] != bob["id"]
        assert len(receiver.challenges) == 2  # nobody's verification counts for another
        assert client.subscribe(receiver.url, EVE)["code"] == NOT_FOUND
        assert [each["name"] for each in client.ask("events/list", {}, EVE)["events"]] == ["other"]
        assert client.unsubscribe(receiver.url, EVE)["code"] == NOT_FOUND
        server.emit("number", {"value": 1}, caller=Caller("bob", issuer="key"))
        assert receiver.next().headers["x-mcp-subscription-id"] == bob["id"]
        server.emit("number", {"value": 2})
        both = [receiver.next() for _ in range(2)]
        assert {each.headers["x-mcp-subscription-id"] for each in both} == {ada["id"], bob["id"]}
        assert {each.json["data"]["value"] for each in both} == {2}


def test_subscriptions_are_bounded_and_shared_by_the_callers(receiver: Receiver) -> None:
    with served(receiver.url, max_subscriptions=4) as (client, _):
        for path in "ab":
            assert "id" in client.subscribe(f"{receiver.url}/{path}")
        refused = client.subscribe(f"{receiver.url}/c")
        assert (refused["code"], refused["data"]) == (RESOURCE_EXHAUSTED, {"limit": "subscriptions", "max": 4})
        assert "id" in client.subscribe(f"{receiver.url}/a")
        assert "id" in client.subscribe(f"{receiver.url}/c", BOB)
        client.unsubscribe(f"{receiver.url}/a")
        assert "id" in client.subscribe(f"{receiver.url}/d", BOB)


def test_the_arguments_of_a_subscription_are_bounded(receiver: Receiver) -> None:
    with served(receiver.url) as (client, _):
        delivery = {"mode": "webhook", "url": receiver.url, "secret": SECRET}
        params = {"name": "other", "arguments": {"text": "x" * 70_000}, "delivery": delivery}
        refused = client.ask("events/subscribe", params)
        assert refused["code"] == INVALID_PARAMS
        assert "a subscription may take" in refused["message"]
        assert receiver.challenges == []


def test_times_are_granted_within_bounds(receiver: Receiver) -> None:
    def seconds(**params: Any) -> float:
        granted = client.subscribe(receiver.url, **params)["refreshBefore"]
        return (datetime.fromisoformat(granted) - datetime.now(UTC)).total_seconds()

    with served(receiver.url, max_subscription_seconds=7200) as (client, _):
        for params, most in (({}, 3600), ({"ttlMs": 1}, 60), ({"ttlMs": 600_000}, 600), ({"ttlMs": 10**12}, 7200)):
            assert most - 60 < seconds(**params) <= most
        assert 7100 < seconds(ttlMs=None) <= 7200
        assert client.subscribe(receiver.url, ttlMs="7")["code"] == INVALID_PARAMS


def test_webhooks_go_on_after_a_restart_with_the_file(receiver: Receiver, tmp_path: Path) -> None:
    with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (client, server):
        begun = client.subscribe(receiver.url)
        server.emit("number", {"value": 1})
        assert receiver.next_event()["data"] == {"value": 1}
        receiver.statuses += [503] * 1000
        server.emit("number", {"value": 2})
        receiver.next()
    while not receiver.is_empty:
        receiver.next()
    receiver.statuses.clear()
    with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (client, server):
        received = receiver.next()  # without a request of its caller
        assert (received.json["data"], received.headers["x-mcp-subscription-id"]) == ({"value": 2}, begun["id"])
        server.emit("number", {"value": 3})
        assert receiver.next_event()["data"] == {"value": 3}
        assert client.unsubscribe(receiver.url)["resultType"] == "complete"


def test_a_new_leader_reads_the_store_once_for_all_webhooks(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (client, _):
        for number_ in range(5):
            assert "id" in client.subscribe(f"{receiver.url}/{number_}")
    reads, reads_of_uses = [0], list[int]()
    read, use = SqliteEventStore.subscriptions, webhooks.Webhooks._use

    async def counted_read(store: SqliteEventStore) -> Any:
        reads[0] += 1
        return await read(store)

    async def counted_use(self: webhooks.Webhooks, *args: Any) -> None:
        before = reads[0]
        await use(self, *args)
        reads_of_uses.append(reads[0] - before)

    monkeypatch.setattr(SqliteEventStore, "subscriptions", counted_read)
    monkeypatch.setattr(webhooks.Webhooks, "_use", counted_use)
    with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (_, server):
        server.emit("number", {"value": 1})
        assert {receiver.next().path for _ in range(5)} == {f"/{number_}" for number_ in range(5)}
    assert max(reads_of_uses) == 1


def test_a_subscription_begins_after_a_cursor_and_says_if_events_are_missing(receiver: Receiver) -> None:
    with served(receiver.url, max_events=3) as (client, server):
        cursor = client.ask("events/poll", {"name": "number"})["cursor"]
        server.emit("number", {"value": 1})
        assert client.subscribe(receiver.url, cursor=cursor)["truncated"] is False
        assert receiver.next_event()["data"] == {"value": 1}
        for value in range(2, 8):
            server.emit("number", {"value": value})
        begun = client.subscribe(f"{receiver.url}/late", cursor=cursor)
        assert begun["truncated"] is True
        values: list[Any] = []
        while len(values) < 3:
            received = receiver.next()
            if received.path == "/late":
                values.append(received.json["data"]["value"])
        assert values == [5, 6, 7]
        # Its position is before the first event that is kept, so that a client that stores it misses none of them.
        found = client.ask("events/poll", {"name": "number", "cursor": begun["cursor"]})
        assert (found["truncated"], [each["data"]["value"] for each in found["events"]]) == (False, [5, 6, 7])


def test_a_subscription_leaves_out_events_that_are_too_old(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        cursor = client.ask("events/poll", {"name": "number"})["cursor"]
        feed = server.features.events.local()[0]  # type: ignore[union-attr]
        feed.emit({"value": 1}, timestamp=datetime.now(UTC) - timedelta(minutes=10))
        feed.emit({"value": 2})
        assert client.subscribe(receiver.url, cursor=cursor, maxAgeMs=60_000)["truncated"] is True
        assert receiver.next_event()["data"] == {"value": 2}


def test_callbacks_of_one_caller_that_hang_do_not_delay_those_of_another(receiver: Receiver) -> None:
    with served(receiver.url, max_subscriptions=100) as (client, server):
        for path in range(12):
            assert "id" in client.subscribe(f"{receiver.url}/slow/{path}")
        assert "id" in client.subscribe(f"{receiver.url}/fast", BOB)
        with receiver.holding("/slow/"):
            server.emit("number", {"value": 1})
            assert receiver.next().path == "/fast"
            server.emit("number", {"value": 2})
            assert receiver.next().path == "/fast"
            receiver.wait_for_held(MAX_POSTS_OF_ONE)
            assert len(receiver.held) == MAX_POSTS_OF_ONE
        slow = [receiver.next().path for _ in range(24)]
        assert {slow.count(f"/slow/{path}") for path in range(12)} == {2}
