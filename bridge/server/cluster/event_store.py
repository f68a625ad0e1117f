"""Event store: events of calls of the handshake era in Redis, so that a client can resume a lost stream on any replica.

Events are stored by session and request id. The stream of a call ends with its response. Events of other streams are
not stored: they can only be notifications of changed tools.

While Redis is unavailable, nothing is stored, and calls do not wait for it. When it is available again, the replica
stores which calls still run, and the responses of calls that have ended meanwhile.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http import GET_STREAM_KEY
from mcp_types import JSONRPCNotification
from pydantic_core import from_json
from starlette.responses import StreamingResponse

from bridge.server.http.event_store import (
    MAX_EVENTS,
    NOT_STORED,
    SessionEvents,
    event_id_of,
    is_response,
    outcome_unknown,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage

    from bridge.server.cluster.replica import Replica
    from bridge.server.http.event_store import EventBytes, StreamPosition

_READ_MILLISECONDS = 500
_READ_EVENTS = 16
_MAX_UNSTORED_RESPONSES = 100
"""Maximum number of responses of a session that wait for Redis to be available again."""
_MAX_UNSTORED = 1_000
"""Maximum number of calls of a session, beside running ones, of which anything waits for that."""

_ENDED = "the replica that ran this call has ended: its outcome is unknown, and it was not run again"


class RedisEvents(SessionEvents):
    """Events of one session in Redis. Methods but `store_event` raise RedisError if Redis does not answer."""

    def __init__(self, replica: Replica, session_id: str, seconds: int, all_bytes: EventBytes) -> None:
        super().__init__(all_bytes, seconds)
        self._expire_seconds = seconds
        self._replica = replica
        self._session_id = session_id
        self._unstored: dict[str, str] = {}
        """Events to store when Redis is available again, by stream: a response, or empty for a call that runs."""

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event, unless Redis is unavailable; return its id, which `position_of` parses."""
        self.receive(stream_id, message)
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        entry = "0-0"
        if stream_id != GET_STREAM_KEY:
            is_answer = is_response(message)
            if isinstance(message, JSONRPCNotification) and (latest := self.latest_of_full(stream_id)) is not None:
                return event_id_of(latest, stream_id)
            if not is_answer:
                self._unstored[stream_id] = ""
            try:
                with self._replica.bounded_wait():
                    entry = await self._add(stream_id, text)
                    await self.note(stream_id, entry, len(text.encode()), is_answer=is_answer)
                if is_answer:
                    self._unstored.pop(stream_id, None)
            except self._replica.failures as error:
                if is_answer:
                    waiting = sum(1 for each in self._unstored.values() if each)
                    if waiting < _MAX_UNSTORED_RESPONSES:
                        self._unstored[stream_id] = text
                    elif len(self._unstored) <= _MAX_UNSTORED:
                        self._unstored[stream_id] = json.dumps(outcome_unknown(stream_id, NOT_STORED))
                    else:  # without any event, its outcome is known to be lost
                        self._unstored.pop(stream_id, None)
                self._replica.failed(error)
        return event_id_of(entry, stream_id)

    async def _drop(self, stream_ids: list[str]) -> None:
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
        newest = await redis.xrevrange(key, count=1)
        follows_from = _order(newest[0][0] if newest else "0-0")
        while not _is_answer(text):
            found: Any = await redis.xread({key: last}, count=_READ_EVENTS, block=_READ_MILLISECONDS)
            entries = found[0][1] if found else []
            if not entries:
                yield None
                if problem := await self._problem(owner):
                    await self._add(position.stream, json.dumps(outcome_unknown(position.stream, problem)))
            for last, fields in entries:
                owner, text = fields["replica"], fields["text"]
                if "closed" in fields and _order(last) > follows_from:
                    return
                if text:
                    yield event_id_of(last, position.stream), text
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
            return NOT_STORED if self._replica.is_sure else None
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

    async def close_streams(self, stream_id: str) -> None:
        """Close the streams that follow a call, on all replicas."""
        with self._replica.noting_failures(), self._replica.bounded_wait():
            await self._add(stream_id, "", closed="1")

    async def _add(self, stream_id: str, text: str, **more: str) -> str:
        key = self._key(stream_id)
        fields: Any = {"text": text, "replica": self._replica.id, **more}
        async with self._replica.redis.pipeline(transaction=False) as pipeline:
            pipeline.xadd(key, fields, maxlen=MAX_EVENTS, approximate=True)
            pipeline.expire(key, self._expire_seconds)
            entry, _ = await pipeline.execute()
        return str(entry)

    def _key(self, stream_id: str) -> str:
        return self._replica.key("events", self._session_id, stream_id)


def _is_answer(text: str) -> bool:
    """True for a response, the last event of a stream."""
    return text != "" and "method" not in from_json(text)


def _order(entry: str) -> tuple[int, int]:
    """Return the position of an entry among those of its stream."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)
