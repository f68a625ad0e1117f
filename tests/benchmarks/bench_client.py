"""As a client: tools of servers through a provider, and through the official client"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from bridge.client import Connection, HttpTransport, McpToolProvider, ServerConfig, StdioTransport
from tests.benchmarks.http_server import serving
from tests.benchmarks.messages import Era
from tests.benchmarks.processes import MANY_TOOLS, ROOT, TOOLS, cpu_clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from bridge.client.server_config import ProtocolPin
    from tests.benchmarks.http_server import HttpServer
    from tests.benchmarks.meter import Meter

OFFICIAL = "mcp.Client"
ARGUMENTS = {"a": 1, "b": 2}
CALLS_IN_A_ROUND = {1: 25, 16: 64, 256: 256}
ROUNDS = {1: 60, 16: 30, 256: 10}
CONNECTING_ROUNDS = {1: 20, 10: 8, 100: 3}
MANY = 10_000
LISTING_ROUNDS = 5
LIMIT_SECONDS = 600
PINS: dict[Era, ProtocolPin] = {Era.HANDSHAKE: "legacy", Era.MODERN: "2026-07-28"}
CHILD = ("-m", "bridge", "serve", TOOLS)
WHOSE = ("official", "ours")


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with serving(TOOLS, limit_seconds=LIMIT_SECONDS) as server:
        yield server


class Loop:
    """An event loop, in which something stays open while rounds are measured."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.run = runner.run
        self._loop = runner.get_loop()

    @contextmanager
    def holding(self, context: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
        """Enter a context, and leave it in the task that entered it."""
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
    """The official client, which has listed the tools; gives what makes a call."""
    async with Client(target, mode=PINS[era]) as client:
        await client.list_tools()
        yield lambda: client.call_tool("add", ARGUMENTS)


@asynccontextmanager
async def ours(transport: Any, era: Era) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A provider; gives what makes a call."""
    config = ServerConfig(name="server", transport=transport, protocol=PINS[era], required=True)
    async with McpToolProvider(config) as provider:
        yield lambda: provider.call("add", ARGUMENTS)


def opened(whose: str, kind: str, server: HttpServer, era: Era) -> AbstractAsyncContextManager[Any]:
    if whose == "official":
        child = StdioServerParameters(command=sys.executable, args=list(CHILD), cwd=ROOT)
        return official(child if kind == "stdio" else url(server), era)
    if kind == "stdio":
        return ours(StdioTransport(sys.executable, args=CHILD, cwd=str(ROOT)), era)
    return ours(HttpTransport(url(server), kind="http"), era)


def named(whose: str, figure: str) -> str:
    return f"{figure}: {OFFICIAL if whose == 'official' else 'provider'}"


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("at_once", CALLS_IN_A_ROUND)
@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("kind", ["stdio", "HTTP"])
def bench_call(meter: Meter, server: HttpServer, loop: Loop, kind: str, era: Era, at_once: int, whose: str) -> None:
    calls = CALLS_IN_A_ROUND[at_once]

    async def caller() -> None:
        for _ in range(calls // at_once):
            await call()

    async def round_of_calls() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(at_once):
                tasks.start_soon(caller)

    figure = (
        f"a call over {kind}, {era.name.lower()}, {'one after the other' if at_once == 1 else f'{at_once} at once'}"
    )
    with loop.holding(opened(whose, kind, server, era)) as call:
        meter.measure(
            named(whose, figure),
            lambda: loop.run(round_of_calls()),
            rounds=ROUNDS[at_once],
            warmup_rounds=3,
            units=calls,
            beside=named("official", figure),
            cpu_seconds=cpu_clock(server.process) if kind == "HTTP" else lambda: None,
        )


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("count", CONNECTING_ROUNDS)
@pytest.mark.parametrize("era", Era)
def bench_connecting(meter: Meter, server: HttpServer, loop: Loop, era: Era, count: int, whose: str) -> None:
    async def connect_officially(tools: list[int]) -> None:
        async with Client(url(server), mode=PINS[era]) as client:
            tools.append(len((await client.list_tools()).tools))

    async def all_officially() -> None:
        tools: list[int] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(connect_officially, tools)
        assert tools == [4] * count

    async def all_of_ours() -> None:
        transport = HttpTransport(url(server), kind="http")
        configs = [
            ServerConfig(name=f"server_{number}", transport=transport, protocol=PINS[era], required=True)
            for number in range(count)
        ]
        async with McpToolProvider(configs, prefix="always") as provider:
            assert len(provider.tools) == 4 * count

    figure = f"connecting, listing, closing, {era.name.lower()}, {count} at once"
    meter.measure(
        named(whose, figure),
        lambda: loop.run(all_officially() if whose == "official" else all_of_ours()),
        rounds=CONNECTING_ROUNDS[count],
        beside=named("official", figure),
        cpu_seconds=cpu_clock(server.process),
    )


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("count", [MANY])
@pytest.mark.parametrize("era", Era)
def bench_listing(meter: Meter, loop: Loop, era: Era, count: int, whose: str) -> None:
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
        config = ServerConfig(name="server", transport=HttpTransport(url(many), kind="http"), protocol=PINS[era])
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(Connection(config))

            async def list_all() -> None:
                async with McpToolProvider([connection]) as provider:
                    assert len(provider.tools) == count

            yield list_all

    figure = f"listing {count:,} tools, {era.name.lower()}"
    with (
        serving(MANY_TOOLS, tools=count) as many,
        loop.holding(listing_officially() if whose == "official" else listing_of_ours()) as list_all,
    ):
        meter.measure(
            named(whose, figure),
            lambda: loop.run(list_all()),
            rounds=LISTING_ROUNDS,
            beside=named("official", figure),
            cpu_seconds=cpu_clock(many.process),
        )
