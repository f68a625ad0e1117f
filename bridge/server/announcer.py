"""The announcer: brings news of changed tools to the clients of both eras, over the SDK.

In the modern era a client opens a subscription, and the SDK's handler for it asks a bus. In the handshake era every
session is told without asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.subscriptions import ToolsListChanged

from bridge.server.protocol import MODERN_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.subscriptions import ServerEvent

    from bridge.server.tool_list import ToolChanges


class ChangesBus:
    """The SDK's ``SubscriptionBus`` over the changes of a ToolBox."""

    def __init__(self, changes: ToolChanges) -> None:
        self._changes = changes

    async def publish(self, event: ServerEvent) -> None:
        """Tell every listener, of both eras."""
        if isinstance(event, ToolsListChanged):
            self._changes.ring()

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Call ``listener`` on this event loop after changes; returns what ends that."""
        return self._changes.listen(lambda: listener(ToolsListChanged()))


class Announcer:
    """Middleware that tells every session of the handshake era of changes, for as long as the session lives.

    It does so in the task in which the SDK handles ``notifications/initialized``. That task belongs to the session and
    is cancelled with it, however it ends: nothing has to be remembered, and a client that does not read holds up
    nobody else.

    Args:
        changes: What is told.
    """

    def __init__(self, changes: ToolChanges) -> None:
        self._changes = changes
        self._told: set[object] = set()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle the message; stay, where it was the one that opens a session."""
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized" and ctx.protocol_version not in MODERN_VERSIONS:
            await self._announce(ctx)
        return result

    async def _announce(self, request: ServerRequestContext[Any, Any]) -> None:
        session = session_id(request) or id(request.session.client_params)
        if session in self._told:
            return
        changed = anyio.Event()

        def tell() -> None:
            changed.set()

        end = self._changes.listen(tell)
        self._told.add(session)
        try:
            while True:
                await changed.wait()
                changed = anyio.Event()
                await request.session.send_tool_list_changed()
        finally:
            end()
            self._told.discard(session)


def session_id(request: ServerRequestContext[Any, Any]) -> str | None:
    """What identifies the session of an HTTP request, over streamable HTTP or SSE; None elsewhere.

    In the handshake era the transport has found that session. The modern era has none, and nobody looks at what a
    client says there: it could be anyone's.
    """
    if request.request is None or request.protocol_version in MODERN_VERSIONS:
        return None
    session: str | None = request.request.headers.get("mcp-session-id")
    return session or request.request.query_params.get("session_id")
