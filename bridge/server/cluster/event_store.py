"""Stored events of calls; resumption; routing to a replica.

Events: what a call of the handshake era has said, kept for a client that lost its stream.

They are kept by session and stream: the SDK's `EventStore` is told the bare id of a request, which is another client's
as well. The stream of a call ends with its answer. What is said on no call's stream is not kept: that the tools have
changed is all that it can be, and a client that resumes that stream may list them.

While Redis is gone nothing is kept, and nobody waits for that. When it is back it is told which calls run here, as it
may have forgotten them, and how those were answered that have ended meanwhile.

The SDK's dispatcher, whose questions to the client say which replica waits for the answer.

Ways: to which replica a message of a client goes, and how a stream is read on in any of them.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from mcp.server.streamable_http import GET_STREAM_KEY, EventStore
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse
from pydantic_core import from_json

from bridge.server.protocol import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp.server.streamable_http import EventCallback
    from mcp.shared.dispatcher import CallOptions
    from mcp_types import JSONRPCMessage

    from bridge.server.cluster.replica import Replica

MAX_EVENTS = 1_000
"""How many events of a call are kept, the latest."""

MAX_NOTIFICATION_BYTES = 1024 * 1024
"""Maximum length of the events of a call that are kept; over it what it reports is not kept, only what it asks and
answers."""

MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Maximum length of the events that a session keeps; over it calls that are answered are dropped, the oldest first."""

MAX_BYTES = 256 * 1024 * 1024
"""The same of all sessions of a replica; over it the session that has most drops some."""

_LOOK_EVERY_MILLISECONDS = 500

_EVENTS_AT_ONCE = 16

_EVENT_ID = re.compile(r"(?P<milliseconds>[0-9]{1,20})-(?P<number>[0-9]{1,20})/(?P<stream>.+)")

_MOST_IN_ENTRY = 2**64 - 1
"""The largest number that the id of an entry has in Redis, which refuses the command for a larger one."""

_MAX_UNKEPT_ANSWERS = 100
"""How many answers of a session wait for a Redis that is gone."""

_ENDED = "the replica that ran this call has ended: its outcome is unknown, and it was not run again"

_NOT_KEPT = "what this call said is not kept any more: its outcome is unknown, and it was not run again"

_SIGN = "/"


class StreamPosition(NamedTuple):
    """Where a client was in the stream of a call."""

    entry: str
    """The last event that it has."""
    stream: str
    """The id of the request, as text."""


class KeptStream:
    """What Redis keeps of one call, as far as it came from here."""

    __slots__ = ("at", "entry", "is_answered", "length")

    def __init__(self) -> None:
        self.length = 0
        self.entry = "0-0"
        """The latest event."""
        self.at = 0.0
        self.is_answered = False


class EventBytes:
    """What the sessions of one replica keep in Redis together."""

    def __init__(self) -> None:
        self.total = 0
        self._sessions: dict[SessionEvents, int] = {}

    def add(self, session: SessionEvents, length: int) -> None:
        """Count more of a session, or less."""
        self.total += length
        self._sessions[session] = self._sessions.get(session, 0) + length
        if not self._sessions[session]:
            del self._sessions[session]

    def fullest(self) -> SessionEvents:
        """The session that has most."""
        return max(self._sessions, key=self._sessions.__getitem__)


