"""Abandoned: calls that nobody waits for any more, and with which their server may go on all the same.

Where a transport does not name the call on whose behalf a server speaks, it may speak for one of these: what it says or
asks is then brought to nobody but the client whose calls they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.client.attempt import Attempt

MAX_REMEMBERED = 1000
"""Beyond so many calls that were never answered, nobody can be told from anybody else."""


class Abandoned:
    """The calls over one link that were given up after they were sent, until they are answered after all."""

    def __init__(self) -> None:
        self._peers: dict[Attempt, object | None] = {}
        self._is_full = False

    def add(self, attempt: Attempt) -> None:
        """Remember one."""
        if attempt.call is None or not attempt.sent:
            return
        if len(self._peers) < MAX_REMEMBERED:
            self._peers[attempt] = attempt.call.context.peer
        else:
            self._is_full = True

    def answered(self, request_id: object) -> None:
        """Forget the one that has been answered: nothing more is said for it."""
        for attempt in tuple(self._peers):
            if attempt.request_id is not None and str(attempt.request_id) == str(request_id):
                del self._peers[attempt]

    def are_all_of(self, peer: object | None) -> bool:
        """Whether there are none but those of this client."""
        if self._is_full:
            return False
        return not self._peers or (peer is not None and all(each is peer for each in self._peers.values()))
