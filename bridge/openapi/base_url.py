"""Base URL of an API: configured, or from the document's servers. All requests go to its host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import httpx2

from bridge.errors import DefinitionError
from bridge.openapi.serialization import has_dot_segments
from bridge.redaction import redact_url

if TYPE_CHECKING:
    from bridge.openapi.document import OpenApiDocument, Operation


def base_url_of(document: OpenApiDocument, *, given: str | None, fetched_from: str | None) -> str:
    """Return the base URL of a document, without a slash at its end.

    Args:
        document: The document.
        given: Configured URL; None to take the document's first server.
        fetched_from: URL of the document, against which a relative URL is resolved; None for a file.

    Raises:
        DefinitionError: There is none, it is invalid, or a fetched document names another host.
    """
    if given is not None:
        return _checked(given, "the base URL")
    servers = document.content.get("servers") or [{"url": "/"}]
    url = _server_url(document, servers)
    if fetched_from is None:
        if not url.startswith(("http://", "https://")):
            raise DefinitionError(
                f"{document.source} names no server with a host, but {url!r}: give the base URL of the API "
                "(base_url, or --openapi-server)"
            )
        return _checked(url, f"the server of {document.source}")
    base = _checked(urljoin(fetched_from, url), f"the server of {document.source}")
    if origin_of(base) != origin_of(fetched_from):
        raise DefinitionError(
            f"{document.source} names a server on another host, {redact_url(base).shown}: if that is intended, "
            "give it as the base URL (base_url, or --openapi-server)"
        )
    return base


def operation_url(document: OpenApiDocument, operation: Operation, base: str, *, is_given: bool) -> str:
    """Return the base URL of an operation, which may have servers of its own, one of them on the same host.

    Raises:
        DefinitionError: They are on other hosts.
    """
    servers = operation.content.get("servers") or operation.path_item.get("servers")
    if is_given or not servers:
        return base
    urls = [
        _checked(urljoin(f"{base}/", _server_url(document, [server])), f"the server of {operation.label}")
        for server in (servers if isinstance(servers, list) else [servers])
    ]
    for url in urls:
        if origin_of(url) == origin_of(base):
            return url
    raise DefinitionError(
        f"{document.source}: {operation.label} has a server of its own on another host, "
        f"{redact_url(urls[0]).shown}, and requests go to {redact_url(base).shown} only: leave it out "
        f"('!{operation.label}'), or give its server as the base URL for it alone"
    )


def origin_of(url: str | httpx2.URL) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL.

    Raises:
        DefinitionError: It is invalid.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise DefinitionError(f"{redact_url(str(url)).shown} is not a valid URL") from error
    return parsed.scheme, parsed.host, parsed.port


def _server_url(document: OpenApiDocument, servers: Any) -> str:
    """URL of the first server, with the default values of its variables."""
    server = servers[0] if isinstance(servers, list) and servers else None
    url = server.get("url") if isinstance(server, dict) else None
    if not isinstance(server, dict) or not isinstance(url, str):
        raise DefinitionError(f"{document.source}: 'servers' has no URL")
    variables = server.get("variables")
    for name, variable in (variables if isinstance(variables, Mapping) else {}).items():
        default = variable.get("default") if isinstance(variable, Mapping) else None
        if isinstance(default, str | int):
            url = url.replace(f"{{{name}}}", str(default))
    if "{" in url:
        raise DefinitionError(
            f"{document.source}: the server {url!r} has a variable without a default: give the base URL of the API "
            "(base_url, or --openapi-server)"
        )
    return url


def _checked(url: str, what: str) -> str:
    shown = redact_url(url).shown
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise DefinitionError(f"{what}, {shown}, is not a valid URL") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise DefinitionError(f"{what}, {shown}, is not an http:// or https:// URL with a host")
    if parsed.userinfo or parsed.query or parsed.fragment or "?" in url or "#" in url:
        raise DefinitionError(f"{what}, {shown}, must not have credentials, a query or a fragment")
    if has_dot_segments(url) or "\\" in url:
        raise DefinitionError(f"{what}, {shown}, must not have the segments '.' and '..'")
    return str(parsed).rstrip("/")