class SessionEvents(EventStore):
    """The events of one session.

    Args:
        link: The way to Redis.
        session_id: Whose they are.
        seconds: How long the events of a call are kept after the latest of them.
        of_all: What all sessions keep.
    """

    def __init__(self, link: Replica, session_id: str, seconds: int, of_all: EventBytes) -> None:
        self._of_all = of_all
        self._kept: dict[str, KeptStream] = {}
        """By the requests' ids; the one that changed last is the last."""
        self.length = 0
        """Length of what is kept."""
        self._is_closed = False
        self._link = link
        self._session_id = session_id
        self._seconds = seconds
        self._unkept: dict[str, str] = {}
        """What Redis is told of each stream when it is back: the answer, or nothing but that the call runs here."""

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event; the id is a `StreamPosition`, as `position_of` reads it.

        Where Redis does not answer, it is not kept.
        """
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        entry = "0-0"
        if stream_id != GET_STREAM_KEY:
            is_answer = isinstance(message, JSONRPCResponse | JSONRPCError)
            kept = self._kept.get(stream_id)
            if kept is not None and kept.length > MAX_NOTIFICATION_BYTES and isinstance(message, JSONRPCNotification):
                return f"{kept.entry}/{quote(stream_id, safe='')}"
            if not is_answer:
                self._unkept[stream_id] = ""
            try:
                with self._link.soon():
                    entry = await self._add(stream_id, text)
                    await self._note(stream_id, entry, len(text), is_answer=is_answer)
                if is_answer:
                    self._unkept.pop(stream_id, None)
            except self._link.failures as error:
                if is_answer:
                    self._unkept[stream_id] = self._answer_to_keep(stream_id, text)
                self._link.failed(error)
        return f"{entry}/{quote(stream_id, safe='')}"

    async def _note(self, stream_id: str, entry: str, length: int, *, is_answer: bool) -> None:
        if self._is_closed:
            return
        kept = self._kept.pop(stream_id, None) or KeptStream()
        kept.entry, kept.at, kept.is_answered = entry, monotonic(), is_answer
        kept.length += length
        self._kept[stream_id] = kept
        self._count(length)
        while self.length > MAX_SESSION_BYTES and await self.drop_oldest(but=stream_id):
            pass
        while self._of_all.total > MAX_BYTES and await self._of_all.fullest().drop_oldest(but=stream_id):
            pass

    def _count(self, length: int) -> None:
        self.length += length
        self._of_all.add(self, length)

    async def drop_oldest(self, *, but: str = "") -> bool:
        """Drop what is kept of the answered call that said something longest ago, and of those that Redis has dropped.

        Args:
            but: The request whose call is not dropped.

        Returns:
            Whether there was one.

        Raises:
            RedisError: Redis does not answer.
        """
        latest = monotonic() - self._seconds
        dropped = [each for each, kept in self._kept.items() if kept.at < latest]
        answered = (each for each, kept in self._kept.items() if kept.is_answered and each != but)
        dropped = dropped or [each for each in (next(answered, None),) if each is not None]
        await self._drop(dropped)
        return bool(dropped)

    async def drop_all(self) -> None:
        """Drop all that is kept: the session has ended.

        Raises:
            RedisError: Redis does not answer.
        """
        await self._drop(list(self._kept))

    def close(self) -> None:
        """Count no more: the session has ended here, and what Redis keeps of it expires."""
        self._is_closed = True
        self._count(-self.length)
        self._kept.clear()

    async def _drop(self, stream_ids: list[str]) -> None:
        if stream_ids:
            self._count(-sum(self._kept.pop(each).length for each in stream_ids))
            await self._link.redis.delete(*map(self._key, stream_ids))

    async def keep_unkept(self) -> None:
        """Tell a Redis that is back what it may not know.

        Raises:
            RedisError: Redis does not answer.
        """
        for stream_id, text in tuple(self._unkept.items()):
            with suppress(self._link.refusals):
                await self._add(stream_id, text)
                if text and self._unkept.get(stream_id) == text:
                    del self._unkept[stream_id]

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replay nothing: `follow` does, on any replica, and knows when a stream has ended."""
        del last_event_id, send_callback
        return None

    async def follow(self, place: StreamPosition) -> AsyncIterator[tuple[str, str] | None]:
        """What a call has said since, and what it goes on to say until it is answered.

        Yields:
            Each event's id and text; None now and then, where there is nothing to say yet.

        Raises:
            RedisError: Redis does not answer.
        """
        redis: Any = self._link.redis
        key = self._key(place.stream)
        last, replica, text = await self._known_of(place)
        while not _is_answer(text):
            found: Any = await redis.xread({key: last}, count=_EVENTS_AT_ONCE, block=_LOOK_EVERY_MILLISECONDS)
            entries = found[0][1] if found else []
            if not entries:
                yield None
                if verdict := await self._verdict(replica):
                    await self._add(place.stream, _outcome_unknown(place.stream, verdict))
            for last, fields in entries:
                replica, text = fields["replica"], fields["text"]
                if text:
                    yield f"{last}/{quote(place.stream, safe='')}", text
                if _is_answer(text):
                    break

    async def _verdict(self, replica: str | None) -> str | None:
        """Why nothing more can come of a call that this replica runs, or that none is known to run; None where it may.

        Raises:
            RedisError: Redis does not answer.
        """
        if replica is None:
            return _NOT_KEPT if self._link.is_sure else None
        return _ENDED if await self._link.has_ended(replica) else None

    def _answer_to_keep(self, stream_id: str, text: str) -> str:
        waiting = sum(1 for each in self._unkept.values() if each)
        return text if waiting < _MAX_UNKEPT_ANSWERS else _outcome_unknown(stream_id, _NOT_KEPT)

    async def _known_of(self, place: StreamPosition) -> tuple[str, str | None, str]:
        """From where on events are news, which replica runs the call, and what the event at the place says.

        Where that event is not kept any more, all that is kept is news; where nothing is, no replica is known.
        """
        redis: Any = self._link.redis
        key = self._key(place.stream)
        if found := await redis.xrange(key, place.entry, place.entry):
            return place.entry, found[0][1]["replica"], found[0][1]["text"]
        latest = await redis.xrevrange(key, count=1)
        return "0-0", (latest[0][1]["replica"] if latest else None), ""

    async def _add(self, stream_id: str, text: str) -> str:
        key = self._key(stream_id)
        async with self._link.redis.pipeline(transaction=False) as pipeline:
            pipeline.xadd(key, {"text": text, "replica": self._link.replica}, maxlen=MAX_EVENTS, approximate=True)
            pipeline.expire(key, self._seconds)
            entry, _ = await pipeline.execute()
        return str(entry)

    def _key(self, stream_id: str) -> str:
        return self._link.key("events", self._session_id, stream_id)


