"""Host, Origin and CORS guards: the names under which a server may be reached, and the pages that may use it.

Without the first, any web page that a user visits could call a server on the user's own machine, by a domain name that
resolves to 127.0.0.1 (DNS rebinding; MCP, "Transports", security warning). CORS comes before authentication, because a
browser sends its preflight request without the credential (Fetch standard, "HTTP extensions").
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

from bridge.protocol.versions import INTERNAL_ERROR
from bridge.server.http.responses import send_error
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from starlette.types import Receive, Scope, Send

    from bridge.server.http.requests import Request

_ALWAYS = ("localhost", "127.0.0.1", "[::1]")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>.+)")
_CACHED_HEADERS = 256
_logger = logging.getLogger("bridge.server")
_MAX_LOGGED_CHARS = 200
_METHODS = ("GET", "POST", "DELETE")
_EXPOSED = ("Mcp-Session-Id", "WWW-Authenticate", "Retry-After")
_ANY_ORIGIN = ".*"
"""Only requests of allowed origins reach the middleware, which repeats the origin in its response."""


class AllowedHosts:
    """Allowed ``Host`` and ``Origin`` headers.

    localhost, 127.0.0.1, [::1] and the name that the server is bound to are always allowed, on any port. An origin is
    also allowed if it is the host that the request was sent to.

    Args:
        bound: The host that the server listens on.
        hosts: Further hosts: ``name`` or ``name:*`` for any port, ``name:8080`` for one, ``*.example.com`` for all
            subdomains, ``*`` for any host.
        origins: Further origins: ``https://app.example.com``, with ``:8443`` for a port or ``:*`` for any,
            ``https://*.example.com``, ``*`` for any origin.

    Raises:
        ValueError: A host or origin has another form.
    """

    def __init__(self, bound: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        own = [_Pattern(host=name) for name in (*_ALWAYS, _bracketed(bound.lower()))]
        self._hosts = [*own, *map(_host_pattern, hosts)]
        allowed = list(map(_origin_pattern, origins))
        self._origins = [*own, *allowed]
        self.allows_some_origins = bool(allowed)
        """True when pages of further origins may use the server."""
        # The same few headers come with every request.
        self.admits_host = lru_cache(_CACHED_HEADERS)(self._admits_host)
        """Check a ``Host`` header."""
        self.admits_origin = lru_cache(_CACHED_HEADERS)(self._admits_origin)
        """Check an ``Origin`` header, given the ``Host`` header beside it."""
        self.allows_origin = lru_cache(_CACHED_HEADERS)(partial(_matches, allowed))
        """True for an ``Origin`` header that matches ``origins``."""

    def _admits_host(self, host: str) -> bool:
        found = _AUTHORITY.fullmatch(host.lower())
        return found is not None and any(one.matches("", found["host"], found["port"]) for one in self._hosts)

    def _admits_origin(self, origin: str, host: str) -> bool:
        found = _ORIGIN.fullmatch(origin.lower())
        is_host = found is not None and found["authority"] == host.lower()
        return (is_host and _AUTHORITY.fullmatch(host.lower()) is not None) or _matches(self._origins, origin)


def host_name(host: str) -> str:
    """Return a ``Host`` header without its port, as `AllowedHosts` takes it."""
    found = _AUTHORITY.fullmatch(host.lower())
    return host if found is None else found["host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    host: str
    """A name, ``*.`` and a name, or ``*``."""
    port: str | None = "*"
    """A port, ``*`` for any, None for the scheme's default."""
    scheme: str = ""
    """A URL's scheme; empty for any."""

    def matches(self, scheme: str, host: str, port: str | None) -> bool:
        if self.scheme not in {"", scheme} or self.port not in {"*", port}:
            return False
        name = host.removesuffix(".")
        if self.host.startswith("*."):
            return name.endswith(self.host[1:])
        return self.host in {"*", name}


def _matches(patterns: Iterable[_Pattern], origin: str) -> bool:
    found = _ORIGIN.fullmatch(origin.lower())
    if found is None:
        return any(one.host == "*" for one in patterns)
    authority = _AUTHORITY.fullmatch(found["authority"])
    if authority is None:
        return False
    return any(one.matches(found["scheme"], authority["host"], authority["port"]) for one in patterns)


def _host_pattern(entry: str) -> _Pattern:
    if entry == "*":
        return _Pattern(host="*")
    found = _AUTHORITY.fullmatch(_bracketed(entry.strip().lower().removesuffix(":*")))
    if found is None:
        raise ValueError(f"an allowed host is a name, with a port or without, like tools.example.com: not {entry!r}")
    return _Pattern(host=found["host"].removesuffix("."), port=found["port"] or "*")


def _origin_pattern(entry: str) -> _Pattern:
    if entry == "*":
        return _Pattern(host="*")
    written = entry.strip().lower().removesuffix("/")
    found = _ORIGIN.fullmatch(written.removesuffix(":*"))
    authority = None if found is None else _AUTHORITY.fullmatch(found["authority"])
    if found is None or authority is None:
        raise ValueError(f"an allowed origin has a scheme and a host, like https://app.example.com: not {entry!r}")
    port = "*" if written.endswith(":*") else authority["port"]
    return _Pattern(host=authority["host"], port=port, scheme=found["scheme"])


