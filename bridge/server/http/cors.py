"""CORS guard: answers preflight requests, and adds the headers that let pages of an allowed origin use the server.

It comes before authentication, because a browser sends its preflight request without the credential (Fetch standard,
"HTTP extensions").
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from bridge.server.http.host_origin import AllowedHosts
    from bridge.server.http.requests import Request

_METHODS = ("GET", "POST", "DELETE")
_EXPOSED = ("Mcp-Session-Id", "WWW-Authenticate", "Retry-After")
_ANY_ORIGIN = ".*"
"""Only requests of allowed origins reach the middleware, which repeats the origin in its response."""


class CorsGuard:
    """Guard that answers preflight requests, and adds CORS headers to other responses."""

    def __init__(self, names: AllowedHosts) -> None:
        self._names = names
        self._cors = CORSMiddleware(
            _unreached,
            allow_origin_regex=_ANY_ORIGIN,
            allow_methods=_METHODS,
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
