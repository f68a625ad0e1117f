"""Serving an application on bound sockets until a signal, with uvicorn."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
import uvicorn

from bridge.hosting.blocked_loop import blocks_reported
from bridge.hosting.http.calls import McpCalls
from bridge.hosting.http.connection import Connection
from bridge.hosting.http.limits import ConnectionLimits, ConnectionShares
from bridge.hosting.http.refusals import refusals
from bridge.hosting.http.unread_responses import UnreadResponses
from bridge.hosting.process import DrainTimes, HostingError, exit_process
from bridge.hosting.server import BackgroundServer, HttpServer, Service
from bridge.hosting.service_manager import service_manager
from bridge.hosting.sockets import BACKLOG
from bridge.server.http.probes import Probes

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from starlette.types import ASGIApp

    from bridge.hosting.http.parser import HttpParser
    from bridge.server.http.guards import PreAsgiHandler

GRACEFUL_SECONDS = 10
"""Seconds that running calls may take after a shutdown began; a second Ctrl-C ends them."""
RELOAD_GRACEFUL_SECONDS = 1
"""The same before a restart by reload, in seconds."""
KEEP_ALIVE_SECONDS = 75
"""Idle seconds of a connection; longer than in load balancers, so that they do not use a connection that closes."""

_YOUNG_OBJECTS = 10_000
_PROXIES = "FORWARDED_ALLOW_IPS"
_USUAL_LIMITS = ConnectionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPages:
    """Admin pages."""

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
    service: Service,
    sockets: list[socket.socket],
    pages: AdminPages,
    bounds: ConnectionLimits,
    *,
    is_debug: bool = False,
    is_child: bool = False,
) -> None:
    """Serve an application until a signal.

    Args:
        service: The application.
        sockets: Listening sockets.
        pages: Admin pages.
        bounds: Connection limits.
        is_debug: True to log each request, and functions that block the event loop.
        is_child: True if the server is restarted by reload; functions that block the event loop are logged, too.

    Raises:
        HostingError: The application did not start, or failed; the log has the reason.
        Exception: The error of the lifespan's start.
        KeyboardInterrupt: The signal was SIGINT.
    """
    app, operations = service.app, service.operations
    # The address of a caller behind a proxy is known only behind uvicorn's own middleware.
    needs_address = _PROXIES in os.environ and app.limits_requests
    direct = None if needs_address else app.pre_asgi_handler(lambda: operations.is_steady)
    config = _config(Probes(app, operations, pages.pages), direct, bounds, is_debug=is_debug, is_child=is_child)

    has_status = asyncio.Event()
    if not service.is_late:  # a late one would report that it has not started
        has_status.set()

    def opened() -> None:
        freeze_garbage_collector()
        has_status.set()
        service.opened()

    times = DrainTimes(timeout_seconds=RELOAD_GRACEFUL_SECONDS) if is_child else service.times
    server = HttpServer(config, replace(service, opened=opened, times=times))

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            if pages.admin_app is not None:
                background = BackgroundServer(
                    _config(pages.admin_app, None, ConnectionLimits(), is_debug=is_debug, is_child=True)
                )
                await stack.enter_async_context(background.running(pages.admin_sockets, has_status))
            watching = asyncio.create_task(service_manager().watch())
            stack.callback(watching.cancel)
            if is_debug or is_child:
                await stack.enter_async_context(blocks_reported())
            await server.run_until_ended(sockets)

    try:
        with server.ending.on_signals():
            anyio.run(serve, backend_options={"loop_factory": config.get_loop_factory()})
    except SystemExit as error:
        raise HostingError(app.why_not_started or "the server did not start") from error
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
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=RELOAD_GRACEFUL_SECONDS if is_child else GRACEFUL_SECONDS,
    )


def http_protocol(
    handler: PreAsgiHandler | None = None,
    limits: ConnectionLimits = _USUAL_LIMITS,
    parser: type[HttpParser] | None = None,
) -> type[Connection]:
    """Create the class of the connections of one server, for uvicorn's ``http``.

    Args:
        handler: Answers requests before ASGI; None if the ASGI app answers all.
        limits: Limits of the connections.
        parser: Class of the parser; None for the fastest.
    """
    shared = {
        "answers": None if handler is None else McpCalls(handler).answers,
        "limits": limits,
        "parser": parser or _fastest_parser(),
        "refusals": refusals(limits),
        "shares": ConnectionShares(limits.max_connections),
        "unread": UnreadResponses(limits),
    }
    return type("ServedConnection", (Connection,), shared)


def _fastest_parser() -> type[HttpParser]:
    """Return the fastest parser that is installed."""
    if find_spec("httptools") is None:
        from bridge.hosting.http.h11_parser import H11Parser  # noqa: PLC0415 - as needed

        return H11Parser
    from bridge.hosting.http.httptools_parser import HttptoolsParser  # noqa: PLC0415 - as needed

    return HttptoolsParser
