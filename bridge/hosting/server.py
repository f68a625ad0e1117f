"""uvicorn.Server with drain and graceful close.

The HTTP server: uvicorn, that says when it listens, starts what it serves, and drains when it is asked to end.

Leaving: the last look at sockets before they are closed, so that what has come already is not lost with them.

The event loop looks at them once a turn, and a turn may take some milliseconds. Whoever closes a socket on which
something has come since then resets a connection whose client has been let in, or has sent its request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import select
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn

from bridge.hosting.process import DrainTimes, ShutdownSignals

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette

    from bridge.server.http.probes import HealthState

_logger = logging.getLogger("bridge.hosting")

_LEAVING_SECONDS = 0.2
"""How long connections stay open after they were accepted, or what they were used for has ended."""

_ANSWER_SECONDS = 1
"""How long the errors of calls that were cancelled may take to reach their clients."""


class BackgroundServer(uvicorn.Server):
    """uvicorn, that leaves signals to others."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield

    @asynccontextmanager
    async def beside(self, sockets: list[socket.socket], begun: asyncio.Event) -> AsyncIterator[None]:
        """Serve while something else does, once it has begun."""

        async def serve() -> None:
            await begun.wait()
            await self.serve(sockets)

        serving = asyncio.create_task(serve())
        try:
            yield
        finally:
            self.should_exit = True
            if begun.is_set():
                await serving
            else:
                serving.cancel()


class HttpServer(BackgroundServer):
    """The server of an app, until a signal ends it.

    Requests are accepted before everything is open, and wait for that; probes do not.

    Args:
        config: Of uvicorn; what it serves knows of the operations.
        app: The app itself.
        operations: Is told how it is.
        opened: Called when everything is open and requests are served.
        lifespan: What is open while the app is served; None for nothing. A signal ends its opening, too.
        times: How long it drains.
        last_act: Called where the process ends before all is closed.
        is_late: Whether requests are left to others until everything is open here.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: Starlette,
        operations: HealthState,
        opened: Callable[[], None],
        *,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None,
        times: DrainTimes,
        last_act: Callable[[], None],
        is_late: bool = False,
    ) -> None:
        super().__init__(config)
        self.ending = ShutdownSignals(self._begin_end, self._hurry, last_act, times)
        self._app = app
        self._operations = operations
        self._opened = opened
        self._lifespan = lifespan
        self._times = times
        self._is_late = is_late
        self._stack = AsyncExitStack()
        self._opening: anyio.CancelScope | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run_until_ended(self, sockets: list[socket.socket]) -> None:
        """Serve until a signal comes, and close in order whatever signals come meanwhile.

        Where the app ends by itself nothing is served any more: its process is better started anew.

        Raises:
            Exception: What could not be opened.
        """
        self._loop, self._opening = asyncio.get_running_loop(), anyio.CancelScope()
        self._operations.on_failure = self._leave
        async with self._stack:
            await self.serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept requests, and open what has to be open before they are served."""
        if self._is_late:
            await self._open()
            await super().startup(sockets)
        else:
            await super().startup(sockets)
            try:
                await self._open()
            except BaseException:
                self._operations.fail()
                await self.shutdown(sockets)
                raise
        if self.should_exit:
            self._operations.fail()
        else:
            self._operations.open()
            self._opened()

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError):  # it is, but by the loop of Windows
            for each in sockets:
                loop.remove_reader(each)
        # Without uvloop, a server that closes drops what was accepted in the same turn of the loop.
        await asyncio.sleep(0)
        last = [accepted for each in sockets for accepted in accept_pending(each)]
        for server in self.servers:
            server.close()
        for each in sockets:
            each.close()
        for each in last:
            await loop.connect_accepted_socket(self._new_connection, each)

    def _new_connection(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def _open(self) -> None:
        assert self._opening is not None, "it is run by run_until_ended"
        with self._opening:
            if self._lifespan is not None:
                await self._stack.enter_async_context(self._lifespan())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what is open end, and close."""
        if not (self.ending.is_drain and self._operations.has_started):
            self._app.state.shutdown()
            await super().shutdown(sockets)
            return
        if calls := len(self._app.state.drain):
            _logger.info("draining; calls that are being run: %d", calls)
        await asyncio.sleep(self._times.delay_seconds)
        timeout_seconds, begun_at = self._times.timeout_seconds, asyncio.get_running_loop().time()

        def left_seconds() -> float:
            return max(begun_at + timeout_seconds - asyncio.get_running_loop().time(), 0)

        draining = asyncio.create_task(self._app.state.drain(timeout_seconds))
        try:
            with anyio.move_on_after(timeout_seconds):
                await self._app.state.drain.answered()
            await self._stop_listening(sockets or [])
            with anyio.move_on_after(left_seconds() + _LEAVING_SECONDS):
                await self._finish()
            self.config.timeout_graceful_shutdown = math.ceil(left_seconds()) + _ANSWER_SECONDS
            await super().shutdown(sockets)
        finally:
            draining.cancel()

    async def _finish(self) -> None:
        """Wait until all that is open has ended, and no call runs of a client that has hung up or listens elsewhere."""
        # Whoever was accepted last is about to ask. And streams have ended: whoever opens them anew uses connections
        # that were idle.
        await close_idle_until_none(self.server_state.connections, _LEAVING_SECONDS)
        while len(self._app.state.drain):  # noqa: ASYNC110 - every call would pay for an event that is awaited once
            await asyncio.sleep(_LEAVING_SECONDS)

    def _begin_end(self) -> None:
        if self.ending.is_drain:
            self._operations.drain()
        self.should_exit = True
        if self._loop is not None and self._opening is not None:
            self._loop.call_soon_threadsafe(self._opening.cancel)

    def _leave(self) -> None:
        self.should_exit = True

    def _hurry(self) -> None:
        self.force_exit = True


def accept_pending(listening: socket.socket) -> list[socket.socket]:
    """The connections that wait at a socket; it is to be closed right after this."""
    found: list[socket.socket] = []
    with suppress(OSError):  # there are no more, or no more can be
        while True:
            accepted, _ = listening.accept()
            accepted.setblocking(False)
            found.append(accepted)
    return found


async def close_idle_until_none(connections: Collection[Any], moment_seconds: float) -> None:
    """Close connections as they come to be idle, until there are none.

    Each stays open for a moment after that: its client was told that it may go on with it, unless the answer began
    after the end of the server did.

    Args:
        connections: uvicorn's protocols; those that are closed, by whomever, leave it.
        moment_seconds: How long the moment is, at least.
    """
    while True:
        idle = [connection for connection in connections if _is_idle(connection)]
        await asyncio.sleep(moment_seconds)
        await close_idle(idle)
        if not connections:
            return


async def close_idle(connections: Iterable[Any]) -> None:
    """Close connections that still wait for a request, but for those on which one has come that was not read yet.

    One in each turn of the loop: a connection is closed a turn after it was looked at, and with many in one turn that
    is late.

    Args:
        connections: uvicorn's protocols.
    """
    for connection in tuple(connections):
        transport = connection.transport
        if _is_idle(connection) and not transport.is_closing() and not _has_unread(transport):
            connection.shutdown()
        await asyncio.sleep(0)


def _is_idle(connection: Any) -> bool:
    return connection.cycle is None or connection.cycle.response_complete


def _has_unread(transport: asyncio.BaseTransport) -> bool:
    if not hasattr(select, "poll"):  # Windows: its select takes no more than some hundreds
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
