"""Pages that tell of all tools, and are for nobody who may know only of some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.server.auth.failures import Challenge, send_challenge
from bridge.server.auth.identity import access_of_request

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class Unlimited:
    """ASGI behind the gate: refuses whoever may use only some of the tools.

    Args:
        app: What is behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if access_of_request().tools is None:
            await self._app(scope, receive, send)
            return
        told = "this page tells of all tools, and the key is for some of them"
        await send_challenge(send, Challenge(status=403, error="insufficient_scope", description=told), None)
