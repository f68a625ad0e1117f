"""The edge: what every HTTP request passes before any of the transports sees it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.server.body import BodyTooLargeError, ClientGoneError, read_body, replaying
from bridge.server.names import host_name
from bridge.server.protocol import INTERNAL_ERROR
from bridge.server.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.names import Names

_logger = logging.getLogger("bridge.server")
_SPACE = b" \t"
_MAX_LOGGED_CHARS = 200

DEFAULT_MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""How long a request's body may be by default: 4 MiB."""


class Edge:
    """ASGI middleware: checks Host and Origin, bounds the body, and answers for an app that was not started.

    Args:
        app: What is behind the edge.
        names: Which names are let in.
        max_request_bytes: How long a request's body may be.
        is_running: Whether the app was started.
    """

    def __init__(self, app: ASGIApp, *, names: Names, max_request_bytes: int, is_running: Callable[[], bool]) -> None:
        self._app = app
        self._names = names
        self._max_request_bytes = max_request_bytes
        self._is_running = is_running
        self._remedy_was_logged = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [(name, value.strip(_SPACE)) for name, value in scope["headers"]]
        if (problem := self._name_problem(headers, scope)) is not None:
            await refuse(send, *problem)
        elif not self._is_running():
            self._log_remedy()
            await refuse(send, 503, "the server was not started; its log says why", INTERNAL_ERROR)
        else:
            # One parser of uvicorn's two leaves space around values, with which the SDK refuses a valid request.
            await self._pass_on({**scope, "headers": headers}, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            length = _value_of(b"content-length", scope["headers"])
            declared_bytes = int(length) if length is not None and length.isdigit() else None
            try:
                receive = replaying(await read_body(receive, self._max_request_bytes, declared_bytes), receive)
            except BodyTooLargeError:
                await refuse(send, 413, f"the body is over the limit of {self._max_request_bytes} bytes")
                return
            except ClientGoneError:
                return
        await self._app(scope, receive, send)

    def _name_problem(self, headers: list[tuple[bytes, bytes]], scope: Scope) -> tuple[int, str] | None:
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            return 400, "a request has one Host header"
        (host,) = hosts
        if not self._names.admits_host(host):
            name = _abridged(host_name(host))
            _logger.warning(
                "refused a request from %s for the host %r: if that is this server, "
                "let it in by --allowed-hosts %s (allowed_hosts=[%r])",
                _client(scope),
                _abridged(host),
                name,
                name,
            )
            return 421, "this server is not known under that name"
        origin = _value_of(b"origin", headers)
        if origin and not self._names.admits_origin(origin, host):
            _logger.warning(
                "refused a request from %s by a page of %r: if that page may use this server, "
                "let it in by --allowed-origins %s (allowed_origins=[%r])",
                _client(scope),
                *[_abridged(origin)] * 3,
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


def _value_of(name: bytes, headers: list[tuple[bytes, bytes]]) -> str | None:
    return next((value.decode("latin-1") for key, value in headers if key == name), None)


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "an unknown address"


def _abridged(value: str) -> str:
    # A client wrote it: no line break of its own in the log.
    safe = value.encode("unicode_escape").decode()
    return safe if len(safe) <= _MAX_LOGGED_CHARS else safe[: _MAX_LOGGED_CHARS - 1] + "…"
