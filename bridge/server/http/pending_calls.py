"""Pending calls: plain calls that have not run yet, for the HTTP server that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.http.requests import Request
    from bridge.server.http.responses import PlainResponse
    from bridge.types import Step


class PendingCall(Protocol):
    """A plain call that has not run yet."""

    ends_with_client: bool
    """True if it is cancelled when the client closes the request."""
    request: Request
    """The request."""
    may_talk: bool
    """True if it may have something for its client; `Request.hand_over` has to be set before it is run."""

    def start(self, step: Step) -> PlainResponse | None:
        """Run the first step of the call, if possible; return the response if the call has ended, else `run` it.

        Args:
            step: As for `bridge.server.methods.plain_calls.PlainCalls.start_plain`.
        """
        ...

    def pass_on(self, receive: Callable[[PlainResponse | None], None]) -> bool:
        """Pass the call on at once; ``receive`` gets the response, or None if a task has to `run` the call."""
        ...

    def cancel(self) -> None:
        """Cancel a call that was passed on, in a task."""
        ...

    async def run(self) -> PlainResponse | None:
        """Run the call, once; return None if the SDK's server answers. Raises nothing but cancellation."""
        ...
