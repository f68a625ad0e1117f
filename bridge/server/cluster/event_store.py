"""Event store: events of calls of the handshake era in Redis, so that a client can resume a lost stream on any replica.

Events are stored by session and request id. The stream of a call ends with its response. Events of other streams are
not stored: they can only be notifications of changed tools.

While Redis is unavailable, nothing is stored, and calls do not wait for it. When it is available again, the replica
stores which calls still run, and the responses of calls that have ended meanwhile.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from mcp.server.streamable_http import GET_STREAM_KEY, EventStore
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse
from pydantic_core import from_json
from starlette.responses import StreamingResponse

from bridge.server.protocol import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage

    from bridge.server.cluster.replica import Replica

MAX_EVENTS = 1_000
"""Maximum number of stored events of a call; older ones are dropped."""
MAX_NOTIFICATION_BYTES = 1024 * 1024
"""Maximum length of the stored events of a call; over it, notifications are not stored."""
MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Maximum length of the stored events of a session; over it, the oldest calls with a response are dropped."""
MAX_BYTES = 256 * 1024 * 1024
"""Maximum length of the stored events of a replica; over it, calls of the largest session are dropped."""

_READ_MILLISECONDS = 500
_READ_EVENTS = 16
_EVENT_ID = re.compile(r"(?P<milliseconds>[0-9]{1,20})-(?P<number>[0-9]{1,20})/(?P<stream>.+)")

_MAX_ENTRY_NUMBER = 2**64 - 1
"""Largest number in the id of an entry; Redis refuses commands with larger ones."""
_MAX_UNSTORED_RESPONSES = 100
"""Maximum number of responses of a session that wait for Redis to be available again."""

_ENDED = "the replica that ran this call has ended: its outcome is unknown, and it was not run again"
_NOT_STORED = "the events of this call are no longer stored: its outcome is unknown, and it was not run again"


class StreamPosition(NamedTuple):
    """Position of a client in the stream of a call."""

    entry: str
    """The last event that the client received."""
    stream: str
    """The id of the request, as text."""


@dataclass(slots=True)
class StoredStream:
    """State of the stored events of one call of this replica."""

    length: int = 0
    entry: str = "0-0"
    """The latest event."""
    at: float = 0.0
    is_answered: bool = False


class EventBytes:
    """Length of the stored events of one replica, and the sessions that have some."""

    def __init__(self) -> None:
        self.total = 0
        self._sessions: set[SessionEvents] = set()

    def add(self, session: SessionEvents, length: int) -> None:
        """Add to the length, after a session has added to its own; may be negative."""
        self.total += length
        (self._sessions.add if session.length else self._sessions.discard)(session)

    def fullest(self) -> SessionEvents:
        """Return the session with the longest events."""
        return max(self._sessions, key=lambda each: each.length)


