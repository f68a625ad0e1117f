from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ToolBox
from bridge.client import (
    Connection,
    ConnectionState,
    HttpTransport,
    MemoryTransport,
    ServerConfig,
    ServerInfo,
    StdioTransport,
)
from bridge.errors import ArgumentsError, ServerRefusedError, ServerUnavailableError
from bridge.server.server import Server
from tests.client import served
from tests.client.conftest import DEADLINE_SECONDS, opened, stdio_config

if TYPE_CHECKING:
    from tests.client.conftest import RemoteServer

pytestmark = pytest.mark.anyio

ROUTES = ["stdio", "http", "http-unsaid", "sse", "sse-unsaid", "memory"]
PINS: list[Any] = ["auto", "legacy", "2026-07-28"]
PINNED_ROUTES = [(route, pin) for route in ROUTES for pin in PINS if (route, pin) != ("sse-unsaid", "2026-07-28")]
NAMES = {tool.name for tool in served.TOOLS}


def config_of(route: str, steady: RemoteServer, **settings: Any) -> ServerConfig:
    transports: dict[str, Any] = {
        "http": HttpTransport(steady.url, kind="http"),
        "http-unsaid": HttpTransport(steady.url),
        "sse": HttpTransport(steady.sse_url, kind="sse"),
        "sse-unsaid": HttpTransport(steady.sse_url),
        "memory": MemoryTransport(Server(served.TOOLS, name="served")),
    }
    return stdio_config(**(settings if route == "stdio" else {"transport": transports[route]} | settings))


@pytest.mark.parametrize(("route", "pin"), PINNED_ROUTES)
async def test_tools_are_listed_and_called_over_every_route_and_in_every_era(
    route: str, pin: Any, steady: RemoteServer
) -> None:
    async with opened(config_of(route, steady, protocol=pin)) as connection:
        listing = await connection.list_tools()
        result = await connection.call_tool("add", {"a": 1, "b": 2})
    is_modern = pin != "legacy" and not route.startswith("sse")
    assert {tool["name"] for tool in listing.tools} == NAMES
    assert (listing.ttl_seconds is not None) is is_modern
    assert result["structuredContent"] == {"result": 3}
    assert connection.era == ("modern" if is_modern else "handshake")


async def test_a_connection_says_how_it_is(steady: RemoteServer) -> None:
    config = config_of("http-unsaid", steady)
    connection = Connection(config)
    before = connection.status()
    async with connection:
        status = connection.status()
    assert (before.state, before.transport, before.era, before.connects) == (ConnectionState.CLOSED, None, None, 0)
    assert status == replace(
        before,
        state=ConnectionState.READY,
        transport="http",
        era="modern",
        protocol_version="2026-07-28",
        server_info=ServerInfo(name="served", version="", capabilities={"logging": {}, "tools": {"listChanged": True}}),
        connects=1,
    )
    assert connection.state is ConnectionState.CLOSED


async def test_listeners_hear_each_state_until_they_are_taken_away() -> None:
    heard: list[ConnectionState] = []
    also_heard: list[ConnectionState] = []
    connection = Connection(memory_config())
    connection.on_state(heard.append)
    end = connection.on_state(also_heard.append)
    await connection.open()
    end()
    await connection.aclose()
    assert heard == [ConnectionState.CONNECTING, ConnectionState.READY, ConnectionState.CLOSED]
    assert also_heard == heard[:2]


async def test_a_listener_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(state: ConnectionState) -> None:
        raise RuntimeError("no")

    connection = Connection(memory_config())
    connection.on_state(fail)
    async with connection:
        assert connection.state is ConnectionState.READY
    assert "a listener failed" in caplog.text


async def test_a_connection_is_opened_and_closed_by_any_tasks_in_any_order_many_at_once() -> None:
    connection = Connection(stdio_config())
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(connection.open)
        first = (await connection.call_tool("pid", {}))["structuredContent"]
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(connection.aclose)
        await connection.open()
        second = (await connection.call_tool("pid", {}))["structuredContent"]
        await connection.aclose()
    assert first != second


