"""Authentication of one app: middleware, metadata routes, tasks.

Guarding: what an app needs so that nobody without a credential reaches its tools.

Edge → CorsMiddleware → Gate → BodyLimitMiddleware, fast path → ToolScopeMiddleware → the transports

What a client is told before it has a credential: which issuers give tokens for this server (RFC 9728).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from anyio import create_task_group
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.routes import cors_middleware
from pydantic_core import to_json
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

from bridge.server.auth.auth import Auth
from bridge.server.auth.bearer import BearerAuthMiddleware
from bridge.server.auth.credential_monitor import CredentialMonitor
from bridge.server.auth.identity import AuthenticatedCall, CredentialCache, set_request_user
from bridge.server.auth.tool_scopes import ToolScopeMiddleware
from bridge.server.http.responses import PlainResponse
from bridge.server.unmatched_names import UnmatchedAuthNames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.server.auth.provider import TokenVerifier
    from starlette.requests import Request
    from starlette.types import Scope

    from bridge.server.core import ServerCore
    from bridge.server.http.responses import PendingCall, PlainHandler

if TYPE_CHECKING:
    Begin = Callable[[Scope, dict[bytes, bytes], bytes], PlainResponse | PendingCall | None]

WELL_KNOWN_PATH = "/.well-known/oauth-protected-resource"

_METHODS = ["GET", "OPTIONS"]

_HEADERS = {"cache-control": "public, max-age=3600"}


class AuthGuards:
    """The guards of one app.

    Args:
        auth: Who may come in.
        publisher: What they come for; its clients are told when what they may use has changed.
        max_request_bytes: How long a request's body may be.
    """

    def __init__(self, auth: Auth | TokenVerifier, publisher: ServerCore, max_request_bytes: int) -> None:
        self._auth = Auth.of(auth)
        self._publisher = publisher
        self._max_request_bytes = max_request_bytes
        self._metadata_url = metadata_url_of(self._auth)
        self.routes = metadata_routes(self._auth, publisher.title or publisher.name)
        """What everybody may read."""
        self.recognition = CredentialCache(self._auth)
        self._tenures = CredentialMonitor(self._auth)
        self.middleware: frozenset[object] = frozenset({BearerAuthMiddleware, ToolScopeMiddleware})
        """What knows of requests that are begun without ASGI."""
        self.unmatched = UnmatchedAuthNames(self._auth, publisher.tools)
        """Warns of tools that are named and not there."""
        self._auth.on_change(publisher.changes.ring)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time during which callers come."""
        self.unmatched.look()
        end = self._publisher.changes.listen(self.unmatched.look)
        try:
            async with self._auth.running(), create_task_group() as tasks:
                tasks.start_soon(self._tenures.keep)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            end()

    @property
    def before_body(self) -> list[Middleware]:
        """What stands before anything of a body is read."""
        open_paths = [route.path for route in self.routes]
        return [
            Middleware(
                BearerAuthMiddleware,
                auth=self._auth,
                recognition=self.recognition,
                tenures=self._tenures,
                metadata_url=self._metadata_url,
                open_paths=open_paths,
            )
        ]

    @property
    def after_body(self) -> list[Middleware]:
        """What looks at what is asked for, where the fast path has not answered."""
        if not self._auth.tool_scopes:
            return []
        return [
            Middleware(
                ToolScopeMiddleware,
                auth=self._auth,
                publisher=self._publisher,
                metadata_url=self._metadata_url,
                max_bytes=self._max_request_bytes,
            )
        ]

    def beginning(self, fast: PlainHandler) -> Begin:
        """What begins with a request without ASGI: with those whose credential is recognised, and with no others."""
        recognition = self.recognition

        def begin(scope: Scope, headers: dict[bytes, bytes], body: bytes) -> PlainResponse | PendingCall | None:
            known = recognition.recognised(scope, headers)
            if known is None:
                return None
            token = set_request_user(scope, known)
            try:
                begun = fast.begin(scope, headers, body)
            finally:
                auth_context_var.reset(token)
            return begun if begun is None or isinstance(begun, PlainResponse) else AuthenticatedCall(begun, known.user)

        return begin


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
