"""Serving an application on bound sockets until a signal, with uvicorn."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn

from bridge.hosting.connection_limits import ConnectionLimits
from bridge.hosting.known_heads import with_known_heads
from bridge.hosting.process import DrainTimes, HostingError, exit_process
from bridge.hosting.protocols import with_coalesced_writes, with_connection_limits
from bridge.hosting.server import BackgroundServer, HttpServer
from bridge.hosting.sockets import _BACKLOG
from bridge.server.http.probes import Probes

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp

    from bridge.server.http.app import BridgeApp
    from bridge.server.http.guards import PreAsgiHandler
    from bridge.server.http.probes import HealthState

GRACEFUL_SECONDS = 10
"""Seconds that running calls may take after a shutdown began; a second Ctrl-C ends them."""
RELOAD_GRACEFUL_SECONDS = 1
"""The same before a restart by reload, in seconds."""
KEEP_ALIVE_SECONDS = 75
"""Idle seconds of a connection; longer than in load balancers, so that they do not use a connection that closes."""

_YOUNG_OBJECTS = 10_000
_PROXIES = "FORWARDED_ALLOW_IPS"
_USUAL_BOUNDS = ConnectionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPages:
    """Admin pages, and shutdown durations."""

    times: DrainTimes
    """Durations of the shutdown after SIGTERM."""
    pages: Mapping[str, ASGIApp]
    """Pages that are served before the application, by path."""
    admin_app: ASGIApp | None = None
    """Application of the admin port, served until the main one has ended."""
    admin_sockets: list[socket.socket] = field(default_factory=list)
    """Listening sockets of the admin port."""


def freeze_garbage_collector() -> None:
    """Exclude imported objects from garbage collection.

    There are about 250,000. With thousands of waiting calls or sessions, traversing them repeatedly takes as long as
    the calls: 286 µs of a call among a thousand waiting ones, instead of 129 µs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def serve_app(
    app: BridgeApp,
    sockets: list[socket.socket],
    announce: Callable[[], None],
    *,
    operations: HealthState,
    operated: AdminPages,
    is_debug: bool,
    is_child: bool,
    bounds: ConnectionLimits,
    is_late: bool = False,
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    last_act: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application until a signal.

    Args:
        app: The application.
        sockets: Listening sockets.
        announce: Called when requests are served.
        operations: Health state to update.
        operated: Admin pages, and shutdown durations.
        is_debug: True to log each request.
        is_child: True if the server is restarted by reload.
        bounds: Connection limits.
        is_late: True if other processes already listen, so that this one accepts connections only when it is ready.
        lifespan: Context during which the application is served; a signal also cancels its start.
        last_act: Called before the process ends immediately, from any thread.

    Raises:
        HostingError: The application did not start, or failed; the log has the reason.
        Exception: The error of the lifespan's start.
        KeyboardInterrupt: The signal was SIGINT.
    """
    # The address of a caller behind a proxy is known only behind uvicorn's own middleware.
    needs_address = _PROXIES in os.environ and app.limits_requests
    direct = None if needs_address else app.pre_asgi_handler(lambda: operations.is_steady)
    config = _config(Probes(app, operations, operated.pages), direct, bounds, is_debug=is_debug, is_child=is_child)

    has_status = asyncio.Event()
    if not is_late:  # a late one would report that it has not started
        has_status.set()

    def opened() -> None:
        freeze_garbage_collector()
        has_status.set()
        announce()

    server = HttpServer(
        config,
        app,
        operations,
        opened,
        lifespan=lifespan,
        times=DrainTimes(timeout_seconds=RELOAD_GRACEFUL_SECONDS) if is_child else operated.times,
        last_act=last_act,
        is_late=is_late,
    )

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            if operated.admin_app is not None:
                background = BackgroundServer(
                    _config(operated.admin_app, None, ConnectionLimits(), is_debug=is_debug, is_child=True)
                )
                await stack.enter_async_context(background.running(operated.admin_sockets, has_status))
            await server.run_until_ended(sockets)

    try:
        with server.ending.on_signals():
            anyio.run(serve, backend_options={"loop_factory": config.get_loop_factory()})
    except SystemExit as error:
        raise HostingError("the server did not start") from error
    if server.ending.first == signal.SIGINT:
        raise KeyboardInterrupt
    if server.ending.first == signal.SIGTERM:
        exit_process(0)
    if operations.has_failed:
        raise HostingError("the server has failed; see the log lines above")


def _config(
    app: ASGIApp, direct: PreAsgiHandler | None, bounds: ConnectionLimits, *, is_debug: bool, is_child: bool
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=http_protocol(direct, bounds),
        h11_max_incomplete_event_size=bounds.max_header_bytes,
        lifespan="on",
        ws="none",
        proxy_headers=_PROXIES in os.environ,  # otherwise forwarded headers are not trusted
        log_config=None,
        access_log=is_debug,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=RELOAD_GRACEFUL_SECONDS if is_child else GRACEFUL_SECONDS,
    )


def http_protocol(
    direct: PreAsgiHandler | None = None, bounds: ConnectionLimits = _USUAL_BOUNDS
) -> type[asyncio.Protocol]:
    """Choose the fastest available protocol, for a pre-ASGI handler, if there is one."""
    if find_spec("httptools") is None:
        from bridge.hosting.h11_protocol import h11_protocol  # noqa: PLC0415 - as needed

        return with_coalesced_writes(with_connection_limits(h11_protocol(bounds), bounds))
    from bridge.hosting.httptools_protocol import httptools_protocol  # noqa: PLC0415 - as needed

    protocol = with_connection_limits(httptools_protocol(direct), bounds)
    return with_coalesced_writes(protocol if direct is None else with_known_heads(protocol))
