"""The two connections of a process to a Redis, which all its clients share."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import pytest
from redis import Redis
from redis.exceptions import ResponseError

from bridge.redis import is_outage, redis_at
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio
DEADLINE_SECONDS = 30


@pytest.fixture
def anyio_backend() -> str:
    """redis-py runs on asyncio alone."""
    return "asyncio"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis for this test alone, whose connections are counted."""
    with redis_server(tmp_path) as server:
        yield server


def connections(redis: RedisServer) -> int:
    """Return the number of connections, without that of this question."""
    with Redis.from_url(redis.url) as client:
        found: Any = client.client_list()
        return len(found) - 1


async def test_clients_of_one_url_share_a_connection_for_commands_and_one_for_channels(redis: RedisServer) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with AsyncExitStack() as stack:
            clients = [redis_at(redis.url) for _ in range(5)]
            for client in clients:
                stack.push_async_callback(client.aclose)
            counts = await asyncio.gather(*(client.incr("count") for client in clients for _ in range(100)))
            assert sorted(counts) == list(range(1, 501))
            queues = [
                await stack.enter_async_context(client.channels.subscribed("all", str(number)))
                for number, client in enumerate(clients)
            ]
            for queue in queues:
                assert await queue.get() is None
            await clients[0].publish("3", "to one")
            await clients[0].publish("all", "to all")
            assert [await queue.get() for queue in queues] == [b"to all"] * 3 + [b"to one", b"to all"]
            assert await queues[3].get() == b"to all"
            async with clients[0].pipeline(transaction=True) as pipeline:
                pipeline.set("a", "1")
                pipeline.get("a")
                assert await pipeline.execute() == [True, "1"]
            assert connections(redis) == 2
        assert connections(redis) == 0


async def test_an_error_reply_concerns_its_command_alone(redis: RedisServer) -> None:
    client = redis_at(redis.url)
    wrong = client.eval("return redis.error_reply('MISCONF no disk')", 0)
    with anyio.fail_after(DEADLINE_SECONDS):
        # The first is sent alone, and the others wait, and are sent together.
        given = await asyncio.gather(
            client.set("a", "secret"), client.lpush("a", "secret"), wrong, client.get("a"), return_exceptions=True
        )
        await client.aclose()
    assert (given[0], given[3]) == (True, "secret")
    assert str(given[1]).startswith("WRONGTYPE") or "wrong kind" in str(given[1])
    assert isinstance(given[1], ResponseError)
    assert not is_outage(given[1])
    assert isinstance(given[2], ResponseError)
    assert is_outage(given[2])
    assert "secret" not in str(given[1])


async def test_pipelines_are_answered_in_their_order_beside_other_commands(redis: RedisServer) -> None:
    client = redis_at(redis.url)

    async def use(number: int) -> None:
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.hset(f"hash {number}", "field", number)
            pipeline.hgetall(f"hash {number}")
            pipeline.lpush(f"hash {number}", "secret")
            added, content, error = await pipeline.execute(raise_on_error=False)
            assert (added, content) == (1, {"field": str(number)})
            assert isinstance(error, ResponseError)
            pipeline.lpush(f"hash {number}", "secret")
            with pytest.raises(ResponseError):
                await pipeline.execute()

    with anyio.fail_after(DEADLINE_SECONDS):
        await asyncio.gather(*map(use, range(200)))
        assert connections(redis) == 1
        await client.aclose()


async def test_a_command_that_is_given_up_leaves_the_others_and_the_connection(redis: RedisServer) -> None:
    client = redis_at(redis.url)
    with anyio.fail_after(DEADLINE_SECONDS):
        await client.ping()
        with redis.hanging(), anyio.move_on_after(0.1) as waiting:
            await client.set("a", "1")
        assert waiting.cancelled_caught
        assert await client.get("a") == "1"
        await client.aclose()


async def test_channels_are_subscribed_again_after_an_outage(redis: RedisServer) -> None:
    client, name = redis_at(redis.url), uuid4().hex
    with anyio.fail_after(DEADLINE_SECONDS):
        async with client.channels.subscribed(name) as received:
            assert await received.get() is None
            redis.end()
            assert isinstance(await received.get(), Exception)
            redis.start()
            while isinstance(await received.get(), Exception):
                pass
            with Redis.from_url(redis.url) as other:
                other.publish(name, b"\xff")
            assert await received.get() == b"\xff"
        redis.end()  # while there is no subscription
        redis.start()
        async with client.channels.subscribed(name) as received:
            while await received.get() is not None:
                pass
        await client.aclose()


async def test_subscriptions_come_and_go_while_others_stay(redis: RedisServer) -> None:
    client = redis_at(redis.url)
    with anyio.fail_after(DEADLINE_SECONDS):
        for number in range(50):  # closing the connection each time would lose cancellations in redis-py
            async with client.channels.subscribed("a", str(number)) as received:
                assert await received.get() is None
                async with client.channels.subscribed("a") as other:
                    assert await other.get() is None
                    await client.publish("a", number)
                    assert await other.get() == await received.get() == str(number).encode()
                assert await client.publish("a", number) == 1
        await client.aclose()


async def test_a_subscriber_that_falls_behind_is_asked_to_look_for_what_it_has_missed(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.redis_connections._MAX_RECEIVED", 2)
    client = redis_at(redis.url)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with client.channels.subscribed("a") as slow, client.channels.subscribed("b") as other:
            assert await slow.get() is None
            assert await other.get() is None
            for number in range(3):
                await client.publish("a", number)
            await client.publish("b", "last")
            assert await other.get() == b"last"
            assert [await slow.get() for _ in range(1)] == [None]
            assert slow.empty()
        await client.aclose()
