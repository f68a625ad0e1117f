"""Health and readiness probes.

Probes ── outermost middleware: no checks of Host, credential or body
  ├── /healthz   200 as long as the process answers
  ├── /readyz    503 before the app has started, while a required server is not ready, while draining, and after the app
  │              has failed
  ╰── the app ── /status is one of its routes: the state of each server
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from anyio import Event

from bridge.server.http.pages import is_below
from bridge.server.http.responses import JSON_HEADERS, NO_STORE, Response, send_error, send_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
STATUS_PATH = "/status"
METRICS_PATH = "/metrics"
ADMIN_PATH = "/admin"
"""Path of the administration, on an admin port alone."""
PATHS = (HEALTH_PATH, READY_PATH, STATUS_PATH, METRICS_PATH)
"""Paths of the operational pages, at which no tools can be served."""
METHODS = ("GET", "HEAD")
"""HTTP methods of the operational pages."""
_USABLE = ("ready", "idle")
"""States of a required server in which calls are accepted: an idle one is started by the next call."""
_CLOSE = (b"connection", b"close")
_NOT_STARTED = "the server did not start; its log says why"


def check_paths(paths: Iterable[str]) -> None:
    """Refuse paths that are those of operational pages.

    Raises:
        ValueError: One is.
    """
    for path in paths:
        if path in PATHS:
            raise ValueError(f"the path {path!r} is an operational page of the server; choose another")


class HealthState:
    """State of a server: starting, ready, draining or failed.

    Args:
        servers: Returns the state of each upstream server of a gateway, as JSON: at least ``name``, ``state`` (such as
            ``ready``) and ``required``.
        is_held: True if requests wait until `open` or `fail` is called, even after the app has started.
    """

    def __init__(
        self,
        *,
        servers: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        is_held: bool = False,
    ) -> None:
        self._servers = servers
        self.costs: Callable[[], Mapping[str, Any]] = dict
        """Returns what models have to read, for `status`; set once there is a server."""
        self.teams: Callable[[], Mapping[str, Any]] | None = None
        """Returns what each team has called, for `status`; None if no caller has a team."""
        self.configuration: Callable[[], Mapping[str, Any]] | None = None
        """Returns when the configuration was loaded, and why the last reload failed; None if it cannot be reloaded."""
        self.reload: Callable[[], Awaitable[None]] | None = None
        """Reloads the configuration, or raises a `bridge.errors.BridgeError`; None if it cannot be reloaded."""
        self._is_held = is_held
        self._settled = Event()
        self.has_started = False
        """True once requests are served."""
        self.is_draining = False
        """True during shutdown: requests are still served, and their connections are closed afterwards."""
        self.has_failed = False
        """True after the app has ended unexpectedly."""
        self.is_steady = False
        """True when started, and neither draining nor failed."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called when the app has ended unexpectedly."""

    def open(self) -> None:
        """Serve requests from now on."""
        self.has_started = True
        self.is_steady = not (self.is_draining or self.has_failed)
        self._settled.set()

    def app_started(self) -> None:
        """Note that the app has started."""
        if not self._is_held:
            self.open()

    def fail(self) -> None:
        """Note that the server will not start; waiting requests are answered 503."""
        self._settled.set()

    def app_failed(self) -> None:
        """Note that the app has ended unexpectedly."""
        self.has_failed = True
        self.is_steady = False
        self.on_failure()

    def drain(self) -> None:
        """Begin to drain. May be called from any thread and from a signal handler."""
        self.is_draining = True
        self.is_steady = False

    async def may_serve(self) -> bool:
        """Wait until requests are served; return False if the start has failed."""
        await self._settled.wait()
        return self.has_started

    def missing(self) -> list[str]:
        """Return the reasons why the server is not ready, in words, without secrets."""
        found = [] if self.has_started else ["it has not started yet"]
        if self.has_failed:
            found.append("it has failed; see its log")
        if self.is_draining:
            found.append("it is draining")
        return found + [
            f"the required server {server['name']!r} is {server['state']}"
            for server in self._servers()
            if server["required"] and server["state"] not in _USABLE
        ]

    def readiness(self) -> dict[str, Any]:
        """Return readiness, and the reasons against it, as JSON."""
        missing = self.missing()
        return {"ready": not missing, "missing": missing}

    def status(self) -> dict[str, Any]:
        """Return readiness, the reasons against it, the state of each server, and its costs, as JSON."""
        teams = {} if self.teams is None else {"teams": self.teams()}
        loaded = {} if self.configuration is None else {"configuration": self.configuration()}
        return self.readiness() | {"servers": list(self._servers()), **self.costs(), **teams, **loaded}


