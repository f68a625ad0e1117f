"""Connections without sockets, for tests that look at each write or advance the time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.server import ServerState

from bridge.hosting.http.limits import ConnectionLimits
from bridge.hosting.serve import http_protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.hosting.http.connection import Connection
    from bridge.server.http.guards import PreAsgiHandler

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


class FakeLoop:
    """Time and timers of an event loop, which a test advances; its tasks never run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.now + seconds, callback, (), asyncio.get_event_loop())
        self.timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self.call_later(0, callback)

    def create_task(self, work: Coroutine[Any, Any, None]) -> Any:
        work.close()
        return _NeverRun()

    def run_until(self, now: float) -> None:
        while due := [timer for timer in self.timers if timer.cancelled() or timer.when() <= now]:
            self.timers.remove(due[0])
            if not due[0].cancelled():
                self.now = due[0].when()
                due[0]._run()
        self.now = now


class _NeverRun:
    def add_done_callback(self, _: object) -> None:
        """Do nothing."""


class FakeTransport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = self.is_reading_paused = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False


async def _unused(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError


def connected(
    app: ASGIApp = _unused,
    *,
    handler: PreAsgiHandler | None = None,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - a frozen value
    loop: Any = None,
    **settings: Any,
) -> tuple[Connection, FakeTransport]:
    """Make a connection; without an app, its requests are never answered."""
    config = uvicorn.Config(
        app, http=http_protocol(handler, limits), log_config=None, **{"access_log": False, **settings}
    )
    config.load()
    made: Any = config.http_protocol_class
    connection: Connection = made(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    transport = FakeTransport()
    connection.connection_made(transport)
    return connection, transport


async def turn() -> None:
    """Run one turn of the event loop."""
    passed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(passed.set_result, None)
    await passed
