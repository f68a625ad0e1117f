"""Cross-origin requests: what a browser has to be told so that pages of an allowed origin can use the server (CORS).

Before a page of another origin may send JSON or a credential, its browser asks whether it may, without the credential:
so this stands before the gate. Fetch standard, "HTTP extensions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware.cors import CORSMiddleware

from bridge.server.http.requests import HEADERS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.http.host_origin import AllowedHosts

_METHODS = ("GET", "POST", "DELETE")
_EXPOSED = ("Mcp-Session-Id", "WWW-Authenticate", "Retry-After")
_ANY_ORIGIN = ".*"
"""Of the allowed ones: no other comes here. Each is answered by its name."""


class CorsMiddleware:
    """ASGI middleware behind the edge: answers the questions of browsers, and lets them show answers to their pages.

    Args:
        app: What is behind it.
        names: Which origins are allowed.
    """

    def __init__(self, app: ASGIApp, *, names: AllowedHosts) -> None:
        self._app = app
        self._names = names
        self._telling = CORSMiddleware(
            app,
            allow_origin_regex=_ANY_ORIGIN,
            allow_methods=_METHODS,
            allow_headers=("*",),  # the names of Mcp-Param-… are those of tools' parameters
            allow_private_network=True,
            expose_headers=_EXPOSED,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a browser's question, or let a request through and tell the browser who may see the answer."""
        origin = scope[HEADERS].get(b"origin") if scope["type"] == "http" else None
        if origin and self._names.allows_origin(origin.decode("latin-1")):
            await self._telling(scope, receive, send)
        else:
            await self._app(scope, receive, send)
