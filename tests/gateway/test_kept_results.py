"""Large results of servers that a gateway keeps aside, and those that a server behind it has kept."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ExecutionPolicy, McpToolProvider, ResourceLink, tool
from bridge.client import Connection, MemoryTransport, ServerConfig
from bridge.gateway import Gateway
from bridge.server import Server
from bridge.tools import Spill
from tests.gateway.between import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"], ids=["modern", "handshake"])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def lines(count: int) -> str:
    return "\n".join(f"line {number} of the log" for number in range(count))


@tool
async def log(count: int) -> str:
    """Return text."""
    return lines(count)


@tool(task=True)
async def slow(count: int) -> str:
    """Run as a task."""
    return lines(count)


@tool
async def rows(count: int) -> list[int]:
    """Return structured content."""
    return list(range(count))


def upstream(name: str, *, era: Any = "auto", spill: Spill | None = None, **settings: Any) -> ServerConfig:
    server = Server([log, rows, slow], name=name, policy=ExecutionPolicy(spill=spill))
    return ServerConfig(name=name, transport=MemoryTransport(server), protocol=era, **settings)


@asynccontextmanager
async def gateway_to(
    *servers: ServerConfig, era: Any = "2026-07-28", spill: Spill | None = None
) -> AsyncIterator[Connection]:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Gateway(servers) as gateway:
            server = Server(gateway.features, name="gateway", policy=ExecutionPolicy(spill=spill))
            config = ServerConfig(name="gateway", transport=MemoryTransport(server), protocol=era)
            async with Connection(config) as connection:
                yield connection


async def link_of(connection: Connection, name: str, count: int) -> str:
    result = await connection.call_tool(name, {"count": count})
    (uri,) = [block["uri"] for block in result["content"] if block["type"] == "resource_link"]
    assert isinstance(uri, str)
    return uri


async def text_at(connection: Connection, uri: str) -> str:
    (contents,) = (await connection.request("resources/read", {"uri": uri}))["contents"]
    text: str = contents["text"]
    return text


async def read_result(connection: Connection, uri: str, **arguments: Any) -> str:
    result = await connection.call_tool("read_result", {"uri": uri, **arguments})
    text: str = result["content"][0]["text"]
    return text


@ERAS
@pytest.mark.parametrize("behind", ["2026-07-28", "legacy"])
async def test_results_of_servers_are_kept_over_the_limit_of_the_gateway(era: str, behind: str) -> None:
    async with gateway_to(upstream("one", era=behind), era=era, spill=Spill(chars=500)) as connection:
        short = await connection.call_tool("log", {"count": 10})
        assert [block["text"] for block in short["content"]] == [lines(10)]
        for _ in range(2):
            assert await text_at(connection, await link_of(connection, "log", 100)) == lines(100)
        long = await connection.call_tool("rows", {"count": 1000})
        assert long["structuredContent"] == {"result": list(range(1000))}
        assert len(long["content"][0]["text"]) < 1000


@ERAS
async def test_a_server_has_a_limit_of_its_own(era: str) -> None:
    servers = upstream("small", spill_chars=200), upstream("large")
    async with gateway_to(*servers, era=era) as connection:
        uri = await link_of(connection, "small_log", 100)
        assert await read_result(connection, uri, first_line=100, lines=1) == (
            f"[characters {len(lines(99)) + 1:,} to {len(lines(100)):,} of {len(lines(100)):,}]\nline 99 of the log"
        )
        whole = await connection.call_tool("large_log", {"count": 3000})
        assert [block["text"] for block in whole["content"]] == [lines(3000)]


@pytest.mark.parametrize("count", [1, 2], ids=["its own URIs", "URIs with the server's name"])
async def test_what_a_server_behind_has_kept_is_read_through_the_gateway(count: int) -> None:
    servers = [upstream(f"s{number}", spill=Spill(chars=2_000, preview_chars=100)) for number in range(count)]
    name = "log" if count == 1 else "s0_log"
    async with gateway_to(*servers, spill=Spill(chars=1_000)) as connection:
        uri = await link_of(connection, name, 300)
        assert await text_at(connection, uri) == lines(300)
        assert "line 7 of the log" in await read_result(connection, uri, first_line=8, lines=1)


async def test_the_result_of_a_task_of_a_server_is_kept() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Gateway([upstream("one")]) as gateway:
            server = Server(gateway.features, name="gateway", policy=ExecutionPolicy(spill=Spill(chars=500)))
            async with McpToolProvider(ServerConfig(name="gateway", transport=MemoryTransport(server))) as provider:
                for count in (5, 100):
                    task = await provider.start("slow", count=count)
                    assert str(task).startswith("task:gateway/slow/gateway.")  # its server has made it
                    result = await task.result()
                    links = [block.uri for block in result.content if isinstance(block, ResourceLink)]
                    assert len(links) == (count == 100)
                (file,) = await provider.resources.read(links[0])
                assert file.content == lines(100)
