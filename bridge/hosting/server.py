"""uvicorn server with drain and graceful close.

Sockets are checked once more before they are closed: closing a socket with unread data resets the connection of a
client that was accepted or has sent its request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import select
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn

from bridge.errors import BridgeError
from bridge.hosting.process import DrainTimes, ShutdownSignals
from bridge.hosting.service_manager import service_manager

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable
    from contextlib import AbstractAsyncContextManager

    from bridge.server.http.app import BridgeApp
    from bridge.server.http.probes import HealthState
    from bridge.server.start import Start

_logger = logging.getLogger("bridge.hosting")

_IDLE_SECONDS = 0.2
"""Seconds that connections stay open after they were accepted, or after their last response."""
_ANSWER_SECONDS = 1
"""Seconds for sending the errors of cancelled calls."""


class BackgroundServer(uvicorn.Server):
    """uvicorn server without signal handlers."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers."""
        yield

    @asynccontextmanager
    async def running(self, sockets: list[socket.socket], begun: asyncio.Event) -> AsyncIterator[None]:
        """Serve during this block, after an event is set."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An application that is served until a signal."""

    app: BridgeApp
    """The application."""
    operations: HealthState
    """Health state to update."""
    opened: Callable[[], None]
    """Called when requests are served."""
    times: DrainTimes = field(default_factory=DrainTimes)
    """Durations of the shutdown after SIGTERM."""
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    """Context during which the application is served; None for none. A signal also cancels its start."""
    last_act: Callable[[], None] = lambda: None
    """Called before the process ends immediately, from any thread."""
    reload: Callable[[], Awaitable[None]] | None = None
    """Reloads the configuration, or raises a `BridgeError`; called on SIGHUP. None if nothing can be reloaded."""
    start: Start | None = None
    """The start of other servers, during which requests are served already; None if there are none."""
    is_late: bool = False
    """True if other processes already listen, so that this one accepts connections only when it is ready."""
    is_successor: bool = False
    """True if it takes the place of another process, which serves until the start of this one has ended."""


class HttpServer(BackgroundServer):
    """Server of an application until a signal.

    Requests are accepted before the application is ready, and wait for it; probes are answered immediately.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        reload = None if service.reload is None else self._begin_reload
        self.ending = ShutdownSignals(self._begin_end, self._hurry, service.last_act, service.times, reload)
        self._reloads: set[asyncio.Task[None]] = set()
        self._service, self._app, self._operations = service, service.app, service.operations
        self._stack = AsyncExitStack()
        self._opening: anyio.CancelScope | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run_until_ended(self, sockets: list[socket.socket]) -> None:
        """Serve until a signal, then shut down in order.

        If the application fails, the server stops: the process should be restarted.

        Raises:
            Exception: The error of the lifespan's start.
        """
        self._loop, self._opening = asyncio.get_running_loop(), anyio.CancelScope()
        self._operations.on_failure = self._leave
        async with self._stack:
            await self.serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept requests, and enter the lifespan."""
        if self._service.is_late:
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
            self._service.opened()

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError):  # Windows' proactor loop
            for each in sockets:
                loop.remove_reader(each)
        # Without uvloop, closing a server drops connections accepted in the same turn of the loop.
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
            if self._service.lifespan is not None:
                await self._stack.enter_async_context(self._service.lifespan())
            if self._service.start is not None and self._service.is_successor:
                await self._service.start.ended()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain and close."""
        service_manager().stopping()
        if self._service.start is not None:
            self._service.start.end()
        if not (self.ending.is_drain and self._operations.has_started):
            self._app.shutdown()
            await super().shutdown(sockets)
            return
        if calls := len(self._app.drain):
            _logger.info("draining; running calls: %d", calls)
        await asyncio.sleep(self._service.times.delay_seconds)
        timeout_seconds, begun_at = self._service.times.timeout_seconds, asyncio.get_running_loop().time()

        def left_seconds() -> float:
            return max(begun_at + timeout_seconds - asyncio.get_running_loop().time(), 0)

        draining = asyncio.create_task(self._app.drain(timeout_seconds))
        try:
            with anyio.move_on_after(timeout_seconds):
                await self._app.drain.answered()
            await self._stop_listening(sockets or [])
            with anyio.move_on_after(left_seconds() + _IDLE_SECONDS):
                await self._finish()
            self.config.timeout_graceful_shutdown = math.ceil(left_seconds()) + _ANSWER_SECONDS
            await super().shutdown(sockets)
        finally:
            draining.cancel()

    async def _finish(self) -> None:
        """Wait until idle connections are closed and no call runs without its connection."""
        # New connections are about to send a request, and ended streams are reopened on idle connections.
        await close_idle_until_none(self.server_state.connections, _IDLE_SECONDS)
        while len(self._app.drain):  # noqa: ASYNC110 - an event would cost time in every call
            await asyncio.sleep(_IDLE_SECONDS)

    def _begin_end(self) -> None:
        if self.ending.is_drain:
            self._operations.drain()
        self.should_exit = True
        if self._loop is not None and self._opening is not None:
            self._loop.call_soon_threadsafe(self._opening.cancel)

    def _begin_reload(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._start_reload)

    def _start_reload(self) -> None:
        if self._operations.has_started and not self.should_exit:
            task = asyncio.get_running_loop().create_task(self._reload())
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        assert self._service.reload is not None
        with suppress(BridgeError):  # it is logged
            await self._service.reload()

    def _leave(self) -> None:
        self.should_exit = True

    def _hurry(self) -> None:
        self.force_exit = True


def accept_pending(listening: socket.socket) -> list[socket.socket]:
    """Accept the pending connections of a socket that is about to be closed."""
    found: list[socket.socket] = []
    with suppress(OSError):  # no more connections, or no more descriptors
        while True:
            accepted, _ = listening.accept()
            accepted.setblocking(False)
            found.append(accepted)
    return found


async def close_idle_until_none(connections: Collection[Any], moment_seconds: float) -> None:
    """Close connections (uvicorn's protocols) when they are idle, until there are none.

    Each stays open briefly after its response, which may have told the client to keep it alive.
    """
    while True:
        idle = [connection for connection in connections if connection.is_idle]
        await asyncio.sleep(moment_seconds)
        await close_idle(idle)
        if not connections:
            return


async def close_idle(connections: Iterable[Any]) -> None:
    """Close connections that wait for a request and have no unread data.

    One in each turn of the loop, since a connection is closed one turn after the check.
    """
    for connection in tuple(connections):
        transport = connection.transport
        if connection.is_idle and not transport.is_closing() and not _has_unread(transport):
            connection.shutdown()
        await asyncio.sleep(0)


def _has_unread(transport: asyncio.BaseTransport) -> bool:
    if not hasattr(select, "poll"):  # Windows: select supports only a few hundred sockets
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
