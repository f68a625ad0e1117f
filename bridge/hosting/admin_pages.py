"""Status, metrics and probes at the app or at an admin port.

Operating ``bridge serve`` over HTTP: which page tells of it where.

Pages that tell of all tools, and are for nobody who may know only of some.

``/metrics``: what was counted, as Prometheus fetches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bridge.hosting import serve
from bridge.hosting import sockets as sockets_module
from bridge.hosting.process import print_message
from bridge.server.auth.bearer import BearerAuthMiddleware
from bridge.server.auth.failures import Challenge, send_challenge
from bridge.server.auth.identity import CredentialCache, access_of_request
from bridge.server.http.host_origin import AllowedHosts, HostOriginMiddleware
from bridge.server.http.probes import METRICS_PATH, PATHS, STATUS_PATH, PageRouter, StatusPage, probe_pages

if TYPE_CHECKING:
    import socket

    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.hosting.child_process import InheritedSockets
    from bridge.hosting.process import DrainTimes
    from bridge.server.auth.auth import Auth
    from bridge.server.http.probes import HealthState


def admin_pages(
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
    metrics: MetricsSource | None,
    auth: Auth | None,
    inheritance: InheritedSockets | None,
) -> serve.AdminPages:
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
    status = FullAccessRequired(StatusPage(operations))
    probes = probe_pages(operations)
    if admin_port is None:
        if path in PATHS:
            raise ValueError(f"the path {path!r} tells how the server is; choose another")
        app.router.routes.append(Route(STATUS_PATH, status, methods=["GET"]))
        if metrics is not None:
            app.router.routes.append(Route(METRICS_PATH, FullAccessRequired(MetricsPage(metrics)), methods=["GET"]))
            app.state.any_name.add(METRICS_PATH)
        return serve.AdminPages(times=times, pages=probes)
    names = AllowedHosts(admin_host, allowed_hosts, allowed_origins)
    guarded: ASGIApp = status
    if auth is not None:
        guarded = BearerAuthMiddleware(
            status, auth=auth, recognition=CredentialCache(auth), metadata_url=None, open_paths=()
        )
    pages = dict(probes)
    if auth is not None or is_open or sockets_module.are_loopback(sockets_module.resolve(admin_host, 0)):
        pages[STATUS_PATH] = HostOriginMiddleware(guarded, names=names, is_running=lambda: True)
    if metrics is not None:
        pages[METRICS_PATH] = MetricsPage(metrics)
    sockets = (inheritance.admin_sockets if inheritance is not None else None) or admin_sockets(admin_host, admin_port)
    return serve.AdminPages(times=times, pages={}, admin_app=PageRouter(pages), admin_sockets=sockets)


def admin_sockets(admin_host: str, admin_port: int | None) -> list[socket.socket]:
    """Listen at the admin port, and say where that is; nowhere where none was chosen.

    Raises:
        HostingError: It cannot be listened there.
    """
    if admin_port is None:
        return []
    sockets = sockets_module.bind(sockets_module.resolve(admin_host, admin_port))
    print_message(f"operations at {sockets_module.url_of(admin_host, sockets[0].getsockname()[1], '')}")
    return sockets


class FullAccessRequired:
    """ASGI behind the gate: refuses whoever may use only some of the tools.

    Args:
        app: What is behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if access_of_request().tools is None:
            await self._app(scope, receive, send)
            return
        told = "this page tells of all tools, and the key is for some of them"
        await send_challenge(send, Challenge(status=403, error="insufficient_scope", description=told), None)


class MetricsSource(Protocol):
    """Metrics that can be written down: of one process, or of several that are one server."""

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """See `bridge.telemetry.prometheus.PrometheusMetrics.text`."""
        ...


class MetricsPage:
    """ASGI: the metrics. They name tools and servers, and no caller.

    Args:
        metrics: The metrics; None where nothing is counted.
    """

    def __init__(self, metrics: MetricsSource | None) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        response: Response
        if scope["method"] not in {"GET", "HEAD"}:
            response = PlainTextResponse("only GET is answered here\n", 405, {"allow": "GET, HEAD"})
        elif self._metrics is None:
            response = PlainTextResponse("nothing is counted: bridge serve --metrics\n", 404)
        else:
            accept = Headers(scope=scope).get("accept", "")
            # Writing them down takes milliseconds, in which no call should have to wait.
            text, content_type = await anyio.to_thread.run_sync(self._metrics.text, accept)
            response = Response(text, headers={"content-type": content_type, "cache-control": "no-store"})
        await response(scope, receive, send)
