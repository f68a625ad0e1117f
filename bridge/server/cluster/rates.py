"""Rates that replicas count together.

A call is checked against a meter in memory, without waiting for Redis. After each change, all meters are synchronized
with Redis in one round trip, which returns the totals of all replicas; then follows a pause. Over time the replicas
together admit the configured rate. In a burst, each replica may exceed it by the calls that arrive within one round
trip and one pause.

While Redis is unavailable, each replica counts alone. When it is available again, each replica adds its counts, in case
Redis lost its data. A command whose response was lost is repeated: its calls may count twice, but never not at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

import anyio

from bridge.server.cluster.replica import HEARTBEAT_SECONDS
from bridge.server.limits.limits import Meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bridge.server.cluster.replica import Replica
    from bridge.server.limits.accounts import Accounts
    from bridge.server.limits.limits import Rate

_logger = logging.getLogger("bridge.server")

PAUSE_SECONDS = 0.01
"""Pause after each synchronization, which limits them to a hundred a second."""
_MAX_METERS_PER_COMMAND = 500
"""Maximum number of meters in one command, since Redis runs nothing else meanwhile."""
_MAX_PENDING = 10_000
"""Maximum number of meters that wait for Redis to be available again."""
_LAST_SYNCHRONIZATION_SECONDS = 1.0
_MICROSECONDS = 1_000_000

NOW = """
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
"""
COUNT = """
local left = {}
for i, key in ipairs(KEYS) do
    local due = tonumber(redis.call("GET", key) or now) or now
    due = math.max(math.min(due, now + ARGV[3 * i]), now + ARGV[3 * i - 2]) + ARGV[3 * i - 1]
    left[i] = due - now
    redis.call("SET", key, string.format("%.0f", due), "PX", math.max(1, math.ceil(left[i] / 1000)))
end
return left
"""
"""Script that counts for meters. Arguments of each, in microseconds: known usage, new usage, maximum usage."""

_MAX_RATES_AHEAD = 10
"""Maximum usage of a meter, in multiples of its rate; it could be more after the clock of Redis was set back."""


class ClusterMeter(Meter):
    """A meter that replicas share; it calls a function whenever it has to be synchronized."""

    __slots__ = ("__weakref__", "_known_due", "_request_sync", "key", "most_seconds", "pending_seconds")

    def __init__(self, key: str, rate: Rate, request_sync: Callable[[ClusterMeter], None]) -> None:
        super().__init__(rate)
        self.key = key
        self.most_seconds = _MAX_RATES_AHEAD * rate.per_seconds
        """Maximum usage."""
        self._request_sync = request_sync
        self._known_due = 0.0
        self.pending_seconds = 0.0
        """Usage that Redis does not know yet."""

    def count(self, now: float) -> None:
        """Count a call, for all replicas."""
        super().count(now)
        self.pending_seconds += self._interval
        self._request_sync(self)

    def count_bytes(self, now: float, number: int) -> None:
        """Count bytes, for all replicas."""
        super().count_bytes(now, number)
        self.pending_seconds += number * self._interval
        self._request_sync(self)

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until a call is within the rate; synchronize if it is not yet."""
        seconds = super().wait_seconds(now)
        if seconds > 0:
            self._request_sync(self)
        return seconds

    def known_seconds(self, now: float) -> float:
        """Return the remaining usage of the last response of Redis."""
        return max(0.0, self._known_due - now)

    def expire_pending(self, now: float) -> None:
        """Drop pending usage that has expired while Redis was unavailable."""
        self.pending_seconds = min(self.pending_seconds, max(0.0, self._due - now))

    def update(self, due: float, sent_seconds: float) -> None:
        """Set the usage of all replicas, plus the usage here that was not sent."""
        self.pending_seconds -= sent_seconds
        self._known_due = due
        self._due = due + self.pending_seconds


class ClusterRates:
    """Synchronizes the meters of this replica with Redis."""

    def __init__(self, accounts: Accounts, replica: Replica) -> None:
        self._replica = replica
        self._clock = accounts.clock
        self._count = replica.redis.register_script(NOW + COUNT)
        self._meters: WeakSet[ClusterMeter] = WeakSet()
        self._pending: set[ClusterMeter] = set()
        self._counted = anyio.Event()
        self._was_lost = False
        """True if Redis may have lost its data."""
        self._is_refused = False
        accounts.make_meter = self.make_meter
        replica.on_return.append(self._returned)

    def make_meter(self, *of: str, rate: Rate) -> ClusterMeter:
        """Create a meter (`bridge.server.limits.limits.MakeMeter`). Its key is a digest, which hides names."""
        identity = json.dumps([of, rate.calls, rate.per_seconds])
        key = self._replica.key("rate", hashlib.sha256(identity.encode()).hexdigest())
        meter = ClusterMeter(key, rate, self._request_sync)
        self._meters.add(meter)
        return meter

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which meters are synchronized, the last time at its end."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_synchronizing)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(_LAST_SYNCHRONIZATION_SECONDS, shield=True), suppress(*self._replica.failures):
                await self.synchronize()

    async def synchronize(self) -> None:
        """Send the counts of this replica to Redis, and receive those of all.

        Raises:
            RedisError: Redis does not answer; counts that were not sent are sent the next time.
        """
        waiting = tuple(self._pending)
        was_lost, self._was_lost = self._was_lost or not self._replica.is_up, False
        for start in range(0, len(waiting), _MAX_METERS_PER_COMMAND):
            await self._synchronize_some(waiting[start : start + _MAX_METERS_PER_COMMAND], was_lost=was_lost)
        self._is_refused = False

    async def _synchronize_some(self, meters: Sequence[ClusterMeter], *, was_lost: bool) -> None:
        self._pending.difference_update(meters)
        now = self._clock()
        if was_lost:
            for meter in meters:
                meter.expire_pending(now)
        sent = [meter.pending_seconds for meter in meters]
        known = [meter.known_seconds(now) if was_lost else 0.0 for meter in meters]
        most = [meter.most_seconds for meter in meters]
        counts = [math.ceil(seconds * _MICROSECONDS) for of in zip(known, sent, most, strict=True) for seconds in of]
        try:
            answer = await self._count(keys=[meter.key for meter in meters], args=counts)
        except BaseException:
            self._pending.update(meters)
            raise
        now = self._clock()
        for meter, left, sent_seconds in zip(meters, answer, sent, strict=True):
            meter.update(now + left / _MICROSECONDS, sent_seconds)

    async def _keep_synchronizing(self) -> None:
        while True:
            if not self._pending:
                self._counted = anyio.Event()
                await self._counted.wait()
            try:
                await self.synchronize()
            except self._replica.failures as error:
                self._failed(error)
                await anyio.sleep(HEARTBEAT_SECONDS)
            else:
                await anyio.sleep(PAUSE_SECONDS)

    def _request_sync(self, meter: ClusterMeter) -> None:
        if not self._pending:
            self._counted.set()
        self._pending.add(meter)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, self._replica.refusals):
            self._replica.failed(error)
        elif not self._is_refused:
            self._is_refused = True
            _logger.error("Redis refuses to count rates (%s): until it does, each replica counts alone", error)
        self._was_lost = True
        now = self._clock()
        for meter in tuple(self._pending):
            meter.expire_pending(now)
            if meter.is_unused(now) or len(self._pending) > _MAX_PENDING:
                self._pending.discard(meter)

    async def _returned(self) -> None:
        """Synchronize all meters, because Redis may have lost its data."""
        self._was_lost = True
        now = self._clock()
        for meter in tuple(self._meters):
            if not meter.is_unused(now):
                self._request_sync(meter)
