"""A balancer that routes requests to ready replicas only."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from tests.client.proxy import GONE, Proxy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import SocketStream

_PROBE = b"GET /readyz HTTP/1.1\r\nhost: balancer\r\nconnection: close\r\n\r\n"


class Balancer(Proxy):
    """Distributes connections.

    Args:
        ports: Ports of the replicas.
        is_sticky: Send all connections to the first ready replica, not to each in turn.
    """

    def __init__(self, ports: Sequence[int], *, is_sticky: bool) -> None:
        super().__init__(0)
        self._ports = list(ports)
        self._is_sticky = is_sticky

    async def _pass_on(self, near: SocketStream) -> None:
        self.connections += 1
        with suppress(*GONE):
            async with near, await self._connected() as far:
                await self._join(near, far)

    async def _connected(self) -> SocketStream:
        turn = 0 if self._is_sticky else self.connections
        while True:
            for port in self._ports[turn % len(self._ports) :] + self._ports[: turn % len(self._ports)]:
                if await is_ready(port):
                    return await anyio.connect_tcp("127.0.0.1", port)


async def is_ready(port: int) -> bool:
    """Return True if a replica reports that it is ready."""
    try:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(_PROBE)
            return (await stream.receive()).startswith(b"HTTP/1.1 200")
    except GONE:
        return False
