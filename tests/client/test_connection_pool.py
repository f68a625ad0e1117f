from __future__ import annotations

import anyio
import pytest

from bridge.client import Connection, ConnectionState, HttpTransport, ServerConfig, StdioTransport, connection_pool
from bridge.client.connection_pool import ConnectionPool, with_headers
from bridge.errors import ServerUnavailableError
from tests.client.test_provider import NOWHERE, add, memory_config

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


class Made:
    """A pool, and the connections that it has made."""

    def __init__(self, config: ServerConfig | None = None) -> None:
        self.connections: list[Connection] = []
        self.pool = ConnectionPool(config or memory_config("one", add), self._connect)

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


async def test_too_many_unused_connections_are_ended_the_longest_unused_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_pool, "MAX_IDLE_CONNECTIONS", 2)
    made = Made()
    ada, bob = await made.use("ada"), await made.use("bob")
    await made.use("ada")
    await made.use("eve")
    await made.closed(bob)
    assert ada.state is ConnectionState.READY
    assert len(made.pool) == 2
    await made.pool.aclose()


async def test_a_connection_that_is_used_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MAX_IDLE_CONNECTIONS", 0)
    made = Made()
    async with made.pool.connection({"X-User": "ada"}) as connection:
        await made.use("bob")
        assert connection.state is ConnectionState.READY
    await made.closed(connection)
    assert len(made.pool) == 0


async def test_a_connection_that_nobody_used_for_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MAX_IDLE_SECONDS", 0)
    made = Made()
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
