"""Deadlines: what ends calls whose time is over. One timer for all of a connection, and none for each call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from bridge.client.connection.call import Call


class Deadlines:
    """The calls of one connection that are under way, and when the time of each is over.

    A call whose time is put off costs nothing: the timer finds that out when it rings. Only one that is due before the
    timer rings has it set anew.
    """

    def __init__(self) -> None:
        self._calls: set[Call] = set()
        self._is_watched = False
        self._rings_at = math.inf
        self._is_sooner = anyio.Event()

    def add(self, call: Call) -> None:
        """Watch a call, until it is discarded."""
        self._calls.add(call)
        self.changed(call)

    def discard(self, call: Call) -> None:
        """Watch a call no more."""
        self._calls.discard(call)

    def changed(self, call: Call) -> None:
        """A call that is watched is due at another time than before."""
        if not self._is_watched:
            call.scope.deadline = call.deadline
        elif call.deadline < self._rings_at:
            self._rings_at = call.deadline
            self._is_sooner.set()

    async def watch(self) -> None:
        """End calls when they are due, until cancelled; from then on each has a timer of its own."""
        self._is_watched = True
        for call in self._calls:
            call.scope.deadline = math.inf
        try:
            while True:
                self._end_due()
                self._rings_at = min((call.deadline for call in self._calls), default=math.inf)
                self._is_sooner = anyio.Event()
                with anyio.CancelScope(deadline=self._rings_at):
                    await self._is_sooner.wait()
        finally:
            self._is_watched = False
            for call in self._calls:
                self.changed(call)

    def _end_due(self) -> None:
        now = anyio.current_time()
        due = [call for call in self._calls if call.deadline <= now]
        for call in due:
            self.discard(call)
            call.scope.cancel()
