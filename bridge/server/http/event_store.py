"""Event stores of sessions of the handshake era, so that clients can resume the stream of a call that still runs.

Events are stored by session and request id. A stream ends with its response, but its server or a broken connection may
end it before. Then the client connects again, names the last event that it received, and receives the later ones (MCP
2025-11-25, "Resumability and Redelivery"). Events of streams that belong to no call are not stored.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from sys import getsizeof
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

import anyio
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage, EventStore
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse, jsonrpc_message_adapter

from bridge.protocol.versions import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage

    from bridge.types import Json

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
"""Maximum memory of the stored events of a process; over it, calls of the largest session are dropped."""
MAX_STREAMS = 64
"""Maximum number of resumed streams of a session."""
DELIVERED_SECONDS = 60.0
"""Minimum seconds for which a process without replicas keeps a response that was sent, within the limits."""
UNDELIVERED_SECONDS = 600.0
"""The same for a response whose client has disconnected before."""
CHECK_INTERVAL_SECONDS = 15.0
RETRY_MILLISECONDS = 1_000
"""Time after which a client connects again when its stream was closed."""
NOT_STORED = "the events of this call are no longer stored: its outcome is unknown, and it was not run again"

_EVENT_ID = re.compile(r"(?P<milliseconds>[0-9]{1,20})-(?P<number>[0-9]{1,20})/(?P<stream>.+)")
_MAX_ENTRY_NUMBER = 2**64 - 1
"""Largest number in the id of an entry; Redis refuses commands with larger ones."""


class StreamPosition(NamedTuple):
    """Position of a client in the stream of a call."""

    entry: str
    """The last event that the client received."""
    stream: str
    """The id of the request, as text."""


def position_of(event_id: str) -> StreamPosition | None:
    """Parse the id of an event; None if it is malformed, or belongs to no call."""
    found = _EVENT_ID.fullmatch(event_id)
    if found is None or max(int(found["milliseconds"]), int(found["number"])) > _MAX_ENTRY_NUMBER:
        return None
    stream = unquote(found["stream"])
    return None if stream == GET_STREAM_KEY else StreamPosition(f"{found['milliseconds']}-{found['number']}", stream)


def event_id_of(entry: str, stream_id: str) -> str:
    """Return the id of an event, which `position_of` parses."""
    return f"{entry}/{quote(stream_id, safe='')}"


def outcome_unknown(stream_id: str, why: str) -> Json:
    """Return the JSON-RPC error that ends the stream of a call whose events are lost."""
    # The SDK turns ids into text: a text that could be a number was one.
    request: Any = int(stream_id) if re.fullmatch(r"0|-?[1-9]\d{0,17}", stream_id) else stream_id
    return {"jsonrpc": "2.0", "id": request, "error": {"code": INTERNAL_ERROR, "message": why}}


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

    def fullest(self) -> SessionEvents:
        """Return the session whose events take most memory."""
        return max(self._sessions, key=lambda each: each.size)

    async def drop_expired(self) -> None:
        """Drop expired events; runs until cancelled."""
        while True:
            await anyio.sleep(CHECK_INTERVAL_SECONDS)
            for session in tuple(self._sessions):
                await session.drop_expired()
                await anyio.lowlevel.checkpoint()


class SessionEvents(EventStore):
    """The SDK's `EventStore` of one session, with bounds.

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
        self.on_response: Callable[[str], object] | None = None
        """Called with the id of a request when its response has reached the store."""
        self._is_closed = False

    def latest_of_full(self, stream_id: str) -> str | None:
        """Return the latest event of a call whose notifications are no longer stored; None for other calls."""
        stored = self._stored.get(stream_id)
        return None if stored is None or stored.size <= MAX_NOTIFICATION_BYTES else stored.entry

    def receive(self, stream_id: str, message: JSONRPCMessage | None) -> None:
        """Note that an event is about to be stored, which its handler has written."""
        if is_response(message) and self.on_response is not None:
            self.on_response(stream_id)

    async def note(self, stream_id: str, entry: str, length: int, *, is_answer: bool) -> None:
        """Count an event that was stored, and drop events of other calls over the limits."""
        if self._is_closed:
            return
        size, stored = length + BYTES_OF_AN_EVENT, self._stored.pop(stream_id, None)
        if stored is None:
            size += BYTES_OF_A_STREAM + getsizeof(stream_id)
            stored = StoredStream(0)
        stored.entry, stored.at, stored.is_answered = entry, monotonic(), is_answer
        stored.size += size
        self._stored[stream_id] = stored
        self._count(size)
        while self.size > MAX_SESSION_BYTES and await self.drop_oldest(but=stream_id):
            pass
        while self._all_bytes.total > MAX_BYTES and await self._all_bytes.fullest().drop_oldest(but=stream_id):
            pass

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

    async def _drop(self, stream_ids: list[str]) -> None:
        raise NotImplementedError

    async def close_streams(self, stream_id: str) -> None:
        """Close the resumed streams of a call."""
        raise NotImplementedError

    async def delivered(self, stream_id: str) -> None:
        """Note that the stream of a request was sent to its end; by default, its events are kept."""

    def close(self) -> None:
        """Stop counting the events, because the session has ended here."""
        self._is_closed, self.on_response = True, None
        self._count(-self.size)
        self._stored.clear()

    def forget(self) -> None:
        """Close the store of a session that is forgotten, unless another replica may go on with it."""


