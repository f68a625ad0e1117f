"""Health checks, changes, back-off and credentials: what a connection does by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import (
    CallOptions,
    Connection,
    ConnectionState,
    HttpTransport,
    ReconnectPolicy,
    ServerConfig,
    StdioTransport,
)
from bridge.errors import OutcomeUnknownError, ServerAuthError, ServerUnavailableError
from bridge.telemetry.conventions import CONNECTED, CONNECTS, RECONNECTS
from bridge.telemetry.current import enabled
from bridge.telemetry.observer import Observer
from tests.client.clock import Clock
from tests.client.conftest import DEADLINE_SECONDS, opened, proxied, stdio_config
from tests.telemetry.measured import Measured

if TYPE_CHECKING:
    from tests.client.conftest import RemoteServer
    from tests.client.guard import Guard

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("pin", ["auto", "legacy"])
HEALTH = 30.0


def config_of(url: str, **settings: Any) -> ServerConfig:
    return replace(ServerConfig(name="remote", transport=HttpTransport(url, kind="http")), **settings)


class Changes:
    """Counts notifications of changed tools."""

    def __init__(self, connection: Connection) -> None:
        self._came = anyio.Event()
        connection.on_list_changed("tools", self._take)

    def _take(self) -> None:
        self._came.set()

    async def next(self) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            await self._came.wait()
        self._came = anyio.Event()


# --- health ----------------------------------------------------------------------------------------------------------


@ERAS
async def test_an_idle_server_is_asked_whether_it_is_there(pin: Any, guard: Guard) -> None:
    clock = Clock()
    async with opened(config_of(guard.url, protocol=pin), reconnect=ReconnectPolicy(wait=clock.wait)) as connection:
        await clock.elapse(HEALTH)  # the handshake was complete before that
        await clock.sleeping(HEALTH)
        before = guard.seen.count(("POST", "/mcp"))
        await clock.elapse(HEALTH)
        await clock.sleeping(HEALTH)
        assert guard.seen.count(("POST", "/mcp")) == before + 1
        assert connection.state is ConnectionState.READY


async def test_health_costs_nothing_while_calls_flow(guard: Guard) -> None:
    clock = Clock()
    async with opened(config_of(guard.url), reconnect=ReconnectPolicy(wait=clock.wait)) as connection:
        await clock.sleeping(HEALTH)
        before = guard.seen.count(("POST", "/mcp"))
        for _ in range(3):
            await connection.call_tool("add", {"a": 1, "b": 1})
            await clock.elapse(HEALTH)
            await clock.sleeping(HEALTH)
        assert guard.seen.count(("POST", "/mcp")) == before + 3


@ERAS
async def test_an_idle_connection_that_has_gone_silent_is_found_out_and_replaced(
    pin: Any, remote: RemoteServer
) -> None:
    clock = Clock()
    ready = anyio.Event()
    async with proxied(remote) as proxy:
        config = config_of(f"http://127.0.0.1:{proxy.port}/mcp", protocol=pin, connect_timeout_seconds=1.0)
        reconnect = ReconnectPolicy(wait=clock.wait, health_timeout_seconds=0.2)
        async with opened(config, reconnect=reconnect) as connection:
            await connection.call_tool("add", {"a": 1, "b": 1})
            await clock.elapse(HEALTH)
            await clock.sleeping(HEALTH)
            connection.on_state(lambda state: ready.set() if state is ConnectionState.READY else None)
            proxy.is_silent = True
            lost = anyio.Event()
            connection.on_state(lambda state: lost.set() if state is ConnectionState.DEGRADED else None)
            await clock.elapse(HEALTH)
            await lost.wait()
            proxy.is_silent = False
            assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
            assert ready.is_set()


# --- changes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("route", "pin"), [(r, p) for r in ("stdio", "http", "sse") for p in ("auto", "legacy")][:-1])
async def test_a_change_of_the_tools_is_heard_in_both_eras(route: str, pin: Any, remote: RemoteServer) -> None:
    transport = HttpTransport(remote.url if route == "http" else remote.sse_url, kind=None)
    settings: dict[str, Any] = {} if route == "stdio" else {"transport": transport}
    connection = Connection(stdio_config(protocol=pin, **settings))
    changes = Changes(connection)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with connection:
            before = (await connection.list_tools()).tools
            await connection.call_tool("change_the_list", {})
            await changes.next()
            after = (await connection.list_tools()).tools
    assert {tool["name"] for tool in before} ^ {tool["name"] for tool in after} == {"run"}


async def test_a_listener_that_comes_late_hears_of_changes_too(remote: RemoteServer) -> None:
    async with opened(config_of(remote.url)) as connection:
        changes = Changes(connection)
        await connection.list_tools()
        await connection.call_tool("change_the_list", {})
        await changes.next()


async def test_a_lost_subscription_is_renewed_and_may_have_missed_something(remote: RemoteServer) -> None:
    async with proxied(remote) as proxy:
        connection = Connection(config_of(f"http://127.0.0.1:{proxy.port}/mcp"))
        changes = Changes(connection)
        with anyio.fail_after(DEADLINE_SECONDS):
            async with connection:
                await connection.list_tools()
                await proxy.cut()
                await changes.next()
                await connection.call_tool("change_the_list", {})
                await changes.next()


@ERAS
async def test_tools_that_changed_while_a_server_was_away_are_heard_of_after_it_is_back(
    pin: Any, remote: RemoteServer
) -> None:
    connection = Connection(config_of(remote.url, protocol=pin))
    changes = Changes(connection)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with connection:
            await connection.list_tools()
            await connection.call_tool("change_the_list", {})
            await changes.next()
            await connection.list_tools()  # one tool fewer
            remote.kill()
            await remote.start()
            await connection.call_tool("add", {"a": 1, "b": 1})
            await changes.next()
            assert "run" in {tool["name"] for tool in (await connection.list_tools()).tools}


# --- failing and coming back -----------------------------------------------------------------------------------------


async def test_attempts_back_off_up_to_the_cap_until_the_server_is_there() -> None:
    clock = Clock()
    config = config_of("http://127.0.0.1:9/mcp")
    connection = Connection(
        config, reconnect=ReconnectPolicy(wait=clock.wait, jitter=lambda: 1.0, first_delay_seconds=10.0)
    )
    await connection.open(wait=False)
    for delay in (10.0, 20.0, 40.0, 80.0, 160.0, 300.0):
        await clock.elapse(delay)
    await clock.sleeping(300.0)
    await connection.aclose()
    assert clock.asked == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


async def test_what_cannot_get_better_by_itself_is_not_tried_again_and_is_told_at_once() -> None:
    clock = Clock()
    config = ServerConfig(name="x", transport=StdioTransport("there-is-no-such-command"), connect_wait_seconds=10_000)
    connection = Connection(config, reconnect=ReconnectPolicy(wait=clock.wait))
    with anyio.fail_after(DEADLINE_SECONDS):
        await connection.open(wait=False)
        assert await connection.settled() is ConnectionState.FAILED
        for _ in range(3):
            with pytest.raises(ServerUnavailableError, match="it is not available: command not found:"):
                await connection.call_tool("add", {})
        await connection.aclose()
    assert clock.asked == []


async def test_a_server_that_was_never_there_is_counted_as_one_without_a_connection() -> None:
    config = ServerConfig(name="x", transport=StdioTransport("there-is-no-such-command"))
    measured = Measured()
    with enabled(Observer(measured.instruments)), anyio.fail_after(DEADLINE_SECONDS):
        connection = Connection(config)
        await connection.open(wait=False)
        await connection.settled()
        await connection.aclose()
    assert [measured.values(name) for name in (CONNECTED, CONNECTS, RECONNECTS)] == [{"x": 0}] * 3


async def test_a_server_that_wants_credentials_says_so_and_is_tried_again_when_it_is_needed(guard: Guard) -> None:
    guard.key = "Bearer secret-of-mine"
    connection = Connection(config_of(guard.url))
    with anyio.fail_after(DEADLINE_SECONDS):
        await connection.open(wait=False)
        assert await connection.settled() is ConnectionState.NEEDS_AUTH
        with pytest.raises(ServerAuthError, match=r"it asks for credentials \(HTTP 401\)"):
            await connection.call_tool("add", {"a": 1, "b": 1})
        guard.key = None
        assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
        assert connection.state is ConnectionState.READY
        await connection.aclose()


async def test_credentials_that_expire_are_told_by_the_call_that_finds_out(guard: Guard) -> None:
    guard.key = "Bearer secret-of-mine"
    transport = HttpTransport(guard.url, headers={"Authorization": guard.key}, kind="http")
    async with opened(ServerConfig(name="remote", transport=transport)) as connection:
        await connection.call_tool("add", {"a": 1, "b": 1})
        guard.key = "Bearer another"
        with pytest.raises(ServerAuthError) as caught:
            await connection.call_tool("add", {"a": 1, "b": 1})
    assert "secret-of-mine" not in str(caught.value)
    assert caught.value.failure.hint is not None
    assert "'Authorization: Bearer" in caught.value.failure.hint


@ERAS
@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_failure_without_words_leaves_the_outcome_unknown_and_the_connection_alone(
    status: int, pin: Any, guard: Guard
) -> None:
    async with opened(config_of(guard.url, protocol=pin)) as connection:
        await connection.call_tool("add", {"a": 1, "b": 1})
        guard.status, guard.refusals = status, 1
        with pytest.raises(OutcomeUnknownError, match=f"HTTP {status}"):
            await connection.call_tool("add", {"a": 1, "b": 1})
        assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
        assert connection.status().connects == 1


async def test_a_failure_without_words_is_tried_again_where_that_is_right(guard: Guard) -> None:
    async with opened(config_of(guard.url, trusted=True)) as connection:
        guard.status, guard.refusals = 503, 1
        assert (await connection.call_tool("add", {"a": 1, "b": 1}, options=CallOptions(repeatable=True)))[
            "isError"
        ] is False
