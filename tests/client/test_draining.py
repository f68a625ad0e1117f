"""Calls that run while their server shuts down gracefully."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import ConnectionState, HttpTransport, McpToolProvider, ServerConfig
from tests.cli.draining import DEADLINE_SECONDS, Hearing, ended, heard, refused, served

if TYPE_CHECKING:
    from tests.processes import ServerProcess

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's"),
]

ROUTES = {"modern": ("2026-07-28", "mcp"), "handshake": ("legacy", "mcp"), "SSE": ("legacy", "sse")}


def config_of(server: ServerProcess, route: str) -> ServerConfig:
    protocol, path = ROUTES[route]
    # A new call needs a new connection, and finds that the server accepts none.
    headers = {"Connection": "close"}
    transport = HttpTransport(f"{server.origin}/{path}", kind="sse" if path == "sse" else "http", headers=headers)
    pin: Any = protocol
    return ServerConfig(name="draining", transport=transport, protocol=pin, connect_wait_seconds=0.3)


class Held:
    """A call that runs until it is released."""

    def __init__(self, provider: McpToolProvider, hearing: Hearing) -> None:
        self.answers: list[str] = []
        self._provider = provider
        self._hearing = hearing

    async def call(self) -> None:
        self.answers.append((await self._provider.call("hold", {"port": self._hearing.port})).text)


async def answered_while_it_drains(server: ServerProcess, route: str) -> None:
    """Start a call, drain the server, and let another call find that out; the first is answered nevertheless."""
    async with heard() as hearing, McpToolProvider([config_of(server, route)]) as provider:
        held, lost = Held(provider, hearing), anyio.Event()
        provider.on_state(lambda _name, state: lost.set() if state is ConnectionState.DEGRADED else None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.call)
            running = await hearing.running()
            server.process.send_signal(signal.SIGTERM)
            await refused(server)
            assert (await provider.call("hold", {"port": hearing.port})).is_error
            await lost.wait()
            await running.send(b"done")
        assert held.answers == ["done"]
    assert await ended(server) == 0


@pytest.mark.parametrize("route", ROUTES)
async def test_a_call_that_runs_is_answered_by_a_server_that_drains(route: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as server:
            await answered_while_it_drains(server, route)


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("options", [("--workers", "2"), ("--drain-delay", "0.5")], ids=["workers", "delay"])
async def test_a_call_that_runs_is_answered_however_the_server_drains(route: str, options: tuple[str, ...]) -> None:
    if route == "SSE" and "--workers" in options:
        pytest.skip("a session over SSE needs one process, or Redis")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served(*options) as server:
            await answered_while_it_drains(server, route)


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
async def test_a_call_through_a_gateway_is_answered_when_the_server_behind_it_drains(route: str) -> None:
    _, path = ROUTES[route]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as behind, served(target=f"{behind.origin}/{path}") as gateway:
            async with heard() as hearing, McpToolProvider([config_of(gateway, "modern")]) as provider:
                held = Held(provider, hearing)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(held.call)
                    running = await hearing.running()
                    behind.process.send_signal(signal.SIGTERM)
                    await refused(behind)
                    await running.send(b"done")
                assert held.answers == ["done"]
            assert await ended(behind) == 0


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
async def test_a_call_through_a_gateway_is_answered_when_the_gateway_drains(route: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as behind, served(target=f"{behind.origin}/mcp") as gateway:
            await answered_while_it_drains(gateway, route)
