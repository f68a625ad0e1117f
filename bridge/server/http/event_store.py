"""Event stores of sessions of the handshake era, so that clients can resume the stream of a call that still runs.

Events are stored by session and request id. A stream ends with its response, but its server or a broken connection may
end it before. Then the client connects again, names the last event that it received, and receives the later ones (MCP
2025-11-25, "Resumability and Redelivery"). Events of streams that belong to no call are not stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, field
from sys import getsizeof
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import anyio

from bridge.protocol.replay import NOT_STORED, event_id_of, order_of, outcome_unknown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bridge.protocol.replay import StreamPosition

MAX_EVENTS = 1_000
"""Maximum number of stored events of a call; older ones are dropped."""
BYTES_OF_A_STREAM = 1024
"""Memory that a call with stored events takes, apart from its events and id."""
BYTES_OF_AN_EVENT = 256
"""Memory that a stored event takes, apart from its text."""
MAX_NOTIFICATION_BYTES = 1024 * 1024
"""Maximum memory of the stored events of a call; over it, notifications are not stored."""
MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Maximum memory of the stored events of a session; over it, the oldest calls with a response are dropped."""
MAX_BYTES = 256 * 1024 * 1024
"""Maximum memory of the stored events of a process; over it, calls of the largest sessions are dropped."""
MAX_STREAMS = 64
"""Maximum number of resumed streams of a session."""
DELIVERED_SECONDS = 60.0
"""Minimum seconds for which a process without replicas keeps a response that was sent, within the limits."""
UNDELIVERED_SECONDS = 600.0
"""The same for a response whose client has disconnected before."""
CHECK_INTERVAL_SECONDS = 15.0
KEEP_ALIVE_SECONDS = 15.0
"""Seconds without an event after which a resumed stream in memory is due a keep-alive comment."""


@dataclass(slots=True)
class StoredStream:
    """State of the stored events of one call."""

    size: int
    """Memory that it takes, in bytes."""
    entry: str = "0-0"
    """The latest event."""
    at: float = 0.0
    is_answered: bool = False
    is_delivered: bool = False
    """True once its response was sent."""


class EventBytes:
    """Memory of the stored events of one process, and the sessions that have some."""

    def __init__(self) -> None:
        self.total = 0
        self._sessions: set[SessionEvents] = set()

    def add(self, session: SessionEvents, size: int) -> None:
        """Add to the memory, after a session has added to its own; may be negative."""
        self.total += size
        (self._sessions.add if session.size else self._sessions.discard)(session)

    async def drop_oldest(self, session: SessionEvents, stream_id: str) -> None:
        """Drop calls over the limit, those of the largest sessions first, but not the given call of a session."""
        for each in sorted(self._sessions, key=lambda each: each.size, reverse=True):
            while self.total > MAX_BYTES and await each.drop_oldest(but=stream_id if each is session else ""):
                pass
            if self.total <= MAX_BYTES:
                return

    async def drop_expired(self) -> None:
        """Drop expired events; runs until cancelled."""
        while True:
            await anyio.sleep(CHECK_INTERVAL_SECONDS)
            for session in tuple(self._sessions):
                await session.drop_expired()
                await anyio.lowlevel.checkpoint()


