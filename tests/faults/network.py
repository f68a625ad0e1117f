"""A proxy with further failures: connections are forgotten, or something else answers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from tests.client.proxy import GONE, Proxy

if TYPE_CHECKING:
    from anyio.abc import SocketStream


class Network(Proxy):
    """Proxy in front of a server.

    Attributes:
        answer: Bytes that each sender gets, before its connection is closed, instead of the server's response; None to
            pass on the server's responses.
    """

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.answer: bytes | None = None
        self._forgotten: set[SocketStream] = set()
        self._nears: dict[SocketStream, SocketStream] = {}

    def forget(self) -> None:
        """Pass nothing on over the current connections, and keep them open; new ones work."""
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
