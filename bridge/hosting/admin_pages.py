"""Status, metrics and probes, on the application's port or on an admin port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bridge.hosting import serve
from bridge.hosting import sockets as sockets_module
from bridge.hosting.process import print_message
from bridge.server.auth.bearer import BearerAuthGuard
from bridge.server.auth.credentials import CredentialCache
from bridge.server.auth.failures import Challenge, send_challenge
from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.auth.keys import KEYS
from bridge.server.http.guards import GuardMiddleware
from bridge.server.http.host_origin import HostOriginGuard
from bridge.server.http.probes import METRICS_PATH, STATUS_PATH, PageRouter, StatusPage, check_paths, probe_pages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.auth.auth import Auth
    from bridge.server.http.app import BridgeApp
    from bridge.server.http.guards import Guard
    from bridge.server.http.host_origin import AllowedHosts
    from bridge.server.http.probes import HealthState

    MetricsText = Callable[[str], tuple[bytes, str]]
    """Collects metrics, of one process or of all workers; see `bridge.telemetry.prometheus.PrometheusMetrics.text`."""


def admin_pages(
    app: BridgeApp,
    operations: HealthState,
    *,
    path: str,
    admin_host: str,
    admin_port: int | None,
    hosts: AllowedHosts,
    is_open: bool,
    metrics: MetricsText | None,
    auth: Auth | None,
    sockets: list[socket.socket],
    admin: ASGIApp | None = None,
) -> serve.AdminPages:
    """Add the pages to the application, or to an admin port.

    On the application's port, status and metrics require authentication with access to all tools; metrics accept any
    ``Host``, as probes do. On the admin port only the status page requires a credential; without authentication it is
    served to this machine only.

    Args:
        app: The application.
        operations: State that the pages show.
        path: Path of the MCP endpoint.
        admin_host: Host of the admin port.
        admin_port: The admin port; None for pages on the application's port.
        hosts: Hosts and origins accepted there.
        is_open: True if authentication was disabled explicitly.
        metrics: Collects the metrics; None if metrics are off.
        auth: Verifies credentials; None without authentication.
        sockets: Listening sockets of the admin port; if empty, it is bound.
        admin: The administration of the admin port, which has credentials of its own; None for none.

    Raises:
        ValueError: The path, or that of a route of the server's own, is the path of a page.
        HostingError: The admin port cannot be bound.
    """
    has_profiles = bool(app.profiles)
    status = FullAccessRequired(StatusPage(operations.status), has_profiles=has_profiles)
    probes = probe_pages(operations)
    if admin_port is None:
        check_paths((path, *(route.path for route in app.own_routes)))
        app.router.routes.append(Route(STATUS_PATH, status, methods=["GET"]))
        if metrics is not None:
            app.router.routes.append(
                Route(
                    METRICS_PATH, FullAccessRequired(MetricsPage(metrics), has_profiles=has_profiles), methods=["GET"]
                )
            )
            app.any_host_paths.add(METRICS_PATH)
        return serve.AdminPages(pages=probes)
    guards: list[Guard] = [HostOriginGuard(hosts, lambda: True)]
    if auth is not None:
        guards.append(BearerAuthGuard(auth, CredentialCache(auth), metadata_url=None))
    pages = dict(probes)
    if auth is not None or is_open or sockets_module.are_loopback(sockets_module.resolve(admin_host, 0)):
        pages[STATUS_PATH] = GuardMiddleware(status, guards=guards)
    if metrics is not None:
        pages[METRICS_PATH] = MetricsPage(metrics)
    sockets = sockets or admin_sockets(admin_host, admin_port)
    return serve.AdminPages(pages={}, admin_app=PageRouter(pages, admin), admin_sockets=sockets)


def admin_sockets(admin_host: str, admin_port: int | None) -> list[socket.socket]:
    """Bind the admin port and print its URL; an empty list if there is none.

    Raises:
        HostingError: The port cannot be bound.
    """
    if admin_port is None:
        return []
    sockets = sockets_module.bind(sockets_module.resolve(admin_host, admin_port), "admin port (--admin-port)")
    print_message(f"operations at {sockets_module.url_of(admin_host, sockets[0].getsockname()[1], '')}")
    return sockets


class FullAccessRequired:
    """ASGI middleware that requires access to all tools.

    Args:
        app: The app.
        has_profiles: True if the server has profiles, one of which is all that a token may be for: a key is required.
    """

    def __init__(self, app: ASGIApp, *, has_profiles: bool = False) -> None:
        self._app = app
        self._has_profiles = has_profiles

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or respond with 403."""
        access, caller = access_of_request(), caller_of_request()
        is_key = caller is None or caller.issuer == KEYS
        if access.sees_all and access.profiles is None and (is_key or not self._has_profiles):
            await self._app(scope, receive, send)
            return
        reason = "this page needs a key for all tools, and the key is for some of them"
        await send_challenge(send, Challenge(status=403, error="insufficient_scope", description=reason), None)


class MetricsPage:
    """ASGI application for ``/metrics`` (Prometheus). Metrics name tools and servers, but not callers."""

    def __init__(self, metrics: MetricsText) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to the request."""
        response: Response
        if scope["method"] not in {"GET", "HEAD"}:
            response = PlainTextResponse("only GET is answered here\n", 405, {"allow": "GET, HEAD"})
        else:
            accept = Headers(scope=scope).get("accept", "")
            # Formatting takes milliseconds, which would block the event loop.
            text, content_type = await anyio.to_thread.run_sync(self._metrics, accept)
            response = Response(text, headers={"content-type": content_type, "cache-control": "no-store"})
        await response(scope, receive, send)
