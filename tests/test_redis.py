from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.redis import RedisUnreachableError, check_reachable, is_redis_url, redacted_url, redis_at
from bridge.server.cluster.replica import Replica
from tests.ports import free_port
from tests.redis_server import REDIS, VALKEY, redis_server

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["redis://:secret@127.0.0.1:1/0", "nonsense://127.0.0.1"])
async def test_a_redis_that_cannot_be_used_is_told_without_its_password(url: str) -> None:
    with pytest.raises(RedisUnreachableError, match=r"cannot be used|invalid Redis URL") as told:
        await check_reachable(url)
    assert "secret" not in str(told.value)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("program", [REDIS, VALKEY])
async def test_a_node_of_a_cluster_is_refused_with_the_reason(tmp_path: Path, program: str) -> None:
    with redis_server(tmp_path, program, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as node:
        reason = r"is in cluster mode.*use a Redis or Valkey without cluster mode"
        with pytest.raises(RedisUnreachableError, match=reason):
            await check_reachable(node.url)
        replica = Replica(redis_at(node.url), "bridge:{node}")
        with pytest.raises(RedisUnreachableError, match=reason):
            async with replica.running():
                pass
        await replica.redis.aclose()
    with redis_server(tmp_path, program) as server:
        await check_reachable(server.url)


def test_the_place_of_a_redis_holds_no_secret() -> None:
    assert redacted_url("redis://user:secret@cache.example:6379/0") == "cache.example:6379"


@pytest.mark.parametrize("url", ["redis://localhost", "rediss://cache.example:6380/1", "unix:///run/redis.sock?db=2"])
def test_what_begins_as_the_address_of_a_redis_is_one(url: str) -> None:
    assert is_redis_url(url)


@pytest.mark.parametrize("path", ["", "redis", "redis.db", "redis:/db", "/run/redis://", "http://localhost", "file:x"])
def test_a_path_is_no_address_of_a_redis(path: str) -> None:
    assert not is_redis_url(path)
