from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import httpx
import pytest
from redis.crc import key_slot

from bridge import ExecutionPolicy, InvocationContext, tool
from bridge.redis import blocking_redis_at, redis_at
from bridge.server import http_app
from bridge.server.cluster import Cluster
from bridge.server.cluster import replica as link_module
from bridge.server.cluster.replica import Replica
from bridge.server.http.sessions import Sessions
from bridge.server.profiles import Profile
from bridge.server.server import Server
from bridge.tools import Spill
from tests.redis_server import redis_server
from tests.server.cluster.speaking import Talk, call, message_in, text_of
from tests.server.cluster.tools import TOOLS
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_server import RedisServer

MODERN = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "add",
}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
CALL = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}


def modern_status(url: str) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}
    return httpx.post(url, json=body, headers=MODERN).status_code


def test_without_redis_what_is_here_goes_on_and_what_is_elsewhere_waits(
    tmp_path: Path, serving: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with redis_server(tmp_path) as redis:
        one, other = (f"{serving(http_app(Server(TOOLS, name='outage'), redis_url=redis.url))}/mcp" for _ in range(2))
        talk = Talk(one)
        redis.end()
        assert [modern_status(url) for url in (one, other)] == [200, 200]
        assert text_of(message_in(talk.sum(one, 1, 2))) == "3"
        for _ in range(3):
            refused = talk.sum(other, 1, 2)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        opened_meanwhile = Talk(one)
        assert text_of(message_in(opened_meanwhile.sum(one, 1, 2))) == "3"
        assert talk.end(one) == 503
        redis.start()  # which has lost all
        for each in (talk, opened_meanwhile):
            while (answer := each.sum(other, 1, 2)).status_code == 503:
                pass
            assert text_of(message_in(answer)) == "3"
        assert talk.end(other) == 200
        while talk.sum(one, 1, 2).status_code != 404:  # the other replica may not yet have subscribed again
            pass
        gone = [record for record in caplog.records if "sessions of this replica continue" in record.getMessage()]
        assert len(gone) == 2  # each of the two announces it once


@pytest.mark.parametrize(
    "told",
    [
        b"hello",
        b"\xff",
        b'"text"',
        b"[" * 100_000,
        b'{"kind": "changed"}',
        b'{"kind": "changed", "from": 1}',
        b'{"kind": "post", "from": "another", "token": []}',
        b'{"kind": ["of no hash"], "from": "another"}',
        b'{"kind": "of a later version", "from": "another"}',
    ],
    ids=range(9),
)
def test_what_is_no_message_of_replicas_is_logged_and_nothing_else_comes_of_it(
    told: bytes, redis: RedisServer, serving: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    name = f"told-{uuid4().hex}"
    one, other = (f"{serving(http_app(Server(TOOLS, name=name), redis_url=redis.url))}/mcp" for _ in range(2))
    talk = Talk(one)
    with blocking_redis_at(redis.url) as anybody:
        assert anybody.publish(f"bridge:{{{name}}}:to:all", told) == 2
    assert talk.sum(other, 1, 2).status_code == 200
    while talk.end(other) == 503:
        pass
    while talk.sum(one, 1, 2).status_code != 404:  # it may not yet have subscribed again
        pass
    assert text_of(message_in(Talk(one).sum(other, 1, 2))) == "3"
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == 2
    assert max(map(len, logged)) < 300


@pytest.mark.anyio
async def test_redis_is_gone_where_it_was_late_twice_for_once_may_be_this_process(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with redis_at(redis.url) as client:
        link = Replica(client, f"late-{uuid4().hex}")

        async def late() -> None:
            monkeypatch.setattr(link_module, "MAX_WAIT_SECONDS", 0.01)
            try:
                with link.bounded_wait():
                    await anyio.sleep_forever()
            except TimeoutError as error:
                link.failed(error)

        async with anyio.create_task_group() as tasks:  # commands of one time are late once
            tasks.start_soon(late)
            tasks.start_soon(late)
        assert link.is_up
        monkeypatch.setattr(link_module, "MAX_WAIT_SECONDS", 60)  # a response is in time, however busy the machine is
        with link.bounded_wait():
            await client.ping()
        await late()
        assert link.is_up
        await late()
        assert not link.is_up


def test_all_keys_of_a_server_are_on_one_node_of_a_cluster(redis: RedisServer) -> None:
    link = Cluster(redis.url, Server(TOOLS, name="one"), Sessions(), None).replica
    assert {key_slot(link.key(*parts).encode()) for parts in (("session", "a"), ("ended", "b"), ("rate", "c"))} == {
        key_slot(b"{one}")
    }


@pytest.mark.parametrize("event_id", ["99999999999999999999-0/5", "1-0/5"])
def test_a_command_that_redis_refuses_is_no_outage(
    redis: RedisServer, serving: Callable[..., str], caplog: pytest.LogCaptureFixture, event_id: str
) -> None:
    name = f"refused-{uuid4().hex}"
    one, other = (f"{serving(http_app(Server(TOOLS, name=name), redis_url=redis.url))}/mcp" for _ in range(2))
    talk = Talk(one)
    client = blocking_redis_at(redis.url)
    client.set(f"bridge:{{{name}}}:events:{talk.id}:5", "no stream")
    client.close()
    headers = talk.headers | {"last-event-id": event_id}
    for _ in range(3):
        with httpx.stream("GET", one, headers=headers, timeout=30) as response:
            if event_id == "1-0/5":
                response.read()
    elsewhere = Talk(other)
    assert elsewhere.sum(one, 1, 2).status_code == 200, "the replica that was asked looks sessions up in Redis on"
    told = [record.getMessage() for record in caplog.records]
    assert not [each for each in told if "Redis is unavailable" in each]
    assert len([each for each in told if "Redis refused a command" in each]) == (event_id == "1-0/5")


@pytest.mark.anyio
async def test_a_replica_that_may_not_say_that_it_is_alive_counts_redis_as_out_of_use(redis: RedisServer) -> None:
    link = Replica(redis_at(redis.url), f"bridge:{{{uuid4().hex}}}")
    redis_as_any: Any = link.redis  # which is not typed this far
    await redis_as_any.execute_command("ACL", "SETUSER", "default", "-set")
    try:
        async with link.running():
            with anyio.fail_after(30):
                while link.is_up:  # noqa: ASYNC110 - a plain flag
                    await anyio.sleep(0.01)
    finally:
        client: Any = blocking_redis_at(redis.url)
        client.execute_command("ACL", "SETUSER", "default", "+set")
        client.close()


def test_a_process_has_two_connections_whatever_it_shares(redis: RedisServer, serving: Callable[..., str]) -> None:
    @tool(task=True)
    async def report(context: InvocationContext) -> str:
        """Write a report."""
        await context.progress(1, 2)
        return "a report of many pages, which is kept aside" * 10

    name = f"counted-{uuid4().hex}"
    policy = ExecutionPolicy(spill=Spill(chars=20))
    server = Server([*TOOLS, report], name=name, policy=policy)
    profiles = [Profile(name=f"team-{number}") for number in range(3)]
    origin = serving(http_app(server, redis_url=f"{redis.url}?client_name={name}", profiles=profiles))
    with ExitStack() as stack:
        for path in (f"/mcp/{profile.name}" for profile in profiles):
            client = stack.enter_context(TaskClient(origin, path=path))
            tasks = [client.created("report") for _ in range(20)]
            talk = Talk(f"{origin}{path}")
            assert text_of(message_in(talk.sum(f"{origin}{path}", 1, 2))) == "3"
            with talk.streamed(f"{origin}{path}", id=1, **call("slow_sum", token="t", a=1, b=2)) as stream:
                first, *_ = stream
            with talk.resumed(f"{origin}{path}", first.id) as resumed:
                assert text_of(list(resumed)[-1].message) == "3"
            for task in tasks:
                client.settled(task)
        with blocking_redis_at(redis.url) as client:
            assert sum(each["name"] == name for each in client.client_list()) == 2
