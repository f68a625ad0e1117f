"""Requests and notifications of extensions that this server does not have, and a gateway's servers may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext
    from bridge.types import Json


class ForwardedRequests(Protocol):
    """Passes requests and notifications on to other servers."""

    def takes(self, params: Json) -> bool:
        """Return True if a server may have a method, given the parameters of a request."""
        ...

    async def answer(self, method: str, params: Json, context: InvocationContext) -> Json:
        """Return a server's result.

        Raises:
            ProtocolError: No server has the method, or one refused the request.
            ToolError: The server is unavailable.
            InputRequired: The server asked a question that only the caller's next request can answer.
        """
        ...

    def notified(self, method: str, params: Json, context: InvocationContext) -> None:
        """Pass a notification of a client on."""
        ...