class SessionEvents(ABC):
    """Events of the calls of one session, with bounds.

    Args:
        all_bytes: Memory of the events of all sessions.
        seconds: Seconds after which the events of a call without new ones are dropped.
    """

    def __init__(self, all_bytes: EventBytes, seconds: float = math.inf) -> None:
        self._all_bytes = all_bytes
        self._seconds = seconds
        self._stored: dict[str, StoredStream] = {}
        """By the requests' ids, the most recently changed one last."""
        self.size = 0
        """Memory of the stored events, in bytes."""
        self._most_stored = 0
        """Number of calls that there was room for when their table was made."""
        self._is_closed = False

    @abstractmethod
    async def store(
        self, stream_id: str, message: bytes | None, *, is_answer: bool = False, is_notification: bool = False
    ) -> str:
        """Store an event of a call, or nothing if the store cannot take it; return its id, which `position_of` parses.

        Args:
            stream_id: The id of the request, as text.
            message: None for the event without a message that a stream begins with.
            is_answer: True for the response, the last event of a stream.
            is_notification: True for a notification, which is not stored over `MAX_NOTIFICATION_BYTES` of the call.
        """

    @abstractmethod
    def follow(self, position: StreamPosition) -> AsyncGenerator[tuple[str, bytes] | None, None]:
        """Replay the events of a call after a position, then follow new ones until its response, or `close_streams`.

        A response counts as sent when the next event is asked for.

        Yields:
            The id and message of each event, without an id if that event is not stored; None periodically, for a
            keep-alive comment.
        """

    def latest_of_full(self, stream_id: str) -> str | None:
        """Return the latest event of a call whose notifications are no longer stored; None for other calls."""
        stored = self._stored.get(stream_id)
        return None if stored is None or stored.size <= MAX_NOTIFICATION_BYTES else stored.entry

    async def note(self, stream_id: str, entry: str, length: int, *, is_answer: bool) -> None:
        """Count an event that was stored, and drop events of other calls over the limits."""
        if self._is_closed:
            return
        size, stored = length + BYTES_OF_AN_EVENT, self._stored.pop(stream_id, None)
        if stored is None:
            size += BYTES_OF_A_STREAM + 2 * getsizeof(stream_id)  # two keys, which may be two objects
            stored = StoredStream(0)
        stored.entry, stored.at, stored.is_answered = entry, monotonic(), is_answer
        stored.size += size
        self._stored[stream_id] = stored
        self._most_stored = max(self._most_stored, len(self._stored))
        self._count(size)
        while self.size > MAX_SESSION_BYTES and await self.drop_oldest(but=stream_id):
            pass
        if self._all_bytes.total > MAX_BYTES:
            await self._all_bytes.drop_oldest(self, stream_id)

    def _count(self, size: int) -> None:
        self.size += size
        self._all_bytes.add(self, size)

    def _is_expired(self, stored: StoredStream) -> bool:
        """True if the events of a call are no longer kept."""
        return stored.at < monotonic() - self._seconds

    async def drop_expired(self) -> bool:
        """Drop the events of expired calls; return False if there is none."""
        dropped = [each for each, stored in self._stored.items() if self._is_expired(stored)]
        await self.drop(dropped)
        return bool(dropped)

    async def drop_oldest(self, *, but: str = "") -> bool:
        """Drop the events of expired calls, else of the oldest call with a response; return False if there is none."""
        if await self.drop_expired():
            return True
        answered = (each for each, stored in self._stored.items() if stored.is_answered and each != but)
        oldest = next(answered, None)
        await self.drop([] if oldest is None else [oldest])
        return oldest is not None

    async def drop_all(self) -> None:
        """Drop all events, because the session has ended."""
        await self.drop(list(self._stored))

    async def drop(self, stream_ids: list[str]) -> None:
        """Drop the events of calls."""
        if stream_ids:
            self._count(-sum(self._stored.pop(each).size for each in stream_ids))
            await self._drop(stream_ids)
            if len(self._stored) <= self._most_stored // 2:
                self._shrink()

    def _shrink(self) -> None:
        """Free the room of dropped calls, which dictionaries keep."""
        self._stored = dict(self._stored)
        self._most_stored = len(self._stored)

    @abstractmethod
    async def _drop(self, stream_ids: list[str]) -> None: ...

    @abstractmethod
    async def close_streams(self, stream_id: str) -> None:
        """Close the resumed streams of a call."""

    @abstractmethod
    async def delivered(self, stream_id: str) -> None:
        """Note that the stream of a request was sent to its end."""

    def close(self) -> None:
        """Stop counting the events, because the session has ended here."""
        self._is_closed = True
        self._count(-self.size)
        self._stored.clear()

    @abstractmethod
    def forget(self) -> None:
        """Close the store of a session that is forgotten, unless another replica may go on with it."""


class _Event(NamedTuple):
    """A stored event."""

    number: int
    message: bytes
    is_answer: bool


