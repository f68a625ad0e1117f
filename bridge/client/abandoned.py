"""Abandoned: calls that nobody waits for any more, and with which their server may go on all the same.

Where a transport does not name the call on whose behalf a server speaks, it may speak for one of these: what it says or
asks is then brought to nobody but the client whose calls they were. A server that heeds a cancellation does not answer
the call (MCP, cancellation), and so never tells that it is over: such a call counts for `GIVEN_UP_SECONDS`.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bridge.client.attempt import Attempt
    from bridge.tools.context import InvocationContext

GIVEN_UP_SECONDS = 10.0
"""How long after its cancellation went out a call counts that is not answered."""
MAX_REMEMBERED = 1000
"""Beyond so many calls that were given up within that time, nobody can be told from anybody else."""


class _GivenUp(NamedTuple):
    peer: object | None
    words: tuple[object, ...] | None
    at: float


class Abandoned:
    """The calls over one link that were given up after they were sent, until they are answered or time has passed."""

    def __init__(self) -> None:
        self._calls: dict[Attempt, _GivenUp] = {}  # the oldest first
        self._full_at: float | None = None

    def add(self, attempt: Attempt) -> None:
        """Remember one whose cancellation has gone out."""
        if attempt.call is None or not attempt.sent:
            return
        now = self._forget_old()
        if len(self._calls) < MAX_REMEMBERED:
            context = attempt.call.context
            self._calls[attempt] = _GivenUp(context.peer, _words(context), now)
        else:
            self._full_at = now

    def answered(self, request_id: object) -> None:
        """Forget the one that has been answered: nothing more is said for it."""
        self._forget_old()
        for attempt in tuple(self._calls):
            if attempt.request_id is not None and str(attempt.request_id) == str(request_id):
                del self._calls[attempt]

    def are_all_of(self, context: InvocationContext) -> bool:
        """Whether there are none but those of this client, or of this program where it says the same of itself."""
        self._forget_old()
        if self._full_at is not None:
            return False
        if not self._calls:
            return True
        peer, words = context.peer, _words(context)
        if peer is None:
            return words is not None and all(each.words == words for each in self._calls.values())
        return all(each.peer is peer for each in self._calls.values())

    def _forget_old(self) -> float:
        """Forget those that count no longer; returns the time."""
        now = monotonic()
        for attempt, given_up in tuple(self._calls.items()):
            if now - given_up.at < GIVEN_UP_SECONDS:
                break
            del self._calls[attempt]
        if self._full_at is not None and now - self._full_at >= GIVEN_UP_SECONDS:
            self._full_at = None
        return now


def _words(context: InvocationContext) -> tuple[object, ...] | None:
    """What a call of this program's own says of itself; None for one that came from elsewhere."""
    return None if context.has_listener else (context.caller, context.memory_id, context.parameters)
