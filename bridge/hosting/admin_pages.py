"""Operating ``bridge serve`` over HTTP: which page tells of it where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from bridge.cli.failures import say
from bridge.hosting import serve
from bridge.server.auth.bearer import BearerAuthMiddleware
from bridge.server.auth.identity import CredentialCache
from bridge.server.auth.unlimited import Unlimited
from bridge.server.http.host_origin import AllowedHosts, HostOriginMiddleware
from bridge.server.http.probes import METRICS_PATH, PATHS, STATUS_PATH, PageRouter, StatusPage, probe_pages
from bridge.server.telemetry_metrics import MetricsPage

if TYPE_CHECKING:
    import socket

    from starlette.applications import Starlette
    from starlette.types import ASGIApp

    from bridge.hosting.child_process import Inheritance
    from bridge.hosting.process import DrainTimes
    from bridge.server.auth.auth import Auth
    from bridge.server.http.probes import HealthState
    from bridge.server.telemetry_metrics import WrittenMetrics


def operated(
    app: Starlette,
    operations: HealthState,
    *,
    times: DrainTimes,
    path: str,
    admin_host: str,
    admin_port: int | None,
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    is_open: bool,
    metrics: WrittenMetrics | None,
    auth: Auth | None,
    inheritance: Inheritance | None,
) -> serve.Operated:
    """Put the pages where they belong: beside the tools, or at a port of their own.

    Beside the tools, status and metrics are routes of the app, behind everything that lets callers in, and not for keys
    of some tools alone; but metrics are fetched under whatever name, as probes are. At the admin port only the status
    asks for a credential; where nobody is asked for one, it is told to this machine alone.

    Args:
        app: The app of the tools.
        operations: The state that the pages show.
        times: How long the parts of an orderly end take.
        path: The path of the tools.
        admin_host: Where to listen for the admin port.
        admin_port: The admin port; None for pages beside the tools.
        allowed_hosts: Further names in ``Host`` that are accepted at the admin port.
        allowed_origins: Further origins that are accepted there.
        is_open: Nobody is asked for a credential, on purpose.
        metrics: The metrics; None where nothing is counted.
        auth: Verifies credentials; None where none is asked for.
        inheritance: Sockets from a parent process; None in the first one.

    Raises:
        ValueError: The path of the tools is that of a page.
        HostingError: It cannot be listened at the admin port.
    """
    status = Unlimited(StatusPage(operations))
    probes = probe_pages(operations)
    if admin_port is None:
        if path in PATHS:
            raise ValueError(f"the path {path!r} tells how the server is; choose another")
        app.router.routes.append(Route(STATUS_PATH, status, methods=["GET"]))
        if metrics is not None:
            app.router.routes.append(Route(METRICS_PATH, Unlimited(MetricsPage(metrics)), methods=["GET"]))
            app.state.any_name.add(METRICS_PATH)
        return serve.Operated(times=times, pages=probes)
    names = AllowedHosts(admin_host, allowed_hosts, allowed_origins)
    guarded: ASGIApp = status
    if auth is not None:
        guarded = BearerAuthMiddleware(
            status, auth=auth, recognition=CredentialCache(auth), metadata_url=None, open_paths=()
        )
    pages = dict(probes)
    if auth is not None or is_open or serve.are_loopback(serve.resolve(admin_host, 0)):
        pages[STATUS_PATH] = HostOriginMiddleware(guarded, names=names, is_running=lambda: True)
    if metrics is not None:
        pages[METRICS_PATH] = MetricsPage(metrics)
    sockets = (inheritance.admin_sockets if inheritance is not None else None) or admin_sockets(admin_host, admin_port)
    return serve.Operated(times=times, pages={}, admin_app=PageRouter(pages), admin_sockets=sockets)


def admin_sockets(admin_host: str, admin_port: int | None) -> list[socket.socket]:
    """Listen at the admin port, and say where that is; nowhere where none was chosen.

    Raises:
        HostingError: It cannot be listened there.
    """
    if admin_port is None:
        return []
    sockets = serve.bind(serve.resolve(admin_host, admin_port))
    say(f"operations at {serve.url_of(admin_host, sockets[0].getsockname()[1], '')}")
    return sockets