@dataclass(slots=True, eq=False)
class _Followed:
    """Stored events of one call, for those who follow it."""

    events: list[_Event] = field(default_factory=list)
    changed: anyio.Event | None = None
    """Set when there are further events; None while nobody follows."""
    closed_at: int = 0
    """The session's latest event when the streams were closed."""
    is_dropped: bool = False

    def after(self, number: int) -> list[_Event]:
        """Return the events after one."""
        return self.events[bisect_right(self.events, number, key=lambda event: event.number) :]

    def notify(self) -> None:
        changed, self.changed = self.changed, None
        if changed is not None:
            changed.set()

    def change(self) -> anyio.Event:
        """Return the event that is set at the next change."""
        if self.changed is None:
            self.changed = anyio.Event()
        return self.changed


class MemoryEvents(SessionEvents):
    """Events of one session in memory. Those of a call are dropped some time after its response."""

    def __init__(self, all_bytes: EventBytes) -> None:
        super().__init__(all_bytes)
        self._number = 0
        self._followed: dict[str, _Followed] = {}

    async def store(
        self, stream_id: str, message: bytes | None, *, is_answer: bool = False, is_notification: bool = False
    ) -> str:
        """Store an event, unless the session has just ended; return its id."""
        if self._is_closed:
            return event_id_of("0-0", stream_id)
        if is_notification and (latest := self.latest_of_full(stream_id)) is not None:
            return event_id_of(latest, stream_id)
        if message is None and stream_id in self._stored:  # an earlier call with this id, whose client did not resume
            await self.drop([stream_id])
        self._number += 1
        entry = f"0-{self._number}"
        if (followed := self._followed.get(stream_id)) is None:
            followed = self._followed[stream_id] = _Followed()
        if message is not None:
            followed.events.append(_Event(self._number, message, is_answer))
            if len(followed.events) > MAX_EVENTS:
                del followed.events[0]
        followed.notify()
        await self.note(stream_id, entry, len(message or b""), is_answer=is_answer)
        return event_id_of(entry, stream_id)

    async def follow(self, position: StreamPosition) -> AsyncGenerator[tuple[str, bytes] | None, None]:
        """Replay the events of a call after a position, then follow new ones until its response."""
        stream = position.stream
        _, seen = order_of(position.entry)
        follows_from = self._number
        followed = self._followed.get(stream)
        while followed is not None:
            changed = followed.change()
            for event in followed.after(seen):
                seen = event.number
                yield event_id_of(f"0-{seen}", stream), event.message
                if event.is_answer:
                    await self.delivered(stream)
                    return
            if followed.is_dropped:
                break
            stored = self._stored.get(stream)
            is_over = stored is None or stored.is_answered
            if followed.closed_at > follows_from or (is_over and not changed.is_set()):
                return
            with anyio.move_on_after(KEEP_ALIVE_SECONDS):
                await changed.wait()
            if not changed.is_set():
                yield None
        if not self._is_closed:
            yield "", outcome_unknown(stream, NOT_STORED)

    async def close_streams(self, stream_id: str) -> None:
        """Close the resumed streams of a call."""
        if (followed := self._followed.get(stream_id)) is not None:
            self._number += 1
            followed.closed_at = self._number
            followed.notify()

    async def delivered(self, stream_id: str) -> None:
        """Drop the events of a call later, because its response was sent: its client may not have received it."""
        stored = self._stored.get(stream_id)
        if stored is not None and stored.is_answered and not stored.is_delivered:
            stored.is_delivered, stored.at = True, monotonic()

    def _is_expired(self, stored: StoredStream) -> bool:
        seconds = DELIVERED_SECONDS if stored.is_delivered else UNDELIVERED_SECONDS
        return stored.is_answered and stored.at < monotonic() - seconds

    async def _drop(self, stream_ids: list[str]) -> None:
        for each in stream_ids:
            followed = self._followed.pop(each)
            followed.is_dropped = True
            followed.notify()

    def _shrink(self) -> None:
        super()._shrink()
        self._followed = dict(self._followed)

    def forget(self) -> None:
        """Drop all events, because the session has ended, and end the streams that follow them."""
        self.close()
        for followed in self._followed.values():
            followed.is_dropped = True
            followed.notify()
        self._followed.clear()
