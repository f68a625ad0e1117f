"""Subscriptions of the modern era (``subscriptions/listen``), each of which can be ended by its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.server.subscriptions import ListenHandler
from pydantic_core import to_json

from bridge.server.auth.identity import ending_with_credential
from bridge.server.http.session import MAX_KEPT_BYTES, kept_bytes
from bridge.server.limits.accounts import account_of
from bridge.server.limits.shares import Shares
from bridge.server.protocol import INVALID_PARAMS, LIMIT_EXCEEDED

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.subscriptions import SubscriptionBus
    from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

MAX_SUBSCRIPTIONS = 1024
"""How many may be open, as in the SDK; of these a caller has its share."""
_RETRY_SECONDS = 10


class Subscriptions:
    """Answers ``subscriptions/listen``: one call is one stream, served by a handler of the SDK of its own.

    Args:
        bus: Where what is told comes from.
    """

    def __init__(self, bus: SubscriptionBus) -> None:
        self._bus = bus
        self._open: set[ListenHandler] = set()
        self._shares = Shares(MAX_SUBSCRIPTIONS)

    async def __call__(
        self, request: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream, until its client leaves, it is ended, or the credential that opened it holds no more.

        Raises:
            MCPError: Too many are open, of all callers or of this one.
        """
        account = account_of(request)
        if not self._shares.has_room(account):
            told = (
                f"too many subscriptions: a caller has as many as are left of {self._shares.places}; "
                f"try again in {_RETRY_SECONDS} seconds"
            )
            raise MCPError(LIMIT_EXCEEDED, told, {"retryAfterSeconds": _RETRY_SECONDS})
        kept = kept_bytes(to_json(request.params))
        if kept > MAX_KEPT_BYTES:
            raise MCPError(INVALID_PARAMS, f"a subscription may take {MAX_KEPT_BYTES} bytes here, and not {kept}")
        handler = ListenHandler(self._bus)
        self._open.add(handler)
        try:
            with self._shares.taking(account), ending_with_credential(handler.close):
                return await handler(request, params)
        finally:
            self._open.discard(handler)

    def close(self) -> None:
        """End all that are open, each by its result."""
        for handler in tuple(self._open):
            handler.close()
