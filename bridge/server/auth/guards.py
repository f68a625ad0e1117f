"""Guarding: what an app needs so that nobody without a credential reaches its tools.

Edge → CorsMiddleware → Gate → BodyLimitMiddleware, fast path → ScopedTools → the transports
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import create_task_group
from mcp.server.auth.middleware.auth_context import auth_context_var
from starlette.middleware import Middleware

from bridge.server.auth.auth import Auth
from bridge.server.auth.bearer import Gate
from bridge.server.auth.credential_monitor import Tenures
from bridge.server.auth.metadata import metadata_routes, metadata_url_of
from bridge.server.auth.recognition import KnownWork, Recognition, entered
from bridge.server.auth.tool_scopes import ScopedTools
from bridge.server.auth.unmatched import Unmatched
from bridge.server.http.responses import PlainResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.server.auth.provider import TokenVerifier
    from starlette.types import Scope

    from bridge.server.core import ServerCore
    from bridge.server.http.responses import PendingCall, PlainHandler

    Begin = Callable[[Scope, dict[bytes, bytes], bytes], PlainResponse | PendingCall | None]


class Guarding:
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
        self.recognition = Recognition(self._auth)
        self._tenures = Tenures(self._auth)
        self.middleware: frozenset[object] = frozenset({Gate, ScopedTools})
        """What knows of requests that are begun without ASGI."""
        self.unmatched = Unmatched(self._auth, publisher.tools)
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
                Gate,
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
                ScopedTools,
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
            token = entered(scope, known)
            try:
                begun = fast.begin(scope, headers, body)
            finally:
                auth_context_var.reset(token)
            return begun if begun is None or isinstance(begun, PlainResponse) else KnownWork(begun, known.user)

        return begin