def _bracketed(host: str) -> str:
    """Put an IPv6 address into brackets, as in a URL; return other hosts unchanged."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


class HostOriginGuard:
    """Guard that checks Host and Origin, and refuses requests to an app that was not started.

    Some paths are served under any host, and some to pages of any origin.
    """

    def __init__(
        self,
        names: AllowedHosts,
        is_running: Callable[[], bool],
        any_host_paths: Collection[str] = (),
        any_origin_paths: Collection[str] = (),
    ) -> None:
        self._names = names
        self._is_running = is_running
        self._any_host_paths = any_host_paths
        self._any_origin_paths = any_origin_paths
        self._remedy_was_logged = False
        self._repetitions = Repetitions()

    is_of_head = True

    def admits_at_once(self, request: Request) -> bool:
        """Check Host and Origin."""
        host, origin = request.headers.get(b"host"), request.headers.get(b"origin")
        if host is None or not self._names.admits_host(name := host.decode("latin-1")):
            return False
        return not origin or self._names.admits_origin(origin.decode("latin-1"), name)

    async def admit(self, request: Request) -> bool:
        """Check Host and Origin; refuse with 400, 421 or 403, and with 503 while the app does not run."""
        if b"transfer-encoding" in request.headers:
            # uvicorn logs a response to an empty chunked body as an error if it is sent before the event loop has run.
            await checkpoint()
        problem = None if request.scope["path"] in self._any_host_paths else self._name_problem(request)
        if problem is not None:
            await send_error(request.send, *problem)
        elif not self._is_running():
            self._log_remedy()
            await send_error(request.send, 503, "the server was not started; its log says why", INTERNAL_ERROR)
        else:
            return True
        return False

    def _name_problem(self, request: Request) -> tuple[int, str] | None:
        headers, scope = request.headers, request.scope
        if b"host" not in headers:
            return 400, "a request has one Host header"
        if request.head.has_repeated_headers:
            names = [name for name, _ in scope["headers"]]
            for single in (b"host", b"origin"):  # the app might use the one that was not checked
                if names.count(single) > 1:
                    return 400, f"a request has one {single.decode().title()} header"
        host = headers[b"host"].decode("latin-1")
        if not self._names.admits_host(host):
            self._log(scope, "host", "for the host %r: if that is this server", host, host_name(host))
            return 421, "the host in the request is not an allowed host of this server"
        origin = headers.get(b"origin", b"").decode("latin-1")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if origin and path not in self._any_origin_paths and not self._names.admits_origin(origin, host):
            self._log(scope, "origin", "by a page of %r: if that page may use this server", origin, origin)
            return 403, "pages of that origin may not use this server"
        return None

    def _log(self, scope: Scope, kind: str, what: str, value: str, name: str) -> None:
        address = client_address(scope)
        if (addition := self._repetitions.addition(kind, address)) is not None:
            message = f"refused a request from %s {what}, allow it by --allowed-{kind}s %s (allowed_{kind}s=[%r])%s"
            name = _abridged(name)
            _logger.warning(message, address, _abridged(value), name, name, addition)

    def _log_remedy(self) -> None:
        if not self._remedy_was_logged:
            self._remedy_was_logged = True
            _logger.error(
                "this app was mounted without its lifespan and cannot serve: "
                "mount it by bridge.server.mount(parent, path, tools), "
                "or enter its router.lifespan_context in the lifespan of the app that it is mounted in"
            )


class CorsGuard:
    """Guard that answers preflight requests, and adds CORS headers to other responses.

    Args:
        names: The allowed origins.
        methods: HTTP methods of routes of the server's own.
    """

    is_of_head = True

    def __init__(self, names: AllowedHosts, methods: Iterable[str] = ()) -> None:
        self._names = names
        self._cors = CORSMiddleware(
            _unreached,
            allow_origin_regex=_ANY_ORIGIN,
            allow_methods=(*_METHODS, *sorted({*methods}.difference(_METHODS))),
            allow_headers=("*",),  # the names of Mcp-Param-… are those of tools' parameters
            allow_private_network=True,
            expose_headers=_EXPOSED,
        )

    def admits_at_once(self, request: Request) -> bool:
        """Admit a request whose response needs no CORS headers."""
        return not self._is_of_allowed_origin(request)

    async def admit(self, request: Request) -> bool:
        """Answer a preflight request; add CORS headers to the response to any other."""
        if not self._is_of_allowed_origin(request):
            return True
        headers = Headers(scope=request.scope)
        if request.scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            response = self._cors.preflight_response(headers)
            await response(request.scope, request.receive, request.send)
            return False
        request.send = partial(self._cors.send, send=request.send, request_headers=headers)
        return True

    def _is_of_allowed_origin(self, request: Request) -> bool:
        origin = request.headers.get(b"origin")
        return origin is not None and origin != b"" and self._names.allows_origin(origin.decode("latin-1"))


async def _unreached(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise NotImplementedError


def client_address(scope: Scope) -> str:
    """Return the address of a request's client, for the log."""
    client = scope.get("client")
    return client[0] if client else "an unknown address"


def _abridged(value: str) -> str:
    # The value is a client's: escape line breaks before it is logged.
    return clip(value.encode("unicode_escape").decode(), _MAX_LOGGED_CHARS)