class SessionEvents(EventStore):
    """The SDK's `EventStore` of one session. Methods but `store_event` raise RedisError if Redis does not answer."""

    def __init__(self, replica: Replica, session_id: str, seconds: int, all_bytes: EventBytes) -> None:
        self._all_bytes = all_bytes
        self._stored: dict[str, StoredStream] = {}
        """By the requests' ids, the most recently changed one last."""
        self.length = 0
        """Length of the stored events."""
        self._is_closed = False
        self._replica = replica
        self._session_id = session_id
        self._seconds = seconds
        self._unstored: dict[str, str] = {}
        """Events to store when Redis is available again, by stream: a response, or empty for a call that runs."""

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event, unless Redis is unavailable; return its id, which `position_of` parses."""
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        entry = "0-0"
        if stream_id != GET_STREAM_KEY:
            is_answer = isinstance(message, JSONRPCResponse | JSONRPCError)
            stored = self._stored.get(stream_id)
            is_notification = isinstance(message, JSONRPCNotification)
            if is_notification and stored is not None and stored.length > MAX_NOTIFICATION_BYTES:
                return f"{stored.entry}/{quote(stream_id, safe='')}"
            if not is_answer:
                self._unstored[stream_id] = ""
            try:
                with self._replica.bounded_wait():
                    entry = await self._add(stream_id, text)
                    await self._note(stream_id, entry, len(text), is_answer=is_answer)
                if is_answer:
                    self._unstored.pop(stream_id, None)
            except self._replica.failures as error:
                if is_answer:
                    waiting = sum(1 for each in self._unstored.values() if each)
                    is_full = waiting >= _MAX_UNSTORED_RESPONSES
                    self._unstored[stream_id] = _outcome_unknown(stream_id, _NOT_STORED) if is_full else text
                self._replica.failed(error)
        return f"{entry}/{quote(stream_id, safe='')}"

    async def _note(self, stream_id: str, entry: str, length: int, *, is_answer: bool) -> None:
        if self._is_closed:
            return
        stored = self._stored.pop(stream_id, None) or StoredStream()
        stored.entry, stored.at, stored.is_answered = entry, monotonic(), is_answer
        stored.length += length
        self._stored[stream_id] = stored
        self._count(length)
        while self.length > MAX_SESSION_BYTES and await self.drop_oldest(but=stream_id):
            pass
        while self._all_bytes.total > MAX_BYTES and await self._all_bytes.fullest().drop_oldest(but=stream_id):
            pass

    def _count(self, length: int) -> None:
        self.length += length
        self._all_bytes.add(self, length)

    async def drop_oldest(self, *, but: str = "") -> bool:
        """Drop the events of expired calls, else of the oldest call with a response; return False if there is none."""
        latest = monotonic() - self._seconds
        dropped = [each for each, stored in self._stored.items() if stored.at < latest]
        answered = (each for each, stored in self._stored.items() if stored.is_answered and each != but)
        dropped = dropped or [each for each in (next(answered, None),) if each is not None]
        await self._drop(dropped)
        return bool(dropped)

    async def drop_all(self) -> None:
        """Drop all events, because the session has ended."""
        await self._drop(list(self._stored))

    def close(self) -> None:
        """Stop counting the events, because the session has ended here; they expire in Redis."""
        self._is_closed = True
        self._count(-self.length)
        self._stored.clear()

    async def _drop(self, stream_ids: list[str]) -> None:
        if stream_ids:
            self._count(-sum(self._stored.pop(each).length for each in stream_ids))
            await self._replica.redis.delete(*map(self._key, stream_ids))

    async def store_unstored(self) -> None:
        """Store the events that could not be stored while Redis was unavailable."""
        for stream_id, text in tuple(self._unstored.items()):
            with suppress(self._replica.refusals):
                await self._add(stream_id, text)
                if text and self._unstored.get(stream_id) == text:
                    del self._unstored[stream_id]

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replay nothing: `follow` replays events, on any replica."""
        del last_event_id, send_callback
        return None

    async def follow(self, position: StreamPosition) -> AsyncIterator[tuple[str, str] | None]:
        """Replay the events of a call after a position, then follow new ones until its response.

        Yields:
            The id and text of each event; None periodically, for a keep-alive comment.
        """
        redis: Any = self._replica.redis
        key = self._key(position.stream)
        last, owner, text = await self._find(position)
        while not _is_answer(text):
            found: Any = await redis.xread({key: last}, count=_READ_EVENTS, block=_READ_MILLISECONDS)
            entries = found[0][1] if found else []
            if not entries:
                yield None
                if problem := await self._problem(owner):
                    await self._add(position.stream, _outcome_unknown(position.stream, problem))
            for last, fields in entries:
                owner, text = fields["replica"], fields["text"]
                if text:
                    yield f"{last}/{quote(position.stream, safe='')}", text
                if _is_answer(text):
                    break

    def resume(self, position: StreamPosition) -> StreamingResponse:
        """Return a response that resumes the stream of a call."""

        async def lines() -> AsyncIterator[str]:
            with self._replica.noting_failures():  # after one, the client resumes again
                async for event in self.follow(position):
                    yield ": \n\n" if event is None else f"id: {event[0]}\nevent: message\ndata: {event[1]}\n\n"

        # The same headers as on the original stream; without X-Accel-Buffering, nginx would delay events.
        headers = {
            "cache-control": "no-cache, no-transform",
            "mcp-session-id": self._session_id,
            "x-accel-buffering": "no",
        }
        return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)

    async def _problem(self, owner: str | None) -> str | None:
        """Return the reason why a call of a replica will have no further events; None if it may have some."""
        if owner is None:
            return _NOT_STORED if self._replica.is_sure else None
        return _ENDED if await self._replica.has_ended(owner) else None

    async def _find(self, position: StreamPosition) -> tuple[str, str | None, str]:
        """Return the entry after which to replay, the replica that runs the call, and the text of that entry.

        If the entry is no longer stored, all stored events are replayed. If none are stored, the replica is None.
        """
        redis: Any = self._replica.redis
        key = self._key(position.stream)
        if found := await redis.xrange(key, position.entry, position.entry):
            return position.entry, found[0][1]["replica"], found[0][1]["text"]
        latest = await redis.xrevrange(key, count=1)
        return "0-0", (latest[0][1]["replica"] if latest else None), ""

    async def _add(self, stream_id: str, text: str) -> str:
        key = self._key(stream_id)
        async with self._replica.redis.pipeline(transaction=False) as pipeline:
            pipeline.xadd(key, {"text": text, "replica": self._replica.id}, maxlen=MAX_EVENTS, approximate=True)
            pipeline.expire(key, self._seconds)
            entry, _ = await pipeline.execute()
        return str(entry)

    def _key(self, stream_id: str) -> str:
        return self._replica.key("events", self._session_id, stream_id)


def position_of(event_id: str) -> StreamPosition | None:
    """Parse the id of an event; None if it is malformed, or belongs to no call."""
    found = _EVENT_ID.fullmatch(event_id)
    if found is None or max(int(found["milliseconds"]), int(found["number"])) > _MAX_ENTRY_NUMBER:
        return None
    stream = unquote(found["stream"])
    return None if stream == GET_STREAM_KEY else StreamPosition(f"{found['milliseconds']}-{found['number']}", stream)


def _is_answer(text: str) -> bool:
    """True for a response, the last event of a stream."""
    return text != "" and "method" not in from_json(text)


def _outcome_unknown(stream_id: str, why: str) -> str:
    # The SDK turns ids into text: a text that could be a number was one.
    request: Any = int(stream_id) if re.fullmatch(r"0|-?[1-9]\d{0,17}", stream_id) else stream_id
    error = {"code": INTERNAL_ERROR, "message": why}
    return json.dumps({"jsonrpc": "2.0", "id": request, "error": error})
