"""Operations: what whoever runs a server asks it, and what it says of itself.

Probes ── before everything else: no Host, no auth, no body
  ├── /healthz   the process answers; it waits for nothing
  ├── /readyz    503 until it has started, while a required server is missing, from the beginning of its end on, and
  │              where the app has ended by itself
  ╰── the app ── /status among its routes: how each server is
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from anyio import Event

from bridge.server.http.responses import NO_STORE, send_error, send_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
STATUS_PATH = "/status"
METRICS_PATH = "/metrics"
PATHS = (HEALTH_PATH, READY_PATH, STATUS_PATH, METRICS_PATH)
"""Where a server tells of itself; tools are served elsewhere."""

METHODS = ("GET", "HEAD")
"""How it is asked."""
_CLOSE = (b"connection", b"close")


def _no_servers() -> tuple[Mapping[str, Any], ...]:
    return ()


def _nothing() -> None:
    pass


class HealthState:
    """How a server is.

    Args:
        servers: How each server is whose tools are served again, as JSON: at least its ``name``, its ``state``, which
            is ``ready`` where it is, and whether it is ``required``.
        is_held: Whether more than the app has to start: requests are kept waiting until `open` or `fail` is called.
    """

    def __init__(
        self, *, servers: Callable[[], Iterable[Mapping[str, Any]]] = _no_servers, is_held: bool = False
    ) -> None:
        self._servers = servers
        self._is_held = is_held
        self._settled = Event()
        self.has_started = False
        """Requests are served."""
        self.is_draining = False
        """The server is ending: what comes is still served, by connections that are closed afterwards."""
        self.has_failed = False
        """The app has ended by itself, by a mistake: nothing can be served any more."""
        self.is_steady = False
        """None of these has to be looked at."""
        self.on_failure: Callable[[], None] = _nothing
        """Called when the app has ended by itself."""

    def open(self) -> None:
        """Everything has started."""
        self.has_started = True
        self.is_steady = not (self.is_draining or self.has_failed)
        self._settled.set()

    def app_started(self) -> None:
        """The app has started."""
        if not self._is_held:
            self.open()

    def fail(self) -> None:
        """It will not start: whoever waits for it is told so."""
        self._settled.set()

    def app_failed(self) -> None:
        """The app has ended by itself."""
        self.has_failed = True
        self.is_steady = False
        self.on_failure()

    def drain(self) -> None:
        """The end has begun. From any thread, and from a signal handler."""
        self.is_draining = True
        self.is_steady = False

    async def settled(self) -> bool:
        """Wait until it has started, or will not; returns whether it has."""
        await self._settled.wait()
        return self.has_started

    def missing(self) -> list[str]:
        """What keeps the server from being ready, each in words; none of them a secret."""
        found = [] if self.has_started else ["it has not started yet"]
        if self.has_failed:
            found.append("it has ended by a mistake; its log says which")
        if self.is_draining:
            found.append("it is draining")
        return found + [
            f"the required server {server['name']!r} is {server['state']}"
            for server in self._servers()
            if server["required"] and server["state"] != "ready"
        ]

    def status(self) -> dict[str, Any]:
        """All that can be told: whether it is ready, and how each server is."""
        missing = self.missing()
        return {"ready": not missing, "missing": missing, "servers": list(self._servers())}


class HealthProbe:
    """ASGI: the process is there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Answer; nothing is waited for."""
        await _answer(scope, send, 200, {"status": "ok"})


class ReadinessProbe:
    """ASGI: whether calls should come here.

    Args:
        operations: How the server is.
    """

    def __init__(self, operations: HealthState) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Answer 200, or 503 with what is missing."""
        missing = self._operations.missing()
        await _answer(scope, send, 503 if missing else 200, {"ready": not missing, "missing": missing})


class StatusPage:
    """ASGI: how each server is. For those who may know: put it behind whatever lets callers in.

    Args:
        operations: How the server is.
    """

    def __init__(self, operations: HealthState) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Answer."""
        await _answer(scope, send, 200, self._operations.status())


class Probes:
    """ASGI middleware before everything else: answers probes, and goes with an app through its start and its end.

    Requests that come before the app has started wait for it. While it is draining, each answer closes its connection,
    so that the client's next call goes elsewhere.

    Args:
        app: What is served.
        operations: How it is; None to know only whether the app has started.
        pages: What is answered here, by path; None for ``/healthz`` and ``/readyz``.
    """

    def __init__(
        self, app: ASGIApp, operations: HealthState | None = None, pages: Mapping[str, ASGIApp] | None = None
    ) -> None:
        self._app = app
        self.operations = operations or HealthState()
        self._pages = probe_pages(self.operations) if pages is None else pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a probe, or let the app do what it does."""
        if self.operations.is_steady and ("path" not in scope or scope["path"] not in self._pages):
            await self._app(scope, receive, send)
        else:
            await self._attend(scope, receive, send)

    async def _attend(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (page := self._pages.get(scope["path"])) is not None:
            await page(scope, receive, self._closing(scope, send))
        elif self.operations.has_started or await self.operations.settled():
            await self._app(scope, receive, self._closing(scope, send))
        else:
            await send_error(send, 503, "the server did not start; its log says why")

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = is_asked_to_end = False

        async def hear() -> Message:
            nonlocal is_asked_to_end
            message = await receive()
            is_asked_to_end = message["type"] == "lifespan.shutdown"
            return message

        async def watch(message: Message) -> None:
            nonlocal has_started
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                has_started = True
                self.operations.app_started()

        try:
            await self._app(scope, hear, watch)
        finally:
            if has_started and not is_asked_to_end:
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
    """The pages that anybody may see."""
    return {HEALTH_PATH: HealthProbe(), READY_PATH: ReadinessProbe(operations)}


class PageRouter:
    """ASGI: pages, and nothing beside them.

    Args:
        pages: The pages, by path.
    """

    def __init__(self, pages: Mapping[str, ASGIApp]) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif (page := self._pages.get(scope["path"])) is not None:
            await page(scope, receive, send)
        else:
            await _answer({**scope, "method": "GET"}, send, 404, {"error": f"here are {', '.join(self._pages)}"})


async def _answer(scope: Scope, send: Send, status: int, content: Mapping[str, Any]) -> None:
    is_allowed = scope["method"] in METHODS
    body = json.dumps(content if is_allowed else {"error": "only GET is answered here"}, ensure_ascii=False).encode()
    headers = [NO_STORE] if is_allowed else [NO_STORE, (b"allow", ", ".join(METHODS).encode())]
    await send_json(send, status if is_allowed else 405, body, headers, is_head=scope["method"] == "HEAD")
