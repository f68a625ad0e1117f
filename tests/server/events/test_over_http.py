"""Streams of events over HTTP: of one server and of replicas, their end with a credential, and what a key selects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import pytest

from bridge import HttpTransport, McpToolProvider, ServerConfig
from bridge.protocol.versions import FORBIDDEN, NOT_FOUND
from bridge.server.auth import KeyFile
from tests.redis_server import RedisServer
from tests.server.events.hooks import ADA, BOB, EVE, Client, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(60):
        yield


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.end()


def provider_of(client: Client, key: str = ADA) -> McpToolProvider:
    transport = HttpTransport(f"{client.url}/mcp", headers={"Authorization": f"Bearer {key}"})
    return McpToolProvider([ServerConfig(name="hooks", transport=transport)])


async def test_events_that_one_replica_emits_reach_the_streams_of_another(redis: RedisServer) -> None:
    with served(redis_url=redis.url) as (_, first), served(redis_url=redis.url) as (two, second):
        async with provider_of(two) as provider, provider.events.subscribe("number", {"least": 2}) as events:
            for value in (1, 2):
                await anyio.to_thread.run_sync(first.emit, "number", {"value": value})
            second.emit("number", {"value": 3})
            assert sorted([(await anext(events)).data["value"] for _ in range(2)]) == [2, 3]


async def test_a_cursor_of_one_replica_continues_at_another(redis: RedisServer) -> None:
    with served(redis_url=redis.url) as (one, first), served(redis_url=redis.url) as (two, _):
        async with provider_of(one) as provider, provider.events.subscribe("number") as events:
            first.emit("number", {"value": 1})
            await anext(events)
            cursor = events.cursor
        first.emit("number", {"value": 2})
        async with provider_of(two) as provider, provider.events.subscribe("number", cursor=cursor) as events:
            assert (await anext(events)).data == {"value": 2}
            assert events.gaps == 0


async def test_a_key_selects_events() -> None:
    with served() as (client, server):
        async with provider_of(client, EVE) as provider:
            assert [each.name for each in await provider.events.list()] == ["other"]
            async with provider.events.subscribe("other") as events:
                server.emit("number", {"value": 1})
                server.emit("other", {"value": 2})
                assert (await anext(events)).name == "other"
        for method in ("events/poll", "events/stream"):
            assert client.ask(method, {"name": "number"}, EVE)["code"] == NOT_FOUND


async def test_a_stream_ends_with_its_credential(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"ada {ADA}\nbob {BOB}\n")
    path.chmod(0o600)
    with served(auth=KeyFile(path, check_seconds=0.02)) as (client, _):
        message = {"jsonrpc": "2.0", "id": 7, "method": "events/stream", "params": {"name": "number", "_meta": META}}
        headers = Client.headers("events/stream", ADA)
        with httpx.stream("POST", f"{client.url}/mcp", json=message, headers=headers, timeout=60) as response:
            said: list[Any] = []
            for line in response.iter_lines():
                if line.startswith("data:"):
                    said.append(json.loads(line.removeprefix("data:")))
                    if len(said) == 1:
                        path.write_text(f"bob {BOB}\n")
    active, terminated, result = said
    assert active["method"] == "notifications/events/active"
    assert terminated["method"] == "notifications/events/terminated"
    assert terminated["params"]["error"]["code"] == FORBIDDEN
    assert terminated["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 7}
    assert result["id"] == 7
    assert "result" in result