async def test_two_connections_are_closed_in_the_order_in_which_they_were_opened() -> None:
    first, second = Connection(memory_config()), Connection(memory_config())
    await first.open()
    await second.open()
    await first.aclose()
    assert (await second.call_tool("add", {"a": 1, "b": 1}))["structuredContent"] == {"result": 2}
    await second.aclose()


async def test_a_connection_outlives_the_task_that_opened_it() -> None:
    connection = Connection(stdio_config())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.open)
    assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
    await connection.aclose()


async def test_closing_what_was_never_opened_does_nothing() -> None:
    await Connection(memory_config()).aclose()


async def test_a_closed_connection_says_so() -> None:
    connection = Connection(memory_config())
    with pytest.raises(ServerUnavailableError, match="'memory', calling 'add': the connection is not open"):
        await connection.call_tool("add", {})
    async with connection:
        pass
    with pytest.raises(ServerUnavailableError, match="'memory', listing tools: the connection is not open"):
        await connection.list_tools()


async def test_many_calls_at_once_get_each_its_own_answer(steady: RemoteServer) -> None:
    results = {}
    async with opened(config_of("http", steady)) as connection:

        async def call(number: int) -> None:
            results[number] = (await connection.call_tool("add", {"a": number, "b": 0}))["structuredContent"]["result"]

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(call, number)
    assert results == {number: number for number in range(200)}


@pytest.mark.parametrize("pin", ["legacy", "auto"])
async def test_the_servers_own_error_is_told_with_its_code(pin: Any, steady: RemoteServer) -> None:
    async with opened(config_of("http", steady, protocol=pin)) as connection:
        with pytest.raises(ServerRefusedError, match="there is no tool named 'nope'") as caught:
            await connection.call_tool("nope", {})
    assert (caught.value.code, caught.value.message) == (-32602, "there is no tool named 'nope'")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), b"bytes"])
async def test_arguments_that_are_no_json_harm_only_their_own_call(value: object, steady: RemoteServer) -> None:
    async with opened(config_of("http", steady)) as connection:
        with pytest.raises(ArgumentsError, match="invalid arguments for 'add': JSON data"):
            await connection.call_tool("add", {"a": value})
        assert connection.status().connects == 1
        assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False


async def test_anything_that_is_only_read_can_be_asked_for(steady: RemoteServer) -> None:
    async with opened(config_of("http", steady)) as connection:
        page = await connection.request("tools/list")
        with pytest.raises(ServerRefusedError, match=r"requesting resources/list: .*\(-32601\)"):
            await connection.request("resources/list")
    assert {tool["name"] for tool in page["tools"]} == NAMES


async def test_all_pages_are_listed() -> None:
    config = memory_config(page_size=2)
    async with opened(config) as connection:
        assert [tool["name"] for tool in (await connection.list_tools()).tools] == [t.name for t in served.TOOLS]


@pytest.mark.parametrize(
    ("inherit", "expected"), [("minimal", set()), ("all", {"OF_MINE", "SECRET"}), (("OF_MINE",), {"OF_MINE"})]
)
async def test_a_child_gets_the_environment_that_was_asked_for(
    inherit: Any, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_MINE", "1")
    monkeypatch.setenv("SECRET", "2")
    base = stdio_config().transport
    assert isinstance(base, StdioTransport)
    transport = StdioTransport(sys.executable, args=base.args, cwd=base.cwd, env={"ADDED": "3"}, inherit_env=inherit)
    async with opened(stdio_config(transport=transport)) as connection:
        names = set((await connection.call_tool("variables", {}))["structuredContent"]["result"])
    assert names & {"OF_MINE", "SECRET", "ADDED"} == {"ADDED"} | expected
    assert "PATH" in names


def memory_config(*, page_size: int | None = None) -> ServerConfig:
    server = Server(ToolBox(list(served.TOOLS)), name="memory", page_size=page_size)
    return ServerConfig(name="memory", transport=MemoryTransport(server))
