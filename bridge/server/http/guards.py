"""The direct way: what a server that knows of it may answer without ASGI, when a request came whole.

An ASGI server makes a task and its messages for every request before the app sees it, and a third of a plain call goes
there. `PreAsgiHandler` asks the same questions as the edge and the fast path, in one function that does not wait; what
it does not answer goes the way of all requests, where whatever is wrong with it is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware import Middleware

from bridge.errors import DefinitionError
from bridge.server.http.cors import CorsMiddleware
from bridge.server.http.host_origin import HostOriginMiddleware
from bridge.server.http.requests import UNCOUNTED_BODY_BYTES, BodyLimitMiddleware
from bridge.server.protocol import value_bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.auth.provider import TokenVerifier
    from starlette.applications import Starlette
    from starlette.types import Scope

    from bridge.server.auth.auth import Auth
    from bridge.server.auth.guards import AuthGuards
    from bridge.server.http.host_origin import AllowedHosts
    from bridge.server.http.responses import PendingCall, PlainHandler, PlainResponse
    from bridge.server.limits.accounts import Accounts
    from bridge.server.publisher import Publisher

_SPACE = b" \t"

_ASKED_DIRECTLY: frozenset[object] = frozenset({HostOriginMiddleware, CorsMiddleware, BodyLimitMiddleware})
"""The middleware whose questions `PreAsgiHandler` asks itself."""


class PreAsgiHandler:
    """Begins with a POST that came whole, if it is plain.

    Args:
        fast: What begins with it.
        names: Which names are let in.
        max_request_bytes: How long a request's body may be.
        guarding: Who may come in; None for everyone.
        is_open: As for `bridge.server.http.guards.pre_asgi_handler`.
    """

    def __init__(
        self,
        fast: PlainHandler,
        names: AllowedHosts,
        max_request_bytes: int,
        guarding: AuthGuards | None,
        is_open: Callable[[], bool],
    ) -> None:
        self._names = names
        self._max_bytes = min(max_request_bytes, UNCOUNTED_BODY_BYTES)
        self._bounds = value_bounds(max_request_bytes)
        self._is_open = is_open
        self._begin = fast.begin if guarding is None else guarding.beginning(fast)

    def begin(self, scope: Scope, body: bytes) -> PlainResponse | PendingCall | None:
        """As `FastHttp.begin`, for a request that nobody has looked at.

        Args:
            scope: The request, as ASGI has it.
            body: Its body, whole.
        """
        headers = {name: value.strip(_SPACE) for name, value in scope["headers"]}
        if (
            len(headers) < len(scope["headers"])
            or b"transfer-encoding" in headers
            or not self._names.admit_plainly(headers)
            or len(body) > self._max_bytes
            or self._bounds.excess(body) is not None
            or not self._is_open()
        ):
            return None
        return self._begin(scope, headers, body)


def _guarding(auth: Auth | TokenVerifier, publisher: Publisher, max_request_bytes: int) -> AuthGuards:
    if not hasattr(auth, "verify_token"):  # what was given may be a secret: its value is not told
        raise DefinitionError(
            f"auth takes Auth(…) or one verifier, and got a {type(auth).__name__!r}; "
            "keys are let in by auth=Auth(ApiKeys(ApiKey(…))), all of bridge.server.auth"
        )
    from bridge.server.auth.guards import AuthGuards  # noqa: PLC0415 - only for those who ask for a credential

    return AuthGuards(auth, publisher, max_request_bytes)


def _turnstile(accounts: Accounts) -> Middleware:
    from bridge.server.limits.middleware import RateLimitMiddleware  # noqa: PLC0415 - only where there are limits

    return Middleware(RateLimitMiddleware, accounts=accounts)


def _limited(beginner: PlainHandler, accounts: Accounts) -> tuple[PlainHandler, object]:
    from bridge.server.limits.middleware import RateLimitedHandler, RateLimitMiddleware  # noqa: PLC0415 - as above

    return RateLimitedHandler(beginner, accounts), RateLimitMiddleware


def pre_asgi_handler(app: Starlette, is_open: Callable[[], bool]) -> PreAsgiHandler | None:
    """The way into an app of `http_app` for a server that can answer without ASGI.

    Args:
        app: The app, which the server runs.
        is_open: Whether the app has started, and requests have nothing to pass before it.

    Returns:
        The way; None where there is none: without the fast path, and where there is middleware of others, which has to
        see every request.
    """
    asked: frozenset[object] = app.state.asked_directly
    if not (hasattr(app.state, "direct") and asked.issuperset(each.cls for each in app.user_middleware)):
        return None
    direct: PreAsgiHandler = app.state.direct(is_open)
    return direct
