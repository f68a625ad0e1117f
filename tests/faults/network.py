"""A network that fails in more ways than a plain proxy: connections are forgotten on the way, or others answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from tests.client.proxy import GONE, Proxy

if TYPE_CHECKING:
    from anyio.abc import SocketStream


class Network(Proxy):
    """Stands before a server.

    Attributes:
        answer: What whoever sends is answered, before its connection ends, instead of by the server; None for the
            server's own answers.
    """

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.answer: bytes | None = None
        self._forgotten: set[SocketStream] = set()
        self._nears: dict[SocketStream, SocketStream] = {}

    def forget(self) -> None:
        """Pass nothing on any more over the connections that there are, and let them stay; new ones work."""
        self._forgotten |= self._open

    async def _pass_on(self, near: SocketStream) -> None:
        self.connections += 1
        with suppress(*GONE):
            async with near, await anyio.connect_tcp("127.0.0.1", self.target_port) as far:
                self._nears[far] = near
                await self._join(near, far)

    async def _send(self, sink: SocketStream, chunk: bytes, answers: bool) -> None:
        if sink in self._forgotten:
            return
        if self.answer is None or answers:
            await super()._send(sink, chunk, answers)
            return
        near = self._nears[sink]
        await near.send(self.answer)
        await near.aclose()
