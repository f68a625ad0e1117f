"""Event store: events of calls of the handshake era in Redis, so that a client can resume a lost stream on any replica.

Events are stored by session and request id. The stream of a call ends with its response. Events of other streams are
not stored: they can only be notifications of changed tools.

While Redis is unavailable, nothing is stored, and calls do not wait for it. When it is available again, the replica
stores which calls still run, and the responses of calls that have ended meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from bridge.protocol.replay import NOT_STORED, event_id_of, order_of, outcome_unknown, quoted
from bridge.server.http.event_store import MAX_EVENTS, SessionEvents

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from bridge.protocol.replay import StreamPosition
    from bridge.server.cluster.replica import Replica
    from bridge.server.http.event_store import EventBytes

_LOOK_SECONDS = 0.5
_READ_EVENTS = 16
_MAX_UNSTORED_RESPONSES = 100
"""Maximum number of responses of a session that wait for Redis to be available again."""
_MAX_UNSTORED = 1_000
"""Maximum number of calls of a session, beside running ones, of which anything waits for that."""

_ENDED = "the replica that ran this call has ended: its outcome is unknown, and it was not run again"


class RedisEvents(SessionEvents):
    """Events of one session in Redis. `drop` and what calls it raise RedisError if Redis does not answer."""

    def __init__(self, replica: Replica, session_id: str, seconds: int, all_bytes: EventBytes) -> None:
        super().__init__(all_bytes, seconds)
        self._expire_seconds = seconds
        self._replica = replica
        self._session_id = session_id
        self._unstored: dict[str, bytes] = {}
        """Events to store when Redis is available again, by stream: a response, or empty for a call that runs."""

    async def store(
        self, stream_id: str, message: bytes | None, *, is_answer: bool = False, is_notification: bool = False
    ) -> str:
        """Store an event, unless Redis is unavailable; return its id."""
        if is_notification and (latest := self.latest_of_full(stream_id)) is not None:
            return event_id_of(latest, stream_id)
        message, entry = message or b"", "0-0"
        if not is_answer:
            self._unstored[stream_id] = b""
        try:
            with self._replica.bounded_wait():
                entry = await self._add(stream_id, message, is_answer=is_answer)
                await self.note(stream_id, entry, len(message), is_answer=is_answer)
            if is_answer:
                self._unstored.pop(stream_id, None)
        except self._replica.failures as error:
            if is_answer:
                self._keep_unstored(stream_id, message)
            self._replica.failed(error)
        return event_id_of(entry, stream_id)

    def _keep_unstored(self, stream_id: str, answer: bytes) -> None:
        waiting = sum(1 for each in self._unstored.values() if each)
        if waiting < _MAX_UNSTORED_RESPONSES:
            self._unstored[stream_id] = answer
        elif len(self._unstored) <= _MAX_UNSTORED:
            self._unstored[stream_id] = outcome_unknown(stream_id, NOT_STORED)
        else:  # without any event, its outcome is known to be lost
            self._unstored.pop(stream_id, None)

    async def _drop(self, stream_ids: list[str]) -> None:
        await self._replica.redis.delete(*map(self._key, stream_ids))

    async def store_unstored(self) -> None:
        """Store the events that could not be stored while Redis was unavailable.

        Raises:
            RedisError: Redis does not answer.
        """
        for stream_id, answer in tuple(self._unstored.items()):
            with suppress(self._replica.refusals):
                await self._add(stream_id, answer, is_answer=answer != b"")
                if answer and self._unstored.get(stream_id) == answer:
                    del self._unstored[stream_id]

    async def follow(self, position: StreamPosition) -> AsyncGenerator[tuple[str, bytes] | None, None]:
        """Replay the events of a call after a position, then follow new ones until its response.

        The iteration ends if Redis does not answer: its client resumes again.
        """
        redis: Any = self._replica.redis
        stream, key = position.stream, self._key(position.stream)
        with self._replica.noting_failures():
            last, fields = await self._find(position)
            newest = await redis.xrevrange(key, count=1)
            follows_from = order_of(newest[0][0] if newest else "0-0")
            async with redis.channels.subscribed(key) as added:
                while "answer" not in fields:
                    entries = await redis.xrange(key, f"({last}", count=_READ_EVENTS)
                    if not entries:
                        with anyio.move_on_after(_LOOK_SECONDS) as waiting:
                            await added.get()
                        if not waiting.cancelled_caught:
                            continue
                        yield None
                        if problem := await self._problem(fields.get("replica")):
                            await self._add(stream, outcome_unknown(stream, problem), is_answer=True)
                    for last, fields in entries:
                        if "closed" in fields and order_of(last) > follows_from:
                            return
                        if fields["text"]:
                            yield event_id_of(last, stream), fields["text"].encode()
                        if "answer" in fields:
                            break

    async def _problem(self, owner: str | None) -> str | None:
        """Return the reason why a call of a replica will have no further events; None if it may have some."""
        if owner is None:
            return NOT_STORED if self._replica.is_sure else None
        return _ENDED if await self._replica.has_ended(owner) else None

    async def _find(self, position: StreamPosition) -> tuple[str, Mapping[str, str]]:
        """Return the entry after which to replay, and its fields, of which ``replica`` runs the call.

        If the entry is no longer stored, all stored events are replayed. If none are stored, there are no fields.
        """
        redis: Any = self._replica.redis
        key = self._key(position.stream)
        if found := await redis.xrange(key, position.entry, position.entry):
            return position.entry, found[0][1]
        latest = await redis.xrevrange(key, count=1)
        return "0-0", {"replica": latest[0][1]["replica"]} if latest else {}

    async def close_streams(self, stream_id: str) -> None:
        """Close the streams that follow a call, on all replicas."""
        with self._replica.noting_failures(), self._replica.bounded_wait():
            await self._add(stream_id, b"", closed="1")

    async def delivered(self, stream_id: str) -> None:
        """Keep the events of a call whose response was sent: a replica does not know of deliveries by others."""

    def forget(self) -> None:
        """Keep the events of a session that is forgotten here: another replica may go on with it."""

    async def _add(self, stream_id: str, message: bytes, *, is_answer: bool = False, **more: str) -> str:
        key = self._key(stream_id)
        fields: Any = {"text": message, "replica": self._replica.id, **more}
        if is_answer:
            fields["answer"] = "1"
        async with self._replica.redis.pipeline(transaction=False) as pipeline:
            pipeline.xadd(key, fields, maxlen=MAX_EVENTS, approximate=True)
            pipeline.expire(key, self._expire_seconds)
            pipeline.publish(key, "")  # for those who follow the call
            entry, *_ = await pipeline.execute()
        return str(entry)

    def _key(self, stream_id: str) -> str:
        return self._replica.key("events", self._session_id, quoted(stream_id))
