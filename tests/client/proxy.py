"""A TCP proxy that can cut connections, pass nothing on, slow down, or break off in the middle of a response."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import SocketListener

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import SocketStream, TaskGroup

GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
"""Errors of a connection that the other side has closed."""


class Proxy:
    """Proxy in front of a server.

    Attributes:
        port: Port of the proxy.
        target_port: Port of the server.
        is_silent: Accept bytes, and pass nothing on, in either direction.
        is_slow: Pass responses on byte by byte.
        bytes_left: Break off after this many further bytes of responses; None for never.
        connections: Number of connections that were made to it.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self.is_silent = False
        self.is_slow = False
        self.bytes_left: int | None = None
        self.connections = 0
        self.target_port = target_port
        self._open: set[SocketStream] = set()
        self._listener: SocketListener | None = None
        self._tasks: TaskGroup | None = None

    async def cut(self) -> None:
        """Cut all connections."""
        for stream in tuple(self._open):
            await stream.aclose()

    async def refuse(self) -> None:
        """Cut all connections, and accept no more."""
        assert self._listener is not None
        await self._listener.aclose()
        await self.cut()

    async def accept(self) -> None:
        """Accept connections, each time at the same port."""
        assert self._tasks is not None
        multi = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port, reuse_port=False)
        (self._listener,) = (listener for listener in multi.listeners if isinstance(listener, SocketListener))
        self._tasks.start_soon(self._listen, self._listener)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Accept connections in this block."""
        async with anyio.create_task_group() as self._tasks:
            await self.accept()
            yield self
            self._tasks.cancel_scope.cancel()

    async def _listen(self, listener: SocketListener) -> None:
        with suppress(*GONE):
            async with listener:
                await listener.serve(self._pass_on)

    async def _pass_on(self, near: SocketStream) -> None:
        self.connections += 1
        with suppress(*GONE):
            async with near, await anyio.connect_tcp("127.0.0.1", self.target_port) as far:
                await self._join(near, far)

    async def _join(self, near: SocketStream, far: SocketStream) -> None:
        self._open |= {near, far}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump, near, far, False)
            await self._pump(far, near, True)
            tasks.cancel_scope.cancel()
        self._open -= {near, far}

    async def _pump(self, source: SocketStream, sink: SocketStream, answers: bool) -> None:
        with suppress(*GONE):
            async for chunk in source:
                if not self.is_silent:
                    await self._send(sink, chunk, answers)
            await sink.send_eof()

    async def _send(self, sink: SocketStream, chunk: bytes, answers: bool) -> None:
        if answers and self.bytes_left is not None:
            chunk, self.bytes_left = chunk[: self.bytes_left], max(0, self.bytes_left - len(chunk))
        for part in [chunk[i : i + 1] for i in range(len(chunk))] if answers and self.is_slow else [chunk]:
            await sink.send(part)
        if answers and self.bytes_left == 0:
            self.bytes_left = None
            await self.cut()
