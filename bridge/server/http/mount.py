"""Mounting: serve tools inside a Starlette or FastAPI app."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

from starlette.applications import Starlette
from starlette.routing import Match, Mount, Route

from bridge.errors import DefinitionError
from bridge.server.http.app import BridgeApp, http_app
from bridge.server.options import check_http_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from bridge.server.options import MountOptions


def mount(parent: Starlette, path: str, tools: object, **options: Unpack[MountOptions]) -> BridgeApp:
    """Serve tools inside another app, whose lifespan starts and stops them.

    ``mount(app, "/tools", tools)`` serves streamable HTTP at ``/tools`` and ``/tools/``, and SSE at ``/tools/sse``
    unless ``sse=False``. Call it before the app starts.

    Args:
        parent: A Starlette or FastAPI app.
        path: Path under which clients reach the tools.
        tools: A `bridge.Server`, whose lifespan is opened with the app's, or anything that `bridge.http_app` takes.
        options: The options of `http_app`, apart from ``path``.

    Returns:
        The app that was mounted.

    Raises:
        DefinitionError: The parent is not a Starlette app, the path has parameters or is the root, or an earlier route
            or the metadata of the tools' issuers has the same path.
        ValueError: As for `http_app`.
    """
    if not isinstance(parent, Starlette):
        raise DefinitionError(
            f"tools can be mounted in a Starlette or FastAPI app, not in {parent!r}; "
            "elsewhere, serve bridge.server.http_app(tools) and run its lifespan"
        )
    path = path.rstrip("/")
    if not path.startswith("/") or "{" in path:
        raise DefinitionError(f"the path begins with a slash, has no parameters and is not the root: not {path!r}")
    _require_free_path(parent, path)
    check_http_options("mount", options)
    at_root = options.get("streamable", True)
    app = http_app(tools, path="/", **options) if at_root else http_app(tools, **options)
    if path in {route.path for route in app.public_routes}:
        raise DefinitionError(
            f"tools at {path!r} would be unreachable: the metadata of the issuers of their tokens (RFC 9728) is served "
            "there; mount them at the path of their resource_url"
        )
    parent.router.routes.extend(app.public_routes)
    parent.router.routes.append(Route(path, endpoint=_MountRoot(app)))
    parent.mount(path, app)
    outer = parent.router.lifespan_context

    @asynccontextmanager
    async def lifespan(started: Any) -> AsyncIterator[Any]:
        async with outer(started) as state, app.router.lifespan_context(app):
            yield state

    parent.router.lifespan_context = lifespan
    return app


class _MountRoot:
    """ASGI app that serves the path of a mount without a trailing slash, which Starlette would redirect."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "root_path": scope["path"], "path": scope["path"] + "/"}, receive, send)


def _require_free_path(parent: Starlette, path: str) -> None:
    for probe in (path, path + "/"):
        scope = {"type": "http", "method": "POST", "path": probe, "root_path": "", "headers": []}
        for route in parent.router.routes:
            if route.matches(scope)[0] is not Match.NONE:
                kind = "mount" if isinstance(route, Mount) else "route"
                raise DefinitionError(
                    f"tools at {path!r} would be unreachable: the {kind} {getattr(route, 'path', route)!r} of the app "
                    "comes before; mount the tools before it, or at another path"
                )
