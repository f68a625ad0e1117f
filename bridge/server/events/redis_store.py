"""Store of events in a Redis stream, for all replicas of a server. Requires the extra ``redis``.

The entries are numbered by a counter, so that a gap before a cursor is known exactly.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, Any

import anyio

from bridge.redis import connection_errors, redis_at
from bridge.server.events.store import (
    EventStoreError,
    Page,
    Stored,
    read_cursor,
    record_from_json,
    record_to_json,
    written_cursor,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bridge.server.events.options import EventOptions
    from bridge.server.events.store import EventRecord

_logger = logging.getLogger("bridge.server")
_WAIT_SECONDS = 5.0
_MILLISECONDS = 1000
_APPEND = """
local number
for index = 4, #ARGV, 2 do
    number = redis.call('INCR', KEYS[2])
    redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[1], number .. '-0', 't', ARGV[index], 'record', ARGV[index + 1])
end
while true do
    local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
    if not oldest or tonumber(oldest[2][2]) >= tonumber(ARGV[2]) then break end
    redis.call('XDEL', KEYS[1], oldest[1])
end
redis.call('SET', KEYS[3], ARGV[3], 'NX')
redis.call('PUBLISH', KEYS[1], '')
return number
"""
"""Adds entries of numbers of their own, and drops those over the maxima."""
_READ = """
redis.call('SET', KEYS[3], ARGV[1], 'NX')
local store = redis.call('GET', KEYS[3])
local newest = tonumber(redis.call('GET', KEYS[2]) or '0')
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
local first = oldest and tonumber(string.match(oldest[1], '^%d+')) or newest + 1
local after = first - 1
if ARGV[2] == store and tonumber(ARGV[3]) >= after then after = tonumber(ARGV[3]) end
local found = {}
if tonumber(ARGV[4]) > 0 then
    found = redis.call('XRANGE', KEYS[1], (after + 1) .. '-0', '+', 'COUNT', tonumber(ARGV[4]) + 1)
end
return {store, newest, first, found}
"""
"""Returns the identity of the store, the numbers of its newest and of its oldest entry, and entries after a number."""
_LEAD = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""


class RedisEventStore:
    """Keeps events on Redis; see `bridge.server.events.store.EventStore`.

    Args:
        url: URL of the Redis.
        server: Name of the server, whose replicas share the events.
        options: The options of events.
    """

    is_shared = True

    def __init__(self, url: str, server: str, options: EventOptions) -> None:
        self._redis: Any = redis_at(url, "a store of events on Redis")
        self._options = options
        # The braces put all keys on one node of a Redis Cluster.
        prefix = f"bridge:{{{server}}}:events"
        self._keys = [prefix, f"{prefix}:number", f"{prefix}:id"]
        self._subscriptions = f"{prefix}:subscriptions"
        self._leader = f"{prefix}:leader"
        self._append_script = self._redis.register_script(_APPEND)
        self._read_script = self._redis.register_script(_READ)
        self._lead_script = self._redis.register_script(_LEAD)

    async def open(self) -> None:
        """Do nothing: a connection is made when it is needed."""

    async def append(self, records: Sequence[EventRecord]) -> None:
        """Add events, and drop the oldest ones over the maxima."""
        kept_from = time() - self._options.kept_seconds
        arguments: list[Any] = [self._options.max_events, kept_from, token_hex(8)]
        for record in records:
            arguments += [record.timestamp, record_to_json(record)]
        with _translated():
            await self._append_script(keys=self._keys, args=arguments)

    async def newest(self) -> str:
        """Return the position after the newest event."""
        store, newest, _, _ = await self._read("", 0, 0)
        return written_cursor(store, newest)

    async def read(self, cursor: str, limit: int) -> Page:
        """Return events after a position; those that are kept if it is none of this store."""
        of, _, _ = cursor.rpartition(".")
        number = read_cursor(cursor, of)
        store, _, first, found = await self._read(of, -1 if number is None else number, limit)
        events = []
        for entry, fields in found[:limit]:
            values = dict(zip(fields[::2], fields[1::2], strict=True))
            try:
                record = record_from_json(values["record"])
                events.append(Stored(written_cursor(store, int(entry.partition("-")[0])), record))
            except (KeyError, ValueError) as error:
                _logger.error("an event on Redis is malformed, and left out: %s", error)  # noqa: TRY400 - as said
        truncated = of != store or number is None or number < first - 1
        return Page(events, truncated, len(found) > limit)

    async def _read(self, store: str, number: int, limit: int) -> Any:
        with _translated():
            return await self._read_script(keys=self._keys, args=[token_hex(8), store, number, limit])

    async def wait(self, cursor: str) -> None:
        """Wait a while for events after a position."""
        with _translated():
            async with self._redis.channels.subscribed(self._keys[0]) as received:
                with anyio.move_on_after(_WAIT_SECONDS):
                    while await received.get() is None:  # it is subscribed, or may have missed messages
                        if await self.newest() != cursor:
                            return

    async def subscriptions(self) -> Mapping[str, bytes]:
        """Return the stored subscriptions, by identifier."""
        with _translated():
            found: Mapping[str, str] = await self._redis.hgetall(self._subscriptions)
        return {identifier: record.encode() for identifier, record in found.items()}

    async def save_subscription(self, identifier: str, record: bytes) -> None:
        """Store a subscription, or replace it."""
        with _translated():
            await self._redis.hset(self._subscriptions, identifier, record)

    async def delete_subscription(self, identifier: str) -> None:
        """Delete a subscription, if it exists."""
        with _translated():
            await self._redis.hdel(self._subscriptions, identifier)

    async def leads(self, process: str, seconds: float) -> bool:
        """Return True if a process delivers the events to webhooks; see `EventStore.leads`."""
        with _translated():
            return bool(await self._lead_script(keys=[self._leader], args=[process, int(seconds * _MILLISECONDS)]))

    async def close(self) -> None:
        """Close the connections; they are opened again when they are needed."""
        await self._redis.aclose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except connection_errors() as error:
        raise EventStoreError(f"the events on Redis cannot be used: {error}") from error
