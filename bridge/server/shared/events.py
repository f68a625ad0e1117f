"""Events: what a call of the handshake era has said, kept for a client that lost its stream.

They are kept by session and stream: the SDK's `EventStore` is told the bare id of a request, which is another client's
as well. The stream of a call ends with its answer. What is said on no call's stream is not kept: that the tools have
changed is all that it can be, and a client that resumes that stream may list them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from mcp.server.streamable_http import GET_STREAM_KEY, EventStore
from pydantic_core import from_json

from bridge.server.protocol import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage

    from bridge.server.shared.link import Link

MAX_EVENTS = 1_000
"""How many events of a call are kept, the latest."""
_LOOK_EVERY_MILLISECONDS = 500
_EVENT_ID = re.compile(r"(?P<entry>\d+-\d+)/(?P<stream>.+)")
_UNKNOWN = "the replica that ran this call has ended: its outcome is unknown, and it was not run again"


class Place(NamedTuple):
    """Where a client was in the stream of a call."""

    entry: str
    """The last event that it has."""
    stream: str
    """The id of the request, as text."""


class SessionEvents(EventStore):
    """The events of one session.

    Args:
        link: The way to Redis.
        session_id: Whose they are.
        seconds: How long the events of a call are kept after the latest of them.
    """

    def __init__(self, link: Link, session_id: str, seconds: int) -> None:
        self._link = link
        self._session_id = session_id
        self._seconds = seconds

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event; the id is a `Place`, as `place_of` reads it. Where Redis does not answer, it is not kept."""
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        entry = "0-0"
        if stream_id != GET_STREAM_KEY:
            try:
                entry = await self._add(stream_id, text)
            except self._link.failures as error:
                self._link.failed(error)
        return f"{entry}/{quote(stream_id, safe='')}"

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replay nothing: `follow` does, on any replica, and knows when a stream has ended."""
        del last_event_id, send_callback
        return None

    async def follow(self, place: Place) -> AsyncIterator[tuple[str, str] | None]:
        """What a call has said since, and what it goes on to say until it is answered.

        Yields:
            Each event's id and text; None now and then, where there is nothing to say yet.

        Raises:
            RedisError: Redis does not answer.
        """
        redis: Any = self._link.redis
        key, last = self._key(place.stream), place.entry
        replica, text = await self._known_of(place)
        while not _is_answer(text):
            found: Any = await redis.xread({key: last}, block=_LOOK_EVERY_MILLISECONDS)
            entries = found[0][1] if found else []
            if not entries:
                if replica is None or not await self._link.is_alive(replica):
                    entry = await self._add(place.stream, _outcome_unknown(place.stream))
                    entries = await redis.xrange(key, entry, entry)
                else:
                    yield None
            for last, fields in entries:
                text = fields["text"]
                if text:
                    yield f"{last}/{quote(place.stream, safe='')}", text

    async def _known_of(self, place: Place) -> tuple[str | None, str]:
        """Which replica runs the call, and what the event at a place says; nothing where that is not kept any more."""
        redis: Any = self._link.redis
        key = self._key(place.stream)
        if found := await redis.xrange(key, place.entry, place.entry):
            return found[0][1]["replica"], found[0][1]["text"]
        latest = await redis.xrevrange(key, count=1)
        return (latest[0][1]["replica"] if latest else None), ""

    async def _add(self, stream_id: str, text: str) -> str:
        key = self._key(stream_id)
        async with self._link.redis.pipeline(transaction=False) as pipeline:
            pipeline.xadd(key, {"text": text, "replica": self._link.replica}, maxlen=MAX_EVENTS, approximate=True)
            pipeline.expire(key, self._seconds)
            entry, _ = await pipeline.execute()
        return str(entry)

    def _key(self, stream_id: str) -> str:
        return self._link.key("events", self._session_id, stream_id)


def place_of(event_id: str) -> Place | None:
    """What an event's id says, where it is of a call's stream; None for that of another stream, and for nonsense."""
    found = _EVENT_ID.fullmatch(event_id)
    stream = unquote(found["stream"]) if found is not None else GET_STREAM_KEY
    return None if found is None or stream == GET_STREAM_KEY else Place(found["entry"], stream)


def _is_answer(text: str) -> bool:
    """Whether an event is the last of its stream."""
    return text != "" and "method" not in from_json(text)


def _outcome_unknown(stream_id: str) -> str:
    # The SDK turns the id of a request into text; what could be a number was one.
    request: Any = int(stream_id) if re.fullmatch(r"0|-?[1-9]\d{0,17}", stream_id) else stream_id
    error = {"code": INTERNAL_ERROR, "message": _UNKNOWN}
    return json.dumps({"jsonrpc": "2.0", "id": request, "error": error})
