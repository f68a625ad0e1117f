from __future__ import annotations

import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from tests.cli.balancing import Balancer
from tests.cluster.calling import Client, HandshakeClient, ModernClient
from tests.cluster.conftest import KEY
from tests.cluster.replicas import Replicas
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed"),
]

DEADLINE_SECONDS = 180
KILLS_OF_A_MINUTE = 60
SHORT_KILLS = 3
CALLS_BETWEEN = 20
ANSWERS_OF_EACH = 20
CALLERS = 2


CLIENTS: dict[str, type[Client]] = {
    "modern": ModernClient,
    "modern-too": ModernClient,
    "handshake": HandshakeClient,
    "handshake-too": HandshakeClient,
}


class Show:
    """Replicas behind a balancer, and the clients that call through it.

    Args:
        folder: Folder of the journals.
        redis_url: Redis of the replicas.
    """

    def __init__(self, folder: Path, redis_url: str) -> None:
        self.replicas = Replicas(redis_url)
        self.clients: list[Client] = []
        self._folder = folder
        self._calls = 0
        self._called = anyio.Event()
        self._is_over = False

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Context during which clients of both eras call; it ends when each has had `ANSWERS_OF_EACH`."""
        async with self.replicas, AsyncExitStack() as stack:
            balancer = Balancer(self.replicas.ports, is_sticky=False)
            await stack.enter_async_context(balancer.running())
            for name, kind in CLIENTS.items():
                # One connection for each request, so that each may reach another replica.
                limits = httpx.Limits(max_keepalive_connections=0)
                http = await stack.enter_async_context(httpx.AsyncClient(limits=limits))
                url = f"http://127.0.0.1:{balancer.port}/mcp"
                client: Client = kind(name=name, url=url, journal=self._folder / name, http=http)
                if isinstance(client, HandshakeClient):
                    await client.open()
                self.clients.append(client)
            async with anyio.create_task_group() as calling:
                for client in self.clients:
                    for caller in range(CALLERS):
                        calling.start_soon(self._keep_calling, client, caller)
                yield
                while any(len(client.answered) < ANSWERS_OF_EACH for client in self.clients):
                    await self.more(1)
                self._is_over = True

    async def more(self, calls: int) -> None:
        """Wait until this many further calls have ended."""
        until = self._calls + calls
        while self._calls < until:
            await self._called.wait()

    async def _keep_calling(self, client: Client, caller: int) -> None:
        number = caller
        while not self._is_over:
            await client.call(number)
            number += CALLERS
            self._calls += 1
            self._called.set()
            self._called = anyio.Event()

    def check(self) -> None:
        """Check that no call that had not begun was lost, none ran twice, and no client got another's result."""
        for client in self.clients:
            runs = client.runs()
            assert client.strange == []
            assert {call: times for call, times in runs.items() if times != 1} == {}
            assert runs.keys() == client.answered.keys() | set(client.unknown)
            assert not client.answered.keys() & set(client.unknown)
            for call, text in client.answered.items():
                assert text in {call, f"{call} {client.name}"}
            assert len(client.unknown) <= self.replicas.kills * CALLERS


async def test_calls_go_on_while_replicas_are_killed(tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE_SECONDS), redis_server(tmp_path) as redis:
        show = Show(tmp_path, redis.url)
        async with show.going_on():
            for _ in range(SHORT_KILLS):
                await show.more(CALLS_BETWEEN)
                killed = await show.replicas.kill()
                await show.more(CALLS_BETWEEN)
                await show.replicas.start(killed)
            await show.more(CALLS_BETWEEN)
        show.check()


@pytest.mark.faults
async def test_calls_go_on_while_every_second_for_a_minute_a_replica_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with anyio.fail_after(2 * DEADLINE_SECONDS), redis_server(tmp_path) as redis:
        show = Show(tmp_path, redis.url)
        async with show.going_on(), anyio.create_task_group() as starting:
            begun_at = anyio.current_time()
            for second in range(1, KILLS_OF_A_MINUTE + 1):
                await anyio.sleep_until(begun_at + second)
                starting.start_soon(show.replicas.start, await show.replicas.kill())
        show.check()
    for client in show.clients:
        told = (
            f"{client.name}: {len(client.answered)} calls answered, {len(client.unknown)} broke off when their replica "
            f"was killed, {client.again} attempts made again that had not begun"
        )
        request.node.user_properties.append((KEY, told))
