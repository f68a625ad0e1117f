from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ConfigError, DefinitionError
from bridge.client import Connection, ConnectionState, HttpTransport, ServerConfig, ServersConfig, StdioTransport
from bridge.client.connection_pool import ConnectionPool, servers_from, with_headers
from bridge.errors import ServerUnavailableError
from tests.client.test_provider import NOWHERE, add, memory_config

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


class Made:
    """A pool, and the connections that it made."""

    def __init__(self, config: ServerConfig | None = None, **limits: Any) -> None:
        self.connections: list[Connection] = []
        self.pool = ConnectionPool(config or memory_config("one", add), self._connect, **limits)

    def _connect(self, config: ServerConfig) -> Connection:
        self.connections.append(Connection(config))
        return self.connections[-1]

    async def use(self, user: str) -> Connection:
        async with self.pool.connection({"X-User": user}) as connection:
            assert connection.state is ConnectionState.READY
            return connection

    async def closed(self, connection: Connection) -> None:
        closing = anyio.Event()
        connection.on_state(lambda state: closing.set() if state is ConnectionState.CLOSED else None)
        if connection.state is not ConnectionState.CLOSED:
            await closing.wait()


async def test_the_same_headers_are_the_same_connection_however_they_are_written() -> None:
    made = Made()
    first = await made.use("ada")
    async with made.pool.connection({"x-user": "ada"}) as again:
        assert again is first
    assert await made.use("Ada") is not first
    await made.pool.aclose()
    assert {connection.state for connection in made.connections} == {ConnectionState.CLOSED}


async def test_many_at_once_share_one_opening() -> None:
    made = Made()
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(made.use, "ada")
    assert len(made.connections) == 1
    await made.pool.aclose()


async def test_too_many_unused_connections_are_ended_the_longest_unused_first() -> None:
    made = Made(max_idle=2)
    ada, bob = await made.use("ada"), await made.use("bob")
    await made.use("ada")
    await made.use("eve")
    await made.closed(bob)
    assert ada.state is ConnectionState.READY
    assert len(made.pool) == 2
    await made.pool.aclose()


async def test_a_connection_that_is_used_is_not_ended() -> None:
    made = Made(max_idle=0)
    async with made.pool.connection({"X-User": "ada"}) as connection:
        await made.use("bob")
        assert connection.state is ConnectionState.READY
    await made.closed(connection)
    assert len(made.pool) == 0


async def test_a_connection_that_nobody_used_for_long_is_ended() -> None:
    made = Made(max_idle_seconds=0)
    await made.closed(await made.use("ada"))
    assert len(made.pool) == 0


async def test_a_server_that_cannot_be_reached_is_tried_again_by_the_next_call() -> None:
    made = Made(ServerConfig(name="gone", transport=NOWHERE))
    for _ in range(2):
        with pytest.raises(ServerUnavailableError):
            await made.use("ada")
    assert len(made.connections) == 1
    await made.pool.aclose()


async def test_headers_stand_before_those_of_the_configuration_whatever_their_case() -> None:
    config = ServerConfig(name="far", transport=HttpTransport("http://h/", headers={"a": "1", "B": "2"}))
    assert with_headers(config, {"A": "3"}).transport == HttpTransport("http://h/", headers={"B": "2", "A": "3"})
    assert with_headers(config, {}) is config
    child = ServerConfig(name="child", transport=StdioTransport("c"))
    assert with_headers(child, {"A": "3"}) is child


ONE = ServerConfig(name="one", transport=StdioTransport("one"))
TWO = ServerConfig(name="two", transport=HttpTransport("https://example.org/mcp"))
URL = "https://example.org/mcp"
FILE = {"mcpServers": {"one": {"command": "one"}, "two": {"url": URL}, "off": {"command": "x", "disabled": True}}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(FILE))
    return path


def test_servers_are_meant_in_many_ways(file: Path) -> None:
    connection = Connection(TWO)
    assert servers_from(ONE) == [ONE]
    assert servers_from(connection) == [connection]
    assert servers_from([ONE, connection]) == [ONE, connection]
    assert servers_from(ServersConfig(servers={"one": ONE})) == [ONE]
    assert servers_from({"mcpServers": {"one": {"command": "one"}}}) == [ONE]
    assert servers_from(()) == []
    for path in (file, str(file)):
        assert [server.name for server in servers_from(path)] == ["one", "two"]


def test_a_url_is_a_server_named_after_its_host() -> None:
    transport = HttpTransport("https://example.org:8443/mcp?key=1")
    assert servers_from(transport.url) == [ServerConfig(name="example.org", transport=transport)]


def test_one_server_of_a_file_is_meant_after_a_hash(file: Path) -> None:
    assert [server.name for server in servers_from(f"{file}#two")] == ["two"]
    with pytest.raises(ConfigError, match=r"'three' is not one of its servers \('one', 'two'\)"):
        servers_from(f"{file}#three")
    with pytest.raises(ConfigError, match="'off' is disabled"):
        servers_from(f"{file}#off")


def test_a_file_may_have_a_hash_in_its_name(file: Path) -> None:
    named = file.rename(file.with_name("mcp#1.json"))
    assert [server.name for server in servers_from(str(named))] == ["one", "two"]
    assert [server.name for server in servers_from(f"{named}#one")] == ["one"]


@pytest.mark.parametrize("wrong", [5, None, ["mcp.json"], [5]])
def test_what_says_no_servers_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError):
        servers_from(wrong)


def test_a_file_that_is_not_there_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        servers_from(tmp_path / "mcp.json")
