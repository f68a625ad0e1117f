"""What a client is told before it has a credential: which issuers give tokens for this server (RFC 9728)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
from mcp.server.auth.routes import cors_middleware
from pydantic_core import to_json
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from bridge.server.auth.auth import Auth

WELL_KNOWN_PATH = "/.well-known/oauth-protected-resource"

_METHODS = ["GET", "OPTIONS"]
_HEADERS = {"cache-control": "public, max-age=3600"}


def metadata_url_of(auth: Auth) -> str | None:
    """Where the metadata is; None where there is none, because nothing but keys lets somebody in."""
    if auth.resource_url is None or not auth.authorization_servers:
        return None
    resource = httpx2.URL(auth.resource_url)
    rest = resource.raw_path.decode("ascii")
    if resource.path == "/":
        rest = rest.removeprefix("/")
    return str(resource.copy_with(raw_path=(WELL_KNOWN_PATH + rest).encode("ascii")))


def metadata_routes(auth: Auth, name: str) -> list[Route]:
    """What serves the metadata: where RFC 9728 has it for the resource, and without the path of the resource.

    Args:
        auth: Who may come in.
        name: What the server calls itself.
    """
    url = metadata_url_of(auth)
    if url is None:
        return []
    body = to_json(_metadata(auth, name))

    async def answer(_: Request) -> Response:
        return Response(body, media_type="application/json", headers=_HEADERS)

    endpoint = cors_middleware(answer, _METHODS)
    paths = {WELL_KNOWN_PATH, httpx2.URL(url).path}
    return [Route(path, endpoint=endpoint, methods=_METHODS) for path in sorted(paths)]


def _metadata(auth: Auth, name: str) -> dict[str, Any]:
    """The members of RFC 9728, section 2. URLs stand as they were given: clients compare them letter by letter."""
    told = {
        "resource": auth.resource_url,
        "authorization_servers": list(auth.authorization_servers),
        "bearer_methods_supported": ["header"],
        "resource_name": name,
    }
    return told | ({"scopes_supported": sorted(auth.scopes)} if auth.scopes else {})
