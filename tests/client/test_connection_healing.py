from __future__ import annotations

import logging
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest

from bridge.client import (
    CallOptions,
    ClientHandlers,
    Connection,
    ConnectionState,
    HttpTransport,
    McpToolProvider,
    ReconnectPolicy,
    ServerConfig,
)
from bridge.errors import OutcomeUnknownError, ServerUnavailableError
from tests.client.conftest import DEADLINE_SECONDS, RemoteServer, opened, proxied, stdio_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.client.proxy import Proxy
    from tests.client.reports import Reports

pytestmark = pytest.mark.anyio

READY, DEGRADED = ConnectionState.READY, ConnectionState.DEGRADED


class States:
    """States of a connection, which can be awaited."""

    def __init__(self, connection: Connection) -> None:
        self.seen: list[ConnectionState] = []
        self._came = anyio.Event()
        connection.on_state(self._take)

    def _take(self, state: ConnectionState) -> None:
        self.seen.append(state)
        self._came.set()
        self._came = anyio.Event()

    async def wait_for(self, *states: ConnectionState) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.seen != list(states):
                await self._came.wait()


def http_config(port: int, *, path: str = "mcp", kind: Any = "http", **settings: Any) -> ServerConfig:
    transport = HttpTransport(f"http://127.0.0.1:{port}/{path}", kind=kind)
    return replace(ServerConfig(name="remote", transport=transport), **settings)


@asynccontextmanager
async def behind_a_proxy(
    server: RemoteServer, *, reconnect: ReconnectPolicy | None = None, **settings: Any
) -> AsyncIterator[tuple[Proxy, Connection]]:
    async with proxied(server) as proxy, opened(http_config(proxy.port, **settings), reconnect=reconnect) as connection:
        yield proxy, connection


# --- a child ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pin", ["auto", "legacy"])
async def test_a_call_ends_at_once_when_its_child_is_killed_and_the_next_call_finds_a_new_one(
    pin: Any, reports: Reports
) -> None:
    async with opened(stdio_config(protocol=pin)) as connection:
        with pytest.raises(OutcomeUnknownError) as caught:
            await connection.call_tool("end_the_server", {"port": reports.port})
        result = await connection.call_tool("add", {"a": 1, "b": 2})
        assert connection.status().connects == 2
    assert result["structuredContent"] == {"result": 3}
    assert caught.value.failure.exit_code == -9
    assert caught.value.failure.reason == "the server's process has ended; it may have run: the outcome is unknown"
    assert reports.words == ["started"], "the call ran once"


async def test_every_call_under_way_ends_at_once_when_the_child_does(reports: Reports) -> None:
    errors: list[BaseException] = []
    async with opened(stdio_config()) as connection:

        async def call(name: str) -> None:
            try:
                await connection.call_tool(name, {"port": reports.port})
            except OutcomeUnknownError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call, "hold")
                await reports.wait_for("started")
            tasks.start_soon(call, "end_the_server")
    assert len(errors) == 6


async def test_an_idle_childs_death_is_noticed_and_healed_without_a_call(reports: Reports) -> None:
    connection = Connection(stdio_config())
    states = States(connection)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with connection:
            await connection.list_tools()
            process = (await connection.call_tool("pid", {}))["structuredContent"]["result"]
            await anyio.run_process(["kill", "-9", str(process)])
            await states.wait_for(ConnectionState.CONNECTING, READY, DEGRADED, READY)
            assert (await connection.call_tool("pid", {}))["structuredContent"]["result"] != process


# --- what may be called again ----------------------------------------------------------------------------------------


async def test_a_repeatable_call_of_a_trusted_server_is_made_again(
    remote: RemoteServer, reports: Reports, tmp_path: Path
) -> None:
    async with behind_a_proxy(remote, trusted=True) as (proxy, connection), anyio.create_task_group() as tasks:
        results = []
        arguments = {"port": reports.port, "marker": str(tmp_path / "marker")}

        async def call() -> None:
            results.append(
                await connection.call_tool("hold_the_first_time", arguments, options=CallOptions(repeatable=True))
            )

        tasks.start_soon(call)
        await reports.wait_for("started")
        await proxy.cut()
        await reports.wait_for("started")
    assert [result["content"][0]["text"] for result in results] == ["again"]


@pytest.mark.parametrize(("trusted", "repeatable"), [(True, False), (False, True)])
@pytest.mark.parametrize("pin", ["auto", "legacy"])
async def test_any_other_call_is_never_made_twice(
    pin: Any, trusted: bool, repeatable: bool, remote: RemoteServer, reports: Reports
) -> None:
    async with (
        behind_a_proxy(remote, trusted=trusted, protocol=pin) as (proxy, connection),
        anyio.create_task_group() as tasks,
    ):

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError, match="the outcome is unknown"):
                await connection.call_tool("hold", {"port": reports.port}, options=CallOptions(repeatable=repeatable))
            await connection.call_tool("run", {"port": reports.port})

        tasks.start_soon(call)
        await reports.wait_for("started")
        await proxy.cut()
        await reports.wait_for("ran")
    assert reports.words.count("started") == 1


@pytest.mark.parametrize("pin", ["auto", "legacy"])
async def test_a_stream_that_breaks_off_in_the_middle_of_an_answer_leaves_the_outcome_unknown(
    pin: Any, remote: RemoteServer, reports: Reports
) -> None:
    async with behind_a_proxy(remote, protocol=pin) as (proxy, connection):
        await connection.call_tool("add", {"a": 1, "b": 1})
        proxy.bytes_left = 60
        with pytest.raises(OutcomeUnknownError, match="'remote', calling 'run'"):
            await connection.call_tool("run", {"port": reports.port})
        assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
    await reports.wait_for("ran")
    assert reports.words == ["ran"]


