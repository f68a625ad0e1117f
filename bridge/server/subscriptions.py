"""Subscriptions of the modern era (``subscriptions/listen``), each of which can be ended by its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.server.subscriptions import ListenHandler

from bridge.server.auth.identity import ending_with_credential
from bridge.server.protocol import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.subscriptions import SubscriptionBus
    from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

MAX_SUBSCRIPTIONS = 1024
"""How many may be open, as in the SDK."""


class Subscriptions:
    """Answers ``subscriptions/listen``: one call is one stream, served by a handler of the SDK of its own.

    Args:
        bus: Where what is told comes from.
    """

    def __init__(self, bus: SubscriptionBus) -> None:
        self._bus = bus
        self._open: set[ListenHandler] = set()

    async def __call__(
        self, request: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream, until its client leaves, it is ended, or the credential that opened it holds no more.

        Raises:
            MCPError: Too many are open.
        """
        if len(self._open) >= MAX_SUBSCRIPTIONS:
            raise MCPError(INTERNAL_ERROR, "Subscription limit reached")
        handler = ListenHandler(self._bus)
        self._open.add(handler)
        try:
            with ending_with_credential(handler.close):
                return await handler(request, params)
        finally:
            self._open.discard(handler)

    def close(self) -> None:
        """End all that are open, each by its result."""
        for handler in tuple(self._open):
            handler.close()
