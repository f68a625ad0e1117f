"""Store of events in a Redis stream, for all replicas of a server. Requires the extra ``redis``.

The entries are numbered by a counter, so that a gap before a cursor is known exactly. Another counter has their bytes.
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
    OVERHEAD_BYTES,
    STATE_SUFFIX,
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
local overhead = tonumber(ARGV[5])
local bytes = tonumber(redis.call('GET', KEYS[4]) or '0')
for index = 6, #ARGV, 2 do
    number = redis.call('INCR', KEYS[2])
    redis.call('XADD', KEYS[1], number .. '-0', 't', ARGV[index], 'record', ARGV[index + 1])
    bytes = bytes + #ARGV[index + 1] + overhead
end
local length = redis.call('XLEN', KEYS[1])
while length > 0 do
    local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
    local is_kept = length <= tonumber(ARGV[1]) and bytes <= tonumber(ARGV[4])
    if is_kept and tonumber(oldest[2][2]) >= tonumber(ARGV[2]) then break end
    redis.call('XDEL', KEYS[1], oldest[1])
    length = length - 1
    bytes = length > 0 and bytes - #oldest[2][4] - overhead or 0
end
redis.call('SET', KEYS[4], string.format('%.0f', bytes))
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
_SAVE = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('INCR', KEYS[2])
"""
_SAVE_STATE = """
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
"""
_DELETE = """
local found = redis.call('HGET', KEYS[1], ARGV[1])
if not found or ARGV[2] ~= '' and found ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1], ARGV[3])
redis.call('INCR', KEYS[2])
return 1
"""
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
        self._keys = [prefix, f"{prefix}:number", f"{prefix}:id", f"{prefix}:bytes"]
        self._subscriptions = f"{prefix}:subscriptions"
        self._subscription_keys = [self._subscriptions, f"{self._subscriptions}:revision"]
        self._leader = f"{prefix}:leader"
        self._append_script = self._redis.register_script(_APPEND)
        self._read_script = self._redis.register_script(_READ)
        self._lead_script = self._redis.register_script(_LEAD)
        self._save_script = self._redis.register_script(_SAVE)
        self._save_state_script = self._redis.register_script(_SAVE_STATE)
        self._delete_script = self._redis.register_script(_DELETE)

    async def open(self) -> None:
        """Do nothing: a connection is made when it is needed."""

    async def append(self, records: Sequence[EventRecord]) -> None:
        """Add events, and drop the oldest ones over the maxima."""
        options, kept_from = self._options, time() - self._options.kept_seconds
        arguments: list[Any] = [options.max_events, kept_from, token_hex(8), options.max_bytes, OVERHEAD_BYTES]
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

    async def revision(self) -> int:
        """Return a number that changes with the stored subscriptions; see `EventStore.revision`."""
        with _translated():
            return int(await self._redis.get(self._subscription_keys[1]) or 0)

    async def subscriptions(self) -> Mapping[str, bytes]:
        """Return the stored subscriptions and their states, by identifier."""
        with _translated():
            found: Mapping[str, str] = await self._redis.hgetall(self._subscriptions)
        return {identifier: record.encode() for identifier, record in found.items()}

    async def subscription(self, identifier: str) -> bytes | None:
        """Return a subscription or a state; None if it is not stored."""
        with _translated():
            found: str | None = await self._redis.hget(self._subscriptions, identifier)
        return None if found is None else found.encode()

    async def save_subscription(self, identifier: str, record: bytes) -> None:
        """Store a subscription, or replace it; or the state of one that is stored."""
        is_state = identifier.endswith(STATE_SUFFIX)
        script = self._save_state_script if is_state else self._save_script
        args: list[Any] = [identifier, record, identifier.removesuffix(STATE_SUFFIX)]
        with _translated():
            await script(keys=self._subscription_keys, args=args)

    async def delete_subscription(self, identifier: str, record: bytes | None = None) -> bool:
        """Delete a subscription and its state; see `EventStore.delete_subscription`."""
        args: list[Any] = [identifier, record or b"", identifier + STATE_SUFFIX]
        with _translated():
            return bool(await self._delete_script(keys=self._subscription_keys, args=args))

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
