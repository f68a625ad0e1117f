"""Listening: sockets that are bound before anything is served, and uvicorn on them."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn

from bridge.cli.failures import end_now
from bridge.cli.http_protocol import http_protocol
from bridge.hosting.process import DrainTimes, HostingError
from bridge.hosting.protocols import ConnectionBounds
from bridge.hosting.server import HttpServer, SilentServer
from bridge.server.http.probes import Probes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette
    from starlette.types import ASGIApp

    from bridge.server.http.guards import PreAsgiHandler
    from bridge.server.http.probes import HealthState

GRACEFUL_SECONDS = 10
"""How long running calls may go on after the server was asked to end; a second Ctrl-C ends at once."""
RELOAD_GRACEFUL_SECONDS = 1
"""The same, where the server ends only to start again."""

KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle: longer than balancers keep theirs, lest they use one that closes."""

_BACKLOG = 2048
_YOUNG_OBJECTS = 10_000
_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_PROXIES = "FORWARDED_ALLOW_IPS"
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - not bound here

Address = tuple[int, tuple[Any, ...]]
"""A family of addresses, and an address of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operated:
    """Where a server tells of itself, and how it ends."""

    times: DrainTimes
    """How long the end takes after SIGTERM."""
    pages: Mapping[str, ASGIApp]
    """What is answered before the application, by path."""
    admin_app: ASGIApp | None = None
    """What is served beside the application, until it has ended: from before it starts, where nobody serves yet."""
    admin_sockets: list[socket.socket] = field(default_factory=list)
    """Where that is."""


def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host, each once.

    Raises:
        HostingError: The host has none.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise HostingError(f"cannot listen on {host!r}: {_reason(error)}") from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def are_loopback(addresses: Sequence[Address]) -> bool:
    """Whether only this machine reaches the addresses."""
    return all(ip_address(address[0].partition("%")[0]).is_loopback for _, address in addresses)


def bind(addresses: Sequence[Address]) -> list[socket.socket]:
    """Bind a socket to each address, all to one port; a family that the machine does not have is left out.

    Raises:
        HostingError: An address cannot be bound; the message says which.
    """
    bound: list[socket.socket] = []
    refusal = None
    for family, address in addresses:
        port = bound[0].getsockname()[1] if bound else address[1]
        target = (address[0], port, *address[2:])
        try:
            bound.append(_bound(family, target))
        except OSError as error:
            refusal = HostingError(f"cannot listen on {_authority(str(address[0]), port)}: {_reason(error)}")
            if error.errno not in _NO_SUCH_FAMILY:
                for each in bound:
                    each.close()
                raise refusal from error
    if not bound:
        assert refusal is not None
        raise refusal
    return bound


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    # asyncio sets TCP_NODELAY on connections of sockets that name their protocol, and on no others.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def url_of(host: str, port: int, path: str) -> str:
    """The URL of a path on a host."""
    return f"http://{_authority(host, port)}{path}"


def reachable(host: str) -> str:
    """A host that a client on this machine can use, where a server listens on all addresses."""
    return _ANYWHERE.get(host, host)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def leave_out_what_stays() -> None:
    """Keep the garbage collector from going through all that was imported, which is never garbage.

    That is a quarter of a million objects. With many calls waiting, or many sessions open, going through them time and
    again takes as long as the calls: 286 µs of a call among a thousand that wait, against 129 µs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def run(
    app: Starlette,
    sockets: list[socket.socket],
    announce: Callable[[], None],
    *,
    operations: HealthState,
    operated: Operated,
    is_debug: bool,
    is_child: bool,
    bounds: ConnectionBounds,
    is_late: bool = False,
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    last_act: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application until a signal ends it.

    Args:
        app: The application.
        sockets: Where to listen.
        announce: Called when requests are served.
        operations: Is told how the server is.
        operated: Where it tells of itself, and how it ends.
        is_debug: Whether each request is logged.
        is_child: Whether the server ends only to start again.
        bounds: How many connections there may be, and how long the head of a request.
        is_late: Whether others listen already, so that connections are left to them until all is open here.
        lifespan: What is open while the application is served; a signal ends its opening too.
        last_act: Called where the process ends before all is closed; from any thread.

    Raises:
        HostingError: The application did not start, or ended by itself; the log says why.
        Exception: What could not be opened.
        KeyboardInterrupt: The signal was SIGINT.
    """
    from bridge.server.http.guards import pre_asgi_handler  # noqa: PLC0415 - the SDK, which the app has loaded
    from bridge.server.limits.middleware import RateLimitMiddleware  # noqa: PLC0415 - as above

    # Who calls through a proxy is known only behind uvicorn's own middleware.
    middleware: set[object] = {each.cls for each in app.user_middleware}
    is_told_by_proxy = _PROXIES in os.environ and RateLimitMiddleware in middleware
    direct = None if is_told_by_proxy else pre_asgi_handler(app, lambda: operations.is_steady)
    config = _config(Probes(app, operations, operated.pages), direct, bounds, is_debug=is_debug, is_child=is_child)

    tells = asyncio.Event()
    if not is_late:  # whoever asks one that is late would hear that none has started
        tells.set()

    def opened() -> None:
        leave_out_what_stays()
        tells.set()
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
                beside = SilentServer(
                    _config(operated.admin_app, None, ConnectionBounds(), is_debug=is_debug, is_child=True)
                )
                await stack.enter_async_context(beside.beside(operated.admin_sockets, tells))
            await server.run_until_ended(sockets)

    try:
        with server.ending.on_signals():
            anyio.run(serve, backend_options={"loop_factory": config.get_loop_factory()})
    except SystemExit as error:
        raise HostingError("the server did not start") from error
    if server.ending.first == signal.SIGINT:
        raise KeyboardInterrupt
    if server.ending.first == signal.SIGTERM:
        end_now(0)
    if operations.has_failed:
        raise HostingError("the server has ended by a mistake; what is logged before this says which")


def _config(
    app: ASGIApp, direct: PreAsgiHandler | None, bounds: ConnectionBounds, *, is_debug: bool, is_child: bool
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=http_protocol(direct, bounds),
        h11_max_incomplete_event_size=bounds.max_header_bytes,
        lifespan="on",
        ws="none",
        proxy_headers=_PROXIES in os.environ,  # else nobody's word for who calls is taken
        log_config=None,
        access_log=is_debug,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=RELOAD_GRACEFUL_SECONDS if is_child else GRACEFUL_SECONDS,
    )
