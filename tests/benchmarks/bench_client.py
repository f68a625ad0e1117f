"""As a client: tools of servers through a provider, and through the official client"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.server import Server as McpServer
from mcp_types import ListToolsResult

from bridge import ToolBox, tools_from
from bridge.adapters.sdk import sdk_server
from bridge.client import (
    Connection,
    HttpTransport,
    McpToolProvider,
    MemoryTransport,
    ServerConfig,
    StdioTransport,
)
from bridge.server.server import Server
from tests.benchmarks import tools
from tests.benchmarks.http_server import serving
from tests.benchmarks.messages import Era
from tests.benchmarks.processes import MANY_TOOLS, ROOT, TOOLS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from bridge.client.config.servers import ProtocolPin
    from tests.benchmarks.http_server import HttpServer
    from tests.benchmarks.meter import Meter

OFFICIAL = "mcp.Client"
ARGUMENTS = {"a": 1, "b": 2}
CALLS_IN_A_ROUND = {1: 50, 16: 96, 256: 256}
ROUNDS = {1: 60, 16: 40, 256: 20}
CONNECTING_ROUNDS = {1: 20, 10: 8, 100: 3}
SLOW_SECONDS = 0.25
MANY = 10_000
LISTING_ROUNDS = 5
LIMIT_SECONDS = 1800
PINS: dict[Era, ProtocolPin] = {Era.HANDSHAKE: "legacy", Era.MODERN: "2026-07-28"}
TOOLBOX = ToolBox(tools_from(tools))
CHILD = ("-m", "bridge", "serve", TOOLS)


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with serving(TOOLS, limit_seconds=LIMIT_SECONDS) as server:
        yield server


class Loop:
    """Event loop, in which contexts stay open while rounds are measured."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.run = runner.run
        self._loop = runner.get_loop()

    @contextmanager
    def holding(self, context: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
        """Enter a context; it is left by the task that has entered it."""
        entered: asyncio.Future[Any] = self._loop.create_future()
        over = asyncio.Event()

        async def hold() -> None:
            async with context as held:
                entered.set_result(held)
                await over.wait()

        async def begin() -> None:
            await asyncio.wait((task, entered), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()

        async def end() -> None:
            over.set()
            await task

        task = self._loop.create_task(hold())
        self.run(begin())
        try:
            yield entered.result()
        finally:
            self.run(end())


@pytest.fixture
def loop() -> Iterator[Loop]:
    with asyncio.Runner() as runner:
        yield Loop(runner)


def url(server: HttpServer) -> str:
    return f"http://127.0.0.1:{server.port}/mcp"


@asynccontextmanager
async def official(target: Any, era: Era) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Open the official client and list the tools; yields a function that makes a call."""
    async with Client(target, mode=PINS[era]) as client:
        await client.list_tools()
        yield lambda: client.call_tool("add", ARGUMENTS)


@asynccontextmanager
async def ours(transport: Any, era: Era) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Open a provider; yields a function that makes a call."""
    config = ServerConfig(name="server", transport=transport, protocol=PINS[era], required=True)
    async with McpToolProvider(config) as provider:
        yield lambda: provider.call("add", ARGUMENTS)


def opened(kind: str, server: HttpServer, era: Era) -> tuple[AbstractAsyncContextManager[Any], ...]:
    """Open the official client and a provider, each with a child or session of its own."""
    if kind == "memory":
        mine, its = (sdk_server(Server(TOOLBOX, name="server")) for _ in range(2))
        return official(its, era), ours(MemoryTransport(mine), era)
    if kind == "stdio":
        child = StdioServerParameters(command=sys.executable, args=list(CHILD), cwd=ROOT)
        return official(child, era), ours(StdioTransport(sys.executable, args=CHILD, cwd=str(ROOT)), era)
    return official(url(server), era), ours(HttpTransport(url(server), kind="http"), era)


@pytest.mark.parametrize("at_once", CALLS_IN_A_ROUND)
@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("kind", ["memory", "stdio", "HTTP"])
def bench_call(meter: Meter, server: HttpServer, loop: Loop, kind: str, era: Era, at_once: int) -> None:
    calls = CALLS_IN_A_ROUND[at_once] // at_once * at_once

    async def round_of_calls(call: Callable[[], Awaitable[object]]) -> None:
        async def caller() -> None:
            for _ in range(calls // at_once):
                await call()

        async with anyio.create_task_group() as tasks:
            for _ in range(at_once):
                tasks.start_soon(caller)

    together = "one after the other" if at_once == 1 else f"{at_once} at once"
    figure = f"a call over {kind}, {era.name.lower()}, {together}"
    its, mine = opened(kind, server, era)
    with loop.holding(its) as its_call, loop.holding(mine) as my_call:
        meter.compare(
            f"{figure}: provider",
            lambda: loop.run(round_of_calls(my_call)),
            f"{figure}: {OFFICIAL}",
            lambda: loop.run(round_of_calls(its_call)),
            rounds=ROUNDS[at_once],
            warmup_rounds=3,
            units=calls,
        )


def compare_connecting(
    meter: Meter, loop: Loop, figure: str, era: Era, targets: Sequence[tuple[Any, Any]], rounds: int, tools: int
) -> None:
    """Connect to servers at once, list their tools, and close all connections.

    Args:
        meter: Records the figures.
        loop: Event loop of the connections.
        figure: Name of the figure.
        era: Era of the handshake.
        targets: Arguments of the official client and of the provider for each server.
        rounds: Number of rounds.
        tools: Number of tools of each server.
    """

    async def connect_officially(target: Any, listed: list[int]) -> None:
        async with Client(target, mode=PINS[era]) as client:
            listed.append(len((await client.list_tools()).tools))

    async def all_officially() -> None:
        listed: list[int] = []
        async with anyio.create_task_group() as tasks:
            for target, _ in targets:
                tasks.start_soon(connect_officially, target, listed)
        assert listed == [tools] * len(targets)

    async def all_of_ours() -> None:
        configs = [
            ServerConfig(name=f"server_{number}", transport=transport, protocol=PINS[era], required=True)
            for number, (_, transport) in enumerate(targets)
        ]
        async with McpToolProvider(configs, prefix="always") as provider:
            assert len(provider.tools) == tools * len(targets)

    meter.compare(
        f"{figure}: provider",
        lambda: loop.run(all_of_ours()),
        f"{figure}: {OFFICIAL}",
        lambda: loop.run(all_officially()),
        rounds=rounds,
    )


@pytest.mark.parametrize("count", CONNECTING_ROUNDS)
@pytest.mark.parametrize("era", Era)
def bench_connecting(meter: Meter, server: HttpServer, loop: Loop, era: Era, count: int) -> None:
    figure = f"connecting, listing, closing over HTTP, {era.name.lower()}, {count} at once"
    targets = [(url(server), HttpTransport(url(server), kind="http"))] * count
    compare_connecting(meter, loop, figure, era, targets, CONNECTING_ROUNDS[count], tools=len(TOOLBOX))


@pytest.mark.parametrize("count", CONNECTING_ROUNDS)
def bench_connecting_to_the_slow(meter: Meter, loop: Loop, count: int) -> None:
    """Return a figure that is the slowest of all servers, not the sum."""

    @asynccontextmanager
    async def slowly(_server: Any) -> AsyncIterator[None]:
        await anyio.sleep(SLOW_SECONDS)
        yield

    async def list_none(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[])

    def slow() -> McpServer[None]:
        return McpServer("slow", lifespan=slowly, on_list_tools=list_none)

    figure = f"connecting to what takes {SLOW_SECONDS:g} s to start, {count} at once"
    targets = [(slow(), MemoryTransport(slow())) for _ in range(count)]
    compare_connecting(meter, loop, figure, Era.HANDSHAKE, targets, rounds=4, tools=0)


@pytest.mark.parametrize("count", [MANY])
@pytest.mark.parametrize("era", Era)
def bench_listing(meter: Meter, loop: Loop, era: Era, count: int) -> None:
    @asynccontextmanager
    async def listing_officially() -> AsyncIterator[Callable[[], Awaitable[object]]]:
        async with Client(url(many), mode=PINS[era]) as client:

            async def list_all() -> None:
                page = await client.list_tools(cache_mode="refresh")
                found = len(page.tools)
                while page.next_cursor is not None:
                    page = await client.list_tools(cursor=page.next_cursor, cache_mode="refresh")
                    found += len(page.tools)
                assert found == count

            yield list_all

    @asynccontextmanager
    async def listing_of_ours() -> AsyncIterator[Callable[[], Awaitable[object]]]:
        transport = HttpTransport(url(many), kind="http")
        config = ServerConfig(name="server", transport=transport, protocol=PINS[era], required=True)
        async with Connection(config) as connection:

            async def list_all() -> None:
                async with McpToolProvider([connection]) as provider:
                    assert len(provider.tools) == count

            yield list_all

    figure = f"listing {count:,} tools, {era.name.lower()}"
    with (
        serving(MANY_TOOLS, limit_seconds=LIMIT_SECONDS, tools=count) as many,
        loop.holding(listing_officially()) as list_officially,
        loop.holding(listing_of_ours()) as list_ours,
    ):
        meter.compare(
            f"{figure}: provider",
            lambda: loop.run(list_ours()),
            f"{figure}: {OFFICIAL}",
            lambda: loop.run(list_officially()),
            rounds=LISTING_ROUNDS,
        )