async def test_an_answer_that_drips_arrives(remote: RemoteServer) -> None:
    async with behind_a_proxy(remote) as (proxy, connection):
        proxy.is_slow = True
        assert (await connection.call_tool("add", {"a": 2, "b": 1}))["structuredContent"] == {"result": 3}


# --- a server that restarts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "kind"), [("mcp", "http"), ("sse", "sse")])
@pytest.mark.parametrize("pin", ["auto", "legacy"])
async def test_a_server_that_restarts_at_the_same_port_is_found_again(
    pin: Any, path: str, kind: Any, remote: RemoteServer, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(http_config(remote.port, path=path, kind=kind, protocol=pin)) as connection:
        await connection.call_tool("add", {"a": 1, "b": 1})
        remote.kill()
        await remote.start()
        result = await connection.call_tool("run", {"port": reports.port})
    assert result["content"][0]["text"] == "done"
    assert reports.words == ["ran"], "a call that provably never ran is made again, and runs once"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == [], "reconnecting is no news"


async def test_a_restart_is_noticed_without_a_call_where_a_stream_is_open(remote: RemoteServer) -> None:
    connection = Connection(http_config(remote.port, protocol="legacy"))
    states = States(connection)
    async with connection:
        remote.kill()
        await remote.start()
        await states.wait_for(ConnectionState.CONNECTING, READY, DEGRADED, READY)


async def test_all_who_wait_share_one_reconnection(remote: RemoteServer) -> None:
    results = []
    config = http_config(remote.port, protocol="legacy", connect_wait_seconds=DEADLINE_SECONDS)
    async with opened(config) as connection:
        remote.kill()

        async def call(number: int) -> None:
            results.append((await connection.call_tool("add", {"a": number, "b": 0}))["structuredContent"]["result"])

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(call, number)
            await remote.start()
        assert connection.status().connects == 2
    assert sorted(results) == list(range(20))


async def test_a_session_that_was_deleted_is_begun_anew_and_the_call_runs_once(
    remote: RemoteServer, reports: Reports
) -> None:
    sessions: list[str] = []

    class Spy(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            sessions.extend(filter(None, [request.headers.get("mcp-session-id")]))
            yield request

    config = http_config(remote.port, protocol="legacy")
    async with opened(config, auth=Spy()) as connection:
        await connection.call_tool("add", {"a": 1, "b": 1})
        async with httpx2.AsyncClient() as client:
            await client.delete(remote.url, headers={"mcp-session-id": sessions[-1]})
        await connection.call_tool("run", {"port": reports.port})
        assert connection.status().connects == 2
    assert len(set(sessions)) == 2
    assert reports.words == ["ran"]


# --- a server that is down -------------------------------------------------------------------------------------------


async def test_a_call_to_a_server_that_stays_down_waits_for_as_long_as_it_may_and_says_why(
    remote: RemoteServer,
) -> None:
    async with opened(http_config(remote.port, connect_wait_seconds=0.3)) as connection:
        remote.kill()
        with pytest.raises(ServerUnavailableError) as caught:
            await connection.call_tool("add", {"a": 1, "b": 1})
        assert connection.state is DEGRADED
        assert isinstance(connection.last_error, ServerUnavailableError)
    assert caught.value.brief == "the server 'remote', calling 'add': it is not available: connection refused"


async def test_a_call_has_an_attempt_made_at_once_however_long_the_back_off(remote: RemoteServer) -> None:
    delays: list[float] = []
    asleep = anyio.Event()

    async def wait_for_ever(event: anyio.Event, seconds: float) -> None:
        delays.append(seconds)
        if seconds != reconnect.health_check_seconds:
            asleep.set()
        await event.wait()

    reconnect = ReconnectPolicy(wait=wait_for_ever, jitter=lambda: 1.0, first_delay_seconds=7.0)
    async with opened(http_config(remote.port, protocol="legacy"), reconnect=reconnect) as connection:
        remote.kill()
        await asleep.wait()
        await remote.start()
        assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
    assert set(delays) == {reconnect.health_check_seconds, 7.0}


async def test_a_server_that_comes_up_late_is_found(remote: RemoteServer) -> None:
    remote.kill()
    connection = Connection(http_config(remote.port), handlers=ClientHandlers())
    states = States(connection)
    with anyio.fail_after(DEADLINE_SECONDS):
        await connection.open(wait=False)
        assert await connection.settled() is ConnectionState.FAILED
        await remote.start()
        await states.wait_for(ConnectionState.CONNECTING, ConnectionState.FAILED, READY)
        assert connection.last_error is None
        await connection.aclose()


async def test_the_reason_why_a_silent_server_cannot_be_reached_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[float] = []
    third = anyio.Event()

    async def wait(wanted: anyio.Event, seconds: float) -> None:
        attempts.append(seconds)
        if len(attempts) == 3:
            third.set()
        await anyio.lowlevel.checkpoint()

    with caplog.at_level(logging.INFO, "bridge.client"), socket.create_server(("127.0.0.1", 0)) as silent:
        config = http_config(silent.getsockname()[1], connect_timeout_seconds=0.1)
        with anyio.fail_after(DEADLINE_SECONDS):
            provider = McpToolProvider(config, reconnect=ReconnectPolicy(wait=wait))
            await provider.open(wait=False)
            await third.wait()
            await provider.aclose()
    logged = [record.message for record in caplog.records if "cannot reach the server 'remote'" in record.message]
    assert len(logged) == 1
    assert "0.1" in logged[0]
