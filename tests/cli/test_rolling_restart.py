from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

import anyio
import pytest

from bridge.client import HttpTransport, McpToolProvider, ServerConfig
from tests.cli.balancing import Balancer
from tests.cli.draining import ended, port_of, served
from tests.faults.traffic import Traffic
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.client.config.servers import ProtocolPin
    from tests.processes import ServerProcess

DEADLINE_SECONDS = 120
SERVED = "tests/faults/served.py:TOOLS"
DRAIN_DELAY_SECONDS = "1"


class Replicas:
    """Two servers of the same tools, each at its own port.

    Args:
        options: Further options of both.
    """

    def __init__(self, *options: str) -> None:
        self._options = ("--drain-delay", DRAIN_DELAY_SECONDS, *options)
        self.ports: list[int] = []
        self._servers: list[ServerProcess] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for _ in range(2):
            self._servers.append(await self._started("0"))
            self.ports.append(port_of(self._servers[-1]))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def restart(self, index: int) -> str:
        """End one server with SIGTERM, and start it again; returns the log of the old one."""
        old = self._servers[index]
        old.process.send_signal(signal.SIGTERM)
        assert await ended(old) == 0
        self._servers[index] = await self._started(str(self.ports[index]))
        return old.log

    async def _started(self, port: str) -> ServerProcess:
        return await self._stack.enter_async_context(served(*self._options, target=SERVED, port=port))


async def connected(stack: AsyncExitStack, balancer: Balancer, protocol: ProtocolPin, journal: Path) -> Traffic:
    """Connect a provider through a balancer, and make the calls by it."""
    await stack.enter_async_context(balancer.running())
    transport = HttpTransport(f"http://127.0.0.1:{balancer.port}/mcp", kind="http")
    config = ServerConfig(name="server", transport=transport, protocol=protocol)
    provider = await stack.enter_async_context(McpToolProvider(config))
    return Traffic(provider, journal)


async def restarted(replicas: Replicas, traffics: list[Traffic]) -> None:
    """Restart each replica in turn, twice, while calls run."""
    async with AsyncExitStack() as calling:
        for traffic in traffics:
            await calling.enter_async_context(traffic.going_on())
        for index in (0, 1, 0, 1):
            log = await replicas.restart(index)
            assert "Traceback" not in log
            for traffic in traffics:
                await traffic.more()


def check(traffics: list[Traffic]) -> None:
    """Assert that no call failed."""
    for traffic in traffics:
        assert len(traffic.answered) > 100
        assert (traffic.failed, traffic.lost, traffic.run_twice, traffic.untrue()) == ({}, [], [], [])


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
async def test_no_call_fails_while_each_replica_in_turn_is_started_again(tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Replicas() as replicas, AsyncExitStack() as stack:
            in_turn = Balancer(replicas.ports, is_sticky=False)
            to_first = Balancer(replicas.ports, is_sticky=True)  # a session belongs to one replica
            to_second = Balancer(replicas.ports[::-1], is_sticky=True)
            traffics = [
                await connected(stack, in_turn, "2026-07-28", tmp_path / "modern"),
                await connected(stack, to_first, "legacy", tmp_path / "handshake"),
                await connected(stack, to_second, "legacy", tmp_path / "handshake-beside"),
            ]
            await restarted(replicas, traffics)
        check(traffics)


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
async def test_with_a_redis_no_client_has_to_come_back_to_the_replica_of_its_session(tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE_SECONDS), redis_server(tmp_path) as redis:
        async with Replicas("--redis-url", redis.url) as replicas, AsyncExitStack() as stack:
            in_turn = [Balancer(replicas.ports, is_sticky=False) for _ in range(2)]
            traffics = [
                await connected(stack, in_turn[0], "legacy", tmp_path / "handshake"),
                await connected(stack, in_turn[1], "legacy", tmp_path / "handshake-beside"),
            ]
            await restarted(replicas, traffics)
        check(traffics)
