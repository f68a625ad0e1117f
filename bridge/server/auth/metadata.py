"""What a client is told before it has a credential: which issuers give tokens for this server (RFC 9728)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from pydantic import AnyHttpUrl
from starlette.routing import Route

if TYPE_CHECKING:
    from bridge.server.auth.auth import Auth

WELL_KNOWN_PATH = "/.well-known/oauth-protected-resource"


def metadata_url_of(auth: Auth) -> str | None:
    """Where the metadata is; None where there is none, because nothing but keys lets somebody in."""
    if auth.resource_url is None or not auth.authorization_servers:
        return None
    return str(build_resource_metadata_url(AnyHttpUrl(auth.resource_url)))


def metadata_routes(auth: Auth, name: str) -> list[Route]:
    """What serves the metadata: where RFC 9728 has it for the resource, and without the path of the resource.

    Args:
        auth: Who may come in.
        name: What the server calls itself.
    """
    url = metadata_url_of(auth)
    if url is None or auth.resource_url is None:
        return []
    routes = create_protected_resource_routes(
        AnyHttpUrl(auth.resource_url),
        [AnyHttpUrl(issuer) for issuer in auth.authorization_servers],
        scopes_supported=sorted(auth.scopes) or None,
        resource_name=name,
    )
    paths = {WELL_KNOWN_PATH, urlsplit(url).path.rstrip("/")}
    return [Route(path, endpoint=routes[0].endpoint, methods=["GET", "OPTIONS"]) for path in sorted(paths)]
