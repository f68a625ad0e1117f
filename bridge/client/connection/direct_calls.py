"""Direct calls: calls of a gateway's callers that are sent in the same turn in which they were received.

    send ──> a usual result ──────────────────────────────────────────> received where the response is read
      ├────> an error, progress, log messages, a lost connection ──╮
      ╰────> no response within `TAKEN_SECONDS` ───────────────────┴──> a task waits for the outcome

A task is made only for a call that needs one: it has the deadlines, and the messages of the server belong to it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.client.connection.running_call import Call
    from bridge.protocol.peer import PendingRequest
    from bridge.types import Json

    ResultReceiver = Callable[[Json | None], bool]

TAKEN_SECONDS = 1.0
"""Seconds after which a task waits for the outcome."""


class DirectCall:
    """A call for whose outcome no task waits.

    Args:
        request: The request.
        receive: Called once with the result, or with None. For None, and if it returns False, a task has to wait.
        left: Called when the call has ended, or a task waits for its outcome; True if it has ended.

    Attributes:
        began_at: Time of its beginning, in the event loop's time.
    """

    __slots__ = ("_is_taken", "_left", "_progress", "_receive", "began_at", "request")

    def __init__(
        self, request: PendingRequest, receive: ResultReceiver, left: Callable[[DirectCall, bool], None]
    ) -> None:
        self.request = request
        self._left = left
        self.began_at = asyncio.get_running_loop().time()
        self._receive = receive
        self._is_taken = False
        self._progress: list[tuple[Any, ...]] = []
        request.on_progress = self._on_progress
        request.on_change = self._on_change

    def continue_in_task(self) -> None:
        """Let a task wait for the outcome, from the next turn of the event loop on."""
        if not self._is_taken:
            self._is_taken = True
            self.request.on_change = None
            asyncio.get_running_loop().call_soon(self._receive, None)

    def take(self, call: Call) -> None:
        """Give the request to a call, whose task waits for its outcome."""
        self._left(self, False)
        self.request.on_progress = call.on_progress
        call.work.extend(self.request.work)
        self.request.work = call.work
        for progress in self._progress:
            call.on_progress(*progress)

    def _on_progress(self, *progress: Any) -> None:
        self._progress.append(progress)
        self.continue_in_task()

    def _on_change(self) -> None:
        request = self.request
        result = None if request.work else request.result
        if result is not None and self._receive(result):
            self._is_taken = True
            request.on_change = request.on_progress = None
            self._left(self, True)
        else:
            self.continue_in_task()


class DirectCalls:
    """The direct calls of one session."""

    def __init__(self) -> None:
        self._calls: dict[DirectCall, None] = {}  # oldest first
        self._is_watched = False

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: DirectCall) -> None:
        """Add a call that was sent."""
        self._calls[call] = None
        if not self._is_watched:
            self._watch(TAKEN_SECONDS)

    @property
    def only(self) -> DirectCall | None:
        """The only call; None if there is none, or several."""
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    def discard(self, call: DirectCall) -> None:
        """Remove a call that was answered, or for whose outcome a task waits."""
        self._calls.pop(call, None)

    def _watch(self, seconds: float) -> None:
        self._is_watched = True
        asyncio.get_running_loop().call_later(seconds, self._continue_slow)

    def _continue_slow(self) -> None:
        """Let tasks wait for the calls that have lasted for so long."""
        self._is_watched = False
        now = asyncio.get_running_loop().time()
        for call in self._calls:
            left = call.began_at + TAKEN_SECONDS - now
            if left > 0:
                self._watch(left)
                break
            call.continue_in_task()
