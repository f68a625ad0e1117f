"""Events of calls in a real Redis."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import pytest

from bridge.protocol.messages import notification, result_message
from bridge.protocol.replay import StreamPosition, event_id_of, position_of
from bridge.redis import redis_at
from bridge.server.cluster import event_store
from bridge.server.cluster.event_store import RedisEvents
from bridge.server.cluster.replica import GONE_SECONDS, Replica
from bridge.server.http import event_store as events_module
from bridge.server.http.event_store import EventBytes
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.redis_server import RedisServer

DEADLINE_SECONDS = 60
ANSWER = result_message(5, '{"text":"größer"}'.encode())
REPORT = notification("notifications/message", {"data": "a"})
QUESTION = b'{"jsonrpc":"2.0","id":"r/1","method":"ping"}'

pytestmark = pytest.mark.anyio


@pytest.fixture
async def replicas(redis: RedisServer) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two replicas of one server, which are alive and have seen that no data was lost."""
    prefix = f"bridge:{{{uuid4().hex}}}"
    one, other = (Replica(redis_at(redis.url), prefix) for _ in range(2))
    one._began_at = other._began_at = -math.inf
    async with one.redis, other.redis:
        for each in (one, other):
            await each.redis.set(each.key("alive", each.id), "1", ex=GONE_SECONDS)
        yield one, other


@pytest.fixture
def replica(replicas: tuple[Replica, Replica]) -> Replica:
    return replicas[0]


def events_of(replica: Replica) -> RedisEvents:
    return RedisEvents(replica, "a-session", 60, EventBytes())


def at(event_id: str) -> StreamPosition:
    position = position_of(event_id)
    assert position is not None
    return position


async def replayed(events: RedisEvents, event_id: str) -> list[tuple[str, bytes]]:
    """Return the events after one, up to the end of the stream."""
    with anyio.fail_after(DEADLINE_SECONDS):
        return [event async for event in events.follow(at(event_id)) if event is not None]


async def test_events_are_replayed_and_followed_to_the_response(replica: Replica) -> None:
    events = events_of(replica)
    start = await events.store("5", None)
    asked = await events.store("5", QUESTION)
    with anyio.fail_after(DEADLINE_SECONDS):
        following = events.follow(at(start))
        assert await anext(following) == (asked, QUESTION)
        assert await anext(following) is None
        reported = await events.store("5", REPORT, is_notification=True)
        assert await anext(following) == (reported, REPORT)
        answer = await events.store("5", ANSWER, is_answer=True)
        assert [event async for event in following if event is not None] == [(answer, ANSWER)]
    whole = [(asked, QUESTION), (reported, REPORT), (answer, ANSWER)]
    for number, event_id in enumerate((start, asked, reported, answer)):
        assert await replayed(events, event_id) == whole[number:]
    assert await replayed(events, "0-0/5") == whole


async def test_another_replica_follows_and_closes_the_streams_of_a_call(replicas: tuple[Replica, Replica]) -> None:
    events, elsewhere = map(events_of, replicas)
    start = await events.store("5", None)
    await events.close_streams("5")  # earlier than it is followed
    with anyio.fail_after(DEADLINE_SECONDS):
        following = elsewhere.follow(at(start))
        assert await anext(following) is None
        await elsewhere.close_streams("5")
        assert [event async for event in following if event is not None] == []
    answer = await events.store("5", ANSWER, is_answer=True)
    assert await replayed(elsewhere, start) == [(answer, ANSWER)]


async def test_a_call_of_a_replica_that_has_ended_ends_with_an_error(replicas: tuple[Replica, Replica]) -> None:
    ended, other = replicas
    start = await events_of(ended).store("5", None)
    await ended.redis.delete(ended.key("alive", ended.id))
    ((event_id, error),) = await replayed(events_of(other), start)
    message = json.loads(error)
    assert (message["id"], message["error"]["code"]) == (5, -32603)
    assert "the replica that ran this call has ended" in message["error"]["message"]
    assert await replayed(events_of(other), "0-0/5") == [(event_id, error)]


async def test_notifications_over_the_limit_are_not_stored(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MAX_NOTIFICATION_BYTES", 0)
    events = events_of(replica)
    start = await events.store("5", None)
    assert await events.store("5", REPORT, is_notification=True) == start
    asked = await events.store("5", QUESTION)
    answer = await events.store("5", ANSWER, is_answer=True)
    assert await replayed(events, start) == [(asked, QUESTION), (answer, ANSWER)]


async def test_a_call_without_events_ends_with_an_error_that_is_stored(replica: Replica) -> None:
    events = events_of(replica)
    ((event_id, error),) = await replayed(events, "0-0/5")
    message = json.loads(error)
    assert (message["id"], message["error"]["code"]) == (5, -32603)
    assert "no longer stored" in message["error"]["message"]
    assert await replayed(events, "0-0/5") == [(event_id, error)]
    assert await replayed(events, event_id) == []


async def test_events_stay_in_redis_until_they_are_dropped(replica: Replica) -> None:
    events = events_of(replica)
    for stream in "12":
        await events.store(stream, None)
        await events.store(stream, ANSWER, is_answer=True)
        await events.delivered(stream)
    pattern = f"{replica.key('events')}:*"
    events.forget()
    assert len(await replica.redis.keys(pattern)) == 2
    await events.drop_all()
    assert (events.size, await replica.redis.keys(pattern)) == (0, [])


async def test_ids_of_requests_may_be_any_text(replica: Replica) -> None:
    events = events_of(replica)
    start = await events.store("\ud800:/", None)
    await events.store("\ud800:/", ANSWER, is_answer=True)
    ((_, answer),) = await replayed(events, start)
    assert answer == ANSWER


async def test_what_could_not_be_stored_is_stored_later_and_following_ends_meanwhile(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        replica = Replica(redis_at(server.url), "bridge:{away}")
        async with replica.redis:
            events = events_of(replica)
            start = await events.store("5", None)
            following = events.follow(at(start))
            assert await anext(following) is None
            server.end()
            assert [event async for event in following] == []
            assert replica.is_up is False
            assert await events.store("5", REPORT, is_notification=True) == event_id_of("0-0", "5")
            assert await events.store("5", ANSWER, is_answer=True) == event_id_of("0-0", "5")
            server.start()
            await replica.redis.connection_pool.disconnect()
            await events.store_unstored()
            ((_, answer),) = await replayed(events, start)
            assert answer == ANSWER
            assert events._unstored == {}


async def test_what_waits_for_redis_is_bounded_however_long_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "_MAX_UNSTORED", 150)
    replica = Replica(redis_at("redis://127.0.0.1:9"), "bridge:{away}")
    replica.is_up = False
    events = events_of(replica)
    for number in range(200):
        await events.store(str(number), None)
        await events.store(str(number), ANSWER, is_answer=True)
    waiting = events._unstored
    await replica.redis.aclose()
    assert list(waiting) == [str(number) for number in range(150)]
    assert sum(b"result" in text for text in waiting.values()) == 100
    assert all(b"result" in text or b"error" in text for text in waiting.values())