@dataclass(slots=True, eq=False)
class _Followed:
    """Stored events of one call, for those who follow it."""

    events: list[tuple[int, bytes]] = field(default_factory=list)
    """Number and text of each event: the objects that the text is parsed to may take many times its memory."""
    changed: anyio.Event | None = None
    """Set when there are further events; None while nobody follows."""
    closed_at: int = 0
    """The session's latest event when the streams were closed."""
    is_dropped: bool = False

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

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event; return its id."""
        self.receive(stream_id, message)
        if stream_id == GET_STREAM_KEY or self._is_closed:
            return event_id_of("0-0", stream_id)
        if isinstance(message, JSONRPCNotification) and (latest := self.latest_of_full(stream_id)) is not None:
            return event_id_of(latest, stream_id)
        if message is None and stream_id in self._stored:  # an earlier call with this id, whose client did not resume
            await self.drop([stream_id])
        self._number += 1
        number, entry = self._number, f"0-{self._number}"
        event_id = event_id_of(entry, stream_id)
        if (followed := self._followed.get(stream_id)) is None:
            followed = self._followed[stream_id] = _Followed()
        length = 0
        if message is not None:
            text = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            followed.events.append((number, text))
            length = len(text)
            if len(followed.events) > MAX_EVENTS:
                del followed.events[0]
        followed.notify()
        await self.note(stream_id, entry, length, is_answer=is_response(message))
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replay the events of a call after one, then follow new ones until the response, or until they are closed.

        Returns:
            None: the SDK has nothing to add to the stream.
        """
        position = position_of(last_event_id)
        if position is None:
            return None
        seen, follows_from = int(position.entry.partition("-")[2]), self._number
        followed = self._followed.get(position.stream)
        while followed is not None:
            changed = followed.change()
            for number, text in [each for each in followed.events if each[0] > seen]:
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
                await send_callback(EventMessage(message, event_id_of(f"0-{number}", position.stream)))
                seen = number
                if is_response(message):
                    await self.delivered(position.stream)
                    return None
            if followed.is_dropped:
                break
            stored = self._stored.get(position.stream)
            is_over = stored is None or stored.is_answered
            if followed.closed_at > follows_from or (is_over and not changed.is_set()):
                return None
            await changed.wait()
        if not self._is_closed:
            error = JSONRPCError.model_validate(outcome_unknown(position.stream, NOT_STORED), by_name=False)
            await send_callback(EventMessage(error))
        return None

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

    def forget(self) -> None:
        """Drop all events, because the session has ended, and end the streams that follow them."""
        self.close()
        for followed in self._followed.values():
            followed.is_dropped = True
            followed.notify()
        self._followed.clear()


class CurrentEvents(EventStore):
    """Passes events to the store of the current session: to its manager of sessions, the SDK does not name it."""

    _current: ContextVar[MemoryEvents | None] = ContextVar("bridge.events", default=None)

    @contextmanager
    def of(self, events: SessionEvents | None) -> Iterator[None]:
        """Context in which requests of a session are answered; tasks that are started in it keep the store."""
        token = self._current.set(events if isinstance(events, MemoryEvents) else None)
        try:
            yield
        finally:
            self._current.reset(token)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event, unless the session has just ended; return its id."""
        events = self._current.get()
        return event_id_of("0-0", stream_id) if events is None else await events.store_event(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replay the events of a call after one, and follow new ones."""
        events = self._current.get()
        return None if events is None else await events.replay_events_after(last_event_id, send_callback)


def is_response(message: JSONRPCMessage | None) -> bool:
    """True for the last event of a stream."""
    return isinstance(message, JSONRPCResponse | JSONRPCError)
