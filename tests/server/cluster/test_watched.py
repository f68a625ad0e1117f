"""Resources that a session watches, on every replica."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx
import pytest
from anyio import fail_after, to_thread

from bridge import ResourceBox, resource
from bridge.redis import redis_at
from bridge.server import Features, http_app
from bridge.server.cluster.replica import Replica
from bridge.server.cluster.session_records import SessionRecords, watched_message
from bridge.server.lists import resources
from bridge.server.server import Server
from tests.server.cluster.speaking import DEADLINE_SECONDS, Replicas, Talk, events, message_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_server import RedisServer

PACE_SECONDS = 0.05


@resource("notes://{number}")
def note(number: int) -> int:
    """A note."""
    return number


RESOURCES = ResourceBox(note)
"""The resources of the first replica, which updates them."""


@pytest.fixture
def name() -> str:
    """The name of both servers."""
    return f"watched-{uuid4().hex}"


@pytest.fixture
def replicas(redis: RedisServer, serving: Callable[..., str], name: str) -> Replicas:
    """Two servers with resources."""
    boxes = (RESOURCES, ResourceBox(note))
    return Replicas(
        *(f"{serving(http_app(Server(Features(resources=box), name=name), redis_url=redis.url))}/mcp" for box in boxes)
    )


def asked(talk: Talk, url: str, verb: str, uri: str) -> dict[str, object]:
    answer = message_in(talk.post(url, method=f"resources/{verb}", id=uri, params={"uri": uri}))
    found: dict[str, object] = answer["result"] if "result" in answer else answer["error"]
    return found


@contextmanager
def heard(talk: Talk, url: str, repeated: str) -> Iterator[Iterator[str]]:
    """Yield the URIs on a session's stream; the first is updated until the stream is open."""
    is_open = Event()

    def update() -> None:
        while not is_open.wait(PACE_SECONDS):
            RESOURCES.updated(repeated)

    with httpx.stream("GET", url, headers=talk.headers, timeout=DEADLINE_SECONDS) as stream:
        assert stream.status_code == 200
        updates = Thread(target=update)
        updates.start()
        told = (each.message["params"]["uri"] for each in events(stream) if each.message is not None)
        try:
            assert next(told) == repeated
        finally:
            is_open.set()
            updates.join()
        yield (uri for uri in told if uri != repeated)


def test_a_session_that_watches_on_one_replica_is_told_on_another(replicas: Replicas) -> None:
    talk = Talk(replicas.one)
    assert talk.post(replicas.one, method="notifications/initialized").status_code == 202
    assert asked(talk, replicas.other, "subscribe", "notes://1") == {}
    with heard(talk, replicas.one, "notes://1") as told:
        for uri in ("notes://2", "notes://3", "notes://4"):
            assert asked(talk, replicas.other, "subscribe", uri) == {}
        assert asked(talk, replicas.other, "unsubscribe", "notes://2") == {}
        for uri in ("notes://2", "notes://3"):
            RESOURCES.updated(uri)
        assert next(told) == "notes://3"
        RESOURCES.updated("notes://4")
        assert next(told) == "notes://4"


def test_what_a_session_watches_goes_with_it_to_another_replica(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(replicas.one)
    for uri in ("notes://1", "notes://2"):
        assert asked(talk, replicas.one, "subscribe", uri) == {}
    with heard(talk, replicas.other, "notes://1") as told:
        RESOURCES.updated("notes://2")
        assert next(told) == "notes://2"
    monkeypatch.setattr(resources, "MAX_WATCHED", 2)
    assert asked(talk, replicas.other, "subscribe", "notes://2") == {}
    error = {"code": -32005, "message": "a session may watch 2 resources; unsubscribe from others"}
    assert asked(talk, replicas.other, "subscribe", "notes://3") == error
    monkeypatch.setattr(resources, "MAX_WATCHED_BYTES", 20)
    assert asked(talk, replicas.other, "unsubscribe", "notes://2") == {}
    error["message"] = "a session may watch URIs of 20 bytes, not 22; unsubscribe from others"
    assert asked(talk, replicas.one, "subscribe", "notes://10000") == error


@pytest.mark.anyio
async def test_what_two_replicas_store_at_once_is_kept_whole(redis: RedisServer, replicas: Replicas, name: str) -> None:
    talk = await to_thread.run_sync(Talk, replicas.one)
    assert await to_thread.run_sync(asked, talk, replicas.one, "subscribe", "notes://1") == {}
    another = Replica(redis_at(redis.url), f"bridge:{{{name}}}")
    async with another.redis:
        records = SessionRecords(another, None)
        record = await records.find(talk.id)
        assert record is not None
        await records.save(replace(record, watched=["notes://2"]))
        await another.publish(watched_message(talk.id, ["notes://2"]))
        with fail_after(DEADLINE_SECONDS):
            while record.watched != ["notes://1", "notes://2"]:
                record = await records.find(talk.id)
                assert record is not None


@pytest.mark.skipif(sys.platform == "win32", reason="a process is stopped")
def test_what_a_session_watches_while_redis_hangs_is_told_to_the_others_later(
    redis: RedisServer, replicas: Replicas
) -> None:
    talk = Talk(replicas.one)
    assert asked(talk, replicas.other, "subscribe", "notes://1") == {}
    with redis.hanging():
        assert asked(talk, replicas.one, "subscribe", "notes://2") == {}
    with heard(talk, replicas.other, "notes://2") as told:
        RESOURCES.updated("notes://1")
        assert next(told) == "notes://1"
