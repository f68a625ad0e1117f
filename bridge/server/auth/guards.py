"""Authentication of one app: its guards, the routes of its metadata (RFC 9728), and the tasks that run beside it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.server.auth.routes import cors_middleware
from pydantic_core import to_json
from starlette.responses import Response
from starlette.routing import Route

from bridge.server.auth.auth import Auth
from bridge.server.auth.bearer import BearerAuthGuard
from bridge.server.auth.credential_monitor import CredentialMonitor
from bridge.server.auth.identity import CredentialCache
from bridge.server.auth.tool_scopes import ToolScopeGuard
from bridge.server.unmatched_names import unmatched_auth_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.auth.provider import TokenVerifier
    from starlette.requests import Request

    from bridge.server.core import ServerCore

WELL_KNOWN_PATH = "/.well-known/oauth-protected-resource"
_METHODS = ["GET", "OPTIONS"]
_HEADERS = {"cache-control": "public, max-age=3600"}


class AuthGuards:
    """Authentication of one app; clients are notified when the tools that they may use have changed."""

    def __init__(self, auth: Auth | TokenVerifier, publisher: ServerCore) -> None:
        self._auth = Auth.of(auth)
        self._publisher = publisher
        self._monitor = CredentialMonitor(self._auth)
        self.routes = metadata_routes(self._auth, publisher.title or publisher.name)
        """Routes that need no credential."""
        self.unmatched = unmatched_auth_names(self._auth, publisher.tools)
        """Warns of names in the configuration that no tool has."""
        self._auth.on_change(publisher.changes.notify)

        metadata_url = metadata_url_of(self._auth)
        self.credential = BearerAuthGuard(
            self._auth,
            CredentialCache(self._auth),
            metadata_url=metadata_url,
            open_paths=[route.path for route in self.routes],
            monitor=self._monitor,
        )
        """Guard before the body."""
        self.scopes = ToolScopeGuard(self._auth, publisher, metadata_url) if self._auth.tool_scopes else None
        """Guard after the body; None if no tool needs a scope."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the tasks of authentication; a context in which requests are served."""
        with self.unmatched.watching(self._publisher.changes):
            async with self._auth.running(self._monitor.keep):
                yield


def metadata_url_of(auth: Auth) -> str | None:
    """URL of the metadata; None without an issuer of tokens."""
    if auth.resource_url is None or not auth.authorization_servers:
        return None
    resource = httpx2.URL(auth.resource_url)
    rest = resource.raw_path.decode("ascii")
    if resource.path == "/":
        rest = rest.removeprefix("/")
    return str(resource.copy_with(raw_path=(WELL_KNOWN_PATH + rest).encode("ascii")))


def metadata_routes(auth: Auth, name: str) -> list[Route]:
    """Routes of the metadata: with the path of the resource, as in RFC 9728, and without it."""
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
    """Return the metadata of RFC 9728, section 2. URLs are not normalised, since clients compare them as strings."""
    found = {
        "resource": auth.resource_url,
        "authorization_servers": list(auth.authorization_servers),
        "bearer_methods_supported": ["header"],
        "resource_name": name,
    }
    return found | ({"scopes_supported": sorted(auth.scopes)} if auth.scopes else {})
