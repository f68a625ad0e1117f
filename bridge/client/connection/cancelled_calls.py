"""Cancelled calls that the server may still run.

A server may go on with a cancelled call, and an unattributed notification or request may belong to it. A server that
stops on cancellation does not respond (MCP, Cancellation), so each counts for `GIVEN_UP_SECONDS`.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bridge.protocol.peer import PendingRequest
    from bridge.tools.context import InvocationContext

GIVEN_UP_SECONDS = 10.0
"""Seconds after its cancellation for which an unanswered call counts."""

MAX_REMEMBERED = 1000
"""Maximum cancelled calls that are remembered; beyond it, no message is attributed."""


class _GivenUp(NamedTuple):
    peer: object | None
    identity: tuple[object, ...] | None
    at: float


class CancelledCalls:
    """Cancelled calls of one session, until their response or expiry."""

    def __init__(self) -> None:
        self._calls: dict[str, _GivenUp] = {}  # by ID, oldest first
        self._full_at: float | None = None

    def add(self, request: PendingRequest) -> None:
        """Add a request whose cancellation was sent."""
        if request.owner is None or not request.is_sent:
            return
        now = self._forget_old()
        if len(self._calls) < MAX_REMEMBERED:
            context = request.owner.context
            self._calls[str(request.id)] = _GivenUp(context.peer, _local_identity(context), now)
        else:
            self._full_at = now

    def answered(self, request_id: object) -> None:
        """Remove the call of a response."""
        self._forget_old()
        self._calls.pop(str(request_id), None)

    def are_all_of(self, context: InvocationContext) -> bool:
        """True if all are of the context's remote client, or of equal local contexts."""
        self._forget_old()
        if self._full_at is not None:
            return False
        if not self._calls:
            return True
        peer, identity = context.peer, _local_identity(context)
        if peer is None:
            return identity is not None and all(each.identity == identity for each in self._calls.values())
        return all(each.peer is peer for each in self._calls.values())

    def _forget_old(self) -> float:
        """Remove expired entries; returns the current time."""
        now = monotonic()
        for request_id, given_up in tuple(self._calls.items()):
            if now - given_up.at < GIVEN_UP_SECONDS:
                break
            del self._calls[request_id]
        if self._full_at is not None and now - self._full_at >= GIVEN_UP_SECONDS:
            self._full_at = None
        return now


def _local_identity(context: InvocationContext) -> tuple[object, ...] | None:
    """Fields that identify a local call; None for a call of a remote client."""
    return None if context.has_listener else (context.caller, context.memory_id, context.parameters)