class StatusPage:
    """ASGI app that answers with JSON about the server; with 503 if it shows readiness and is not ``ready``."""

    def __init__(self, content: Callable[[], Mapping[str, Any]], *, shows_readiness: bool = False) -> None:
        self._content = content
        self._shows_readiness = shows_readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Answer a request."""
        content = self._content()
        await _answer(scope, send, 503 if self._shows_readiness and not content["ready"] else 200, content)


class Probes:
    """Outermost ASGI middleware: answers probes, and tracks the lifespan of an app.

    Requests that arrive before the app has started wait for it (`HealthState.may_serve`). While the server drains, each
    response closes its connection, so that the client's next call reaches another server.

    Args:
        app: The app.
        operations: State of the server; None for one that depends on the app alone.
        pages: ASGI apps by path; None for ``/healthz`` and ``/readyz``.
    """

    def __init__(
        self, app: ASGIApp, operations: HealthState | None = None, pages: Mapping[str, ASGIApp] | None = None
    ) -> None:
        self._app = app
        self.operations = operations or HealthState()
        self._pages = probe_pages(self.operations) if pages is None else pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a probe, or call the app."""
        if self.operations.is_steady and ("path" not in scope or scope["path"] not in self._pages):
            await self._app(scope, receive, send)
        else:
            await self._dispatch(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (page := self._pages.get(scope["path"])) is not None:
            await page(scope, receive, self._closing(scope, send))
        elif await self.operations.may_serve():
            await self._app(scope, receive, self._closing(scope, send))
        else:
            await send_error(send, 503, _NOT_STARTED)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = is_shutting_down = False

        async def watched_receive() -> Message:
            nonlocal is_shutting_down
            message = await receive()
            is_shutting_down = message["type"] == "lifespan.shutdown"
            return message

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                has_started = True
                self.operations.app_started()

        try:
            await self._app(scope, watched_receive, watched_send)
        finally:
            if has_started and not is_shutting_down:
                self.operations.app_failed()

    def _closing(self, scope: Scope, send: Send) -> Send:
        if not self.operations.is_draining or not scope.get("http_version", "1.1").startswith("1"):
            return send

        async def close(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [header for header in message.get("headers", ()) if header[0].lower() != _CLOSE[0]]
                message = {**message, "headers": [*kept, _CLOSE]}
            await send(message)

        return close


def probe_pages(operations: HealthState) -> dict[str, ASGIApp]:
    """Return the pages that need no credential."""
    readiness = StatusPage(operations.readiness, shows_readiness=True)
    return {HEALTH_PATH: StatusPage(lambda: {"status": "ok"}), READY_PATH: readiness}


class PageRouter:
    """ASGI app of an admin port: pages by path, and 404 for other paths.

    Args:
        pages: The pages.
        admin: The administration, at and below `ADMIN_PATH`; None for none.
    """

    def __init__(self, pages: Mapping[str, ASGIApp], admin: ASGIApp | None = None) -> None:
        self._pages = pages
        self._admin = admin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._admin is not None and (scope["type"] == "lifespan" or is_below(scope["path"], ADMIN_PATH)):
            await self._admin(scope, receive, send)
        elif scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif (page := self._pages.get(scope["path"])) is not None:
            await page(scope, receive, send)
        else:
            paths = ", ".join([*self._pages, *([] if self._admin is None else [f"{ADMIN_PATH}/"])])
            await _answer({**scope, "method": "GET"}, send, 404, {"error": f"here are {paths}"})


async def _answer(scope: Scope, send: Send, status: int, content: Mapping[str, Any]) -> None:
    is_allowed = scope["method"] in METHODS
    body = json.dumps(content if is_allowed else {"error": "only GET is answered here"}, ensure_ascii=False).encode()
    headers = [NO_STORE] if is_allowed else [NO_STORE, (b"allow", ", ".join(METHODS).encode())]
    response = Response(body, status if is_allowed else 405, (*JSON_HEADERS, *headers))
    await send_response(send, response, is_head=scope["method"] == "HEAD")
