"""ASGI scopes of HTTP requests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    import asyncio

    import uvicorn
    from starlette.types import Scope

    from bridge.hosting.http.parser import RequestHead

_access_logger = logging.getLogger("uvicorn.access")


def scope_of_connection(config: uvicorn.Config, transport: asyncio.BaseTransport) -> dict[str, Any]:
    """Return the members of a scope that all requests of a connection have."""
    return {
        "type": "http",
        "asgi": {"version": config.asgi_version, "spec_version": "2.3"},
        "server": _address(transport.get_extra_info("sockname")),
        "client": _address(transport.get_extra_info("peername")),
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "root_path": config.root_path,
    }


def scope_of_request(head: RequestHead, of_connection: dict[str, Any], state: dict[str, Any]) -> Scope:
    """Return the scope of a request.

    Args:
        head: Its head.
        of_connection: Members that all requests of the connection have.
        state: State of the app's lifespan, of which the request gets a copy.

    Raises:
        ValueError: The target is not valid.
    """
    raw_path, query = _split(head.target)
    path, root_path = raw_path.decode("ascii"), of_connection["root_path"]
    return {
        **of_connection,
        "http_version": head.http_version,
        "method": head.method,
        "path": root_path + (unquote(path) if "%" in path else path),
        "raw_path": root_path.encode("ascii") + raw_path,
        "query_string": query,
        "headers": head.headers,
        "state": state.copy(),
    }


def logs_access(config: uvicorn.Config) -> bool:
    """True if requests are logged."""
    return config.access_log and _access_logger.hasHandlers()


def log_access(scope: Scope, status: int) -> None:
    """Log a response, as uvicorn does."""
    client = ":".join(map(str, scope["client"] or ()))
    query = scope["query_string"].decode("ascii", "backslashreplace")
    target = quote(scope["path"]) + ("?" + query if query else "")
    _access_logger.info('%s - "%s %s HTTP/%s" %d', client, scope["method"], target, scope["http_version"], status)


def _address(found: object) -> tuple[str, int | None] | None:
    """Return host and port of an address, or the path of a Unix socket."""
    if isinstance(found, tuple):
        return str(found[0]), int(found[1])
    return (found, None) if found and isinstance(found, str) else None


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Split the target of a request into path and query (RFC 9112 section 3.2).

    Raises:
        ValueError: It has no path.
    """
    path, _, query = target.partition(b"#")[0].partition(b"?")
    if not path.startswith(b"/") and path != b"*":
        _, scheme_end, rest = path.partition(b"://")
        _, slash, path = rest.partition(b"/")
        if not (scheme_end and slash):
            raise ValueError(f"the target {target!r} has no path")
        path = slash + path
    return path, query