def position_of(event_id: str) -> StreamPosition | None:
    """What an event's id says, where it is of a call's stream; None for that of another stream, and for nonsense."""
    found = _EVENT_ID.fullmatch(event_id)
    if found is None or max(int(found["milliseconds"]), int(found["number"])) > _MOST_IN_ENTRY:
        return None
    stream = unquote(found["stream"])
    return None if stream == GET_STREAM_KEY else StreamPosition(f"{found['milliseconds']}-{found['number']}", stream)


def _is_answer(text: str) -> bool:
    """Whether an event is the last of its stream."""
    return text != "" and "method" not in from_json(text)


def _outcome_unknown(stream_id: str, why: str) -> str:
    # The SDK turns the id of a request into text; what could be a number was one.
    request: Any = int(stream_id) if re.fullmatch(r"0|-?[1-9]\d{0,17}", stream_id) else stream_id
    error = {"code": INTERNAL_ERROR, "message": why}
    return json.dumps({"jsonrpc": "2.0", "id": request, "error": error})


class ReplicaDispatcher(JSONRPCDispatcher[TransportContext]):
    """Numbers what it asks with the name of its replica: by itself, each replica would begin at 1.

    Args:
        replica: Its name.
        streams: What it reads and writes, and how, as for the SDK's.
    """

    def __init__(self, replica: str, *streams: Any, **settings: Any) -> None:
        super().__init__(*streams, **settings)
        self._replica = replica
        self._asked = 0

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **related: Any
    ) -> dict[str, Any]:
        """Ask, under a number that no other replica uses."""
        self._asked += 1
        numbered: CallOptions = {"request_id": f"{self._replica}{_SIGN}{self._asked}", **(opts or {})}
        return await super().send_raw_request(method, params, numbered, **related)
