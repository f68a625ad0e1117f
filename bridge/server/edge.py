"""The edge: what every HTTP request passes before any of the transports sees it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint

from bridge.server.http.host_origin import host_name
from bridge.server.http.requests import HEADERS
from bridge.server.http.responses import refuse
from bridge.server.protocol import INTERNAL_ERROR
from bridge.telemetry.repetitions import Repetitions
from bridge.text import truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.http.host_origin import Names

_logger = logging.getLogger("bridge.server")
_SPACE = b" \t"
_MAX_LOGGED_CHARS = 200


class Edge:
    """ASGI middleware: checks Host and Origin, and answers for an app that was not started.

    Args:
        app: What is behind the edge.
        names: Which names are let in.
        is_running: Whether the app was started.
        any_name: The paths that may be asked for under any name; may change.
    """

    def __init__(
        self, app: ASGIApp, *, names: Names, is_running: Callable[[], bool], any_name: Collection[str] = ()
    ) -> None:
        self._app = app
        self._names = names
        self._is_running = is_running
        self._any_name = any_name
        self._remedy_was_logged = False
        self._repetitions = Repetitions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # One parser of uvicorn's two leaves space around values, with which the SDK refuses a valid request.
        headers = {name: value.strip(_SPACE) for name, value in scope["headers"]}
        if b"transfer-encoding" in headers:
            # Where the chunks that came with the head are none, uvicorn has answered already, and hears of it only
            # now; it would log whatever is sent before that as an error.
            await checkpoint()
        problem = self._name_problem(headers, scope) if scope["path"] not in self._any_name else None
        if problem is not None:
            await refuse(send, *problem)
        elif not self._is_running():
            self._log_remedy()
            await refuse(send, 503, "the server was not started; its log says why", INTERNAL_ERROR)
        else:
            scope[HEADERS] = headers
            await self._app(scope, receive, send)

    def _name_problem(self, headers: dict[bytes, bytes], scope: Scope) -> tuple[int, str] | None:
        if b"host" not in headers:
            return 400, "a request has one Host header"
        if len(headers) < len(scope["headers"]):
            names = [name for name, _ in scope["headers"]]
            for single in (b"host", b"origin"):  # which of two is meant, everyone behind the edge would judge anew
                if names.count(single) > 1:
                    return 400, f"a request has one {single.decode().title()} header"
        host = headers[b"host"].decode("latin-1")
        if not self._names.admits_host(host):
            name, client = _abridged(host_name(host)), _client(scope)
            if (addition := self._repetitions.addition("host", client)) is not None:
                _logger.warning(
                    "refused a request from %s for the host %r: if that is this server, "
                    "let it in by --allowed-hosts %s (allowed_hosts=[%r])%s",
                    client,
                    _abridged(host),
                    name,
                    name,
                    addition,
                )
            return 421, "this server is not known under that name"
        if b"origin" not in headers:
            return None
        origin = headers[b"origin"].decode("latin-1")
        if origin and not self._names.admits_origin(origin, host):
            client = _client(scope)
            if (addition := self._repetitions.addition("origin", client)) is not None:
                _logger.warning(
                    "refused a request from %s by a page of %r: if that page may use this server, "
                    "let it in by --allowed-origins %s (allowed_origins=[%r])%s",
                    client,
                    *[_abridged(origin)] * 3,
                    addition,
                )
            return 403, "pages of that origin may not use this server"
        return None

    def _log_remedy(self) -> None:
        if not self._remedy_was_logged:
            self._remedy_was_logged = True
            _logger.error(
                "this app was mounted without its lifespan and cannot serve: "
                "mount it by bridge.server.mount(parent, path, tools), "
                "or enter its router.lifespan_context in the lifespan of the app that it is mounted in"
            )


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "an unknown address"


def _abridged(value: str) -> str:
    # A client wrote it: no line break of its own in the log.
    return truncate(value.encode("unicode_escape").decode(), _MAX_LOGGED_CHARS)
