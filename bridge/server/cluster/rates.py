"""Rates that replicas count together.

Whether a call is within a rate is asked here, of a meter that is a number: nothing waits for Redis. What was counted is
told to Redis as soon as it is, in one round trip for all meters, and again after a pause; the answer is what all
replicas have counted; whoever has to wait has it asked again. So everything that is counted anywhere is counted for
all, and in the long run all replicas together let in what the rate says. At a time they may let in more: each replica
what comes to it before it has asked again. That is one call where it comes alone, and of calls that come together those
of one round trip and one pause.

While Redis is gone, each replica counts by itself. When it is back it is told what is not made up for by then, and
what was known before, as it may have forgotten all. A command whose answer was lost is told again: that may count
twice, and never not at all.
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

from bridge.server.cluster.replica import BEAT_SECONDS
from bridge.server.limits.limits import Meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bridge.server.cluster.replica import Replica
    from bridge.server.limits.accounts import Accounts
    from bridge.server.limits.limits import Rate

_logger = logging.getLogger("bridge.server")

PAUSE_SECONDS = 0.01
"""How long nothing is told after something was, so that a busy caller costs a hundred round trips a second at most."""

_MOST_AT_ONCE = 500
"""How many meters one command tells of: Redis does nothing else meanwhile."""
_MOST_UNTOLD = 10_000
"""How many meters wait for a Redis that is gone."""
_LAST_WORDS_SECONDS = 1.0
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
"""Counts for meters, in microseconds: of each, what is known of it already, what is new, and how much may be left."""

_MOST_RATES_LEFT = 10
"""Of how many rates the calls may be counted ahead. There are more where the clock of Redis was set back."""


class ClusterMeter(Meter):
    """A meter that several replicas count with.

    Args:
        key: The same for all replicas.
        rate: The rate.
        note: Told when there is something to tell, or to ask.
    """

    __slots__ = ("__weakref__", "_known_due", "_note", "_untold_seconds", "key", "most_seconds")

    def __init__(self, key: str, rate: Rate, note: Callable[[ClusterMeter], None]) -> None:
        super().__init__(rate)
        self.key = key
        self.most_seconds = _MOST_RATES_LEFT * rate.per_seconds
        """How much may be left of it."""
        self._note = note
        self._known_due = 0.0
        self._untold_seconds = 0.0

    def count(self, now: float) -> None:
        """One more, for all."""
        super().count(now)
        self._untold_seconds += self._interval
        self._note(self)

    def wait_seconds(self, now: float) -> float:
        """How long until one more is within the rate; whoever has to wait has the others asked again."""
        seconds = super().wait_seconds(now)
        if seconds > 0:
            self._note(self)
        return seconds

    def known_seconds(self, now: float) -> float:
        """How much there is of what Redis said last."""
        return max(0.0, self._known_due - now)

    def take_untold(self) -> float:
        """What Redis has not been told, in seconds; from now on it counts as told."""
        seconds, self._untold_seconds = self._untold_seconds, 0.0
        return seconds

    def put_back(self, seconds: float) -> None:
        """What was taken has not been told."""
        self._untold_seconds += seconds

    def regain(self, now: float) -> None:
        """Let go of what is made up for by now: Redis could not be told in time."""
        self._untold_seconds = min(self._untold_seconds, max(0.0, self._due - now))

    def learn(self, due: float) -> None:
        """Take over what all have counted, and add what was counted here since that was asked."""
        self._known_due = due
        self._due = due + self._untold_seconds


class ClusterRates:
    """Carries what is counted here to Redis, and what others count from there.

    Args:
        accounts: What each caller takes here; from now on, of rates, as the others count too.
        link: The way to Redis.
    """

    def __init__(self, accounts: Accounts, link: Replica) -> None:
        self._link = link
        self._clock = accounts.clock
        self._count = link.redis.register_script(NOW + COUNT)
        self._meters: WeakSet[ClusterMeter] = WeakSet()
        self._untold: set[ClusterMeter] = set()
        self._counted = anyio.Event()
        self._was_lost = False
        """Whether Redis may have forgotten what it was told."""
        self._is_refused = False
        accounts.make_meter = self.make_meter
        link.on_return.append(self._returned)

    def make_meter(self, *of: str, rate: Rate) -> ClusterMeter:
        """A meter (`bridge.server.limits.limits.MakeMeter`); in Redis no name can be read."""
        whose = json.dumps([of, rate.calls, rate.per_seconds])
        key = self._link.key("rate", hashlib.sha256(whose.encode()).hexdigest())
        meter = ClusterMeter(key, rate, self._note)
        self._meters.add(meter)
        return meter

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time during which others are told; at its end they are told the rest."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_telling)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True), suppress(*self._link.failures):
                await self.tell()

    async def tell(self) -> None:
        """Tell Redis what was counted here, and learn what all have counted.

        Raises:
            RedisError: Redis does not answer. What was not told is told the next time.
        """
        waiting = tuple(self._untold)
        was_lost, self._was_lost = self._was_lost or not self._link.is_up, False
        for start in range(0, len(waiting), _MOST_AT_ONCE):
            await self._tell_of(waiting[start : start + _MOST_AT_ONCE], was_lost=was_lost)
        self._is_refused = False

    async def _tell_of(self, meters: Sequence[ClusterMeter], *, was_lost: bool) -> None:
        self._untold.difference_update(meters)
        now = self._clock()
        if was_lost:
            for meter in meters:
                meter.regain(now)
        taken = [meter.take_untold() for meter in meters]
        known = [meter.known_seconds(now) if was_lost else 0.0 for meter in meters]
        most = [meter.most_seconds for meter in meters]
        counts = [math.ceil(seconds * _MICROSECONDS) for of in zip(known, taken, most, strict=True) for seconds in of]
        try:
            answer = await self._count(keys=[meter.key for meter in meters], args=counts)
        except BaseException:
            for meter, seconds in zip(meters, taken, strict=True):
                meter.put_back(seconds)
            self._untold.update(meters)
            raise
        now = self._clock()
        for meter, left in zip(meters, answer, strict=True):
            meter.learn(now + left / _MICROSECONDS)

    async def _keep_telling(self) -> None:
        while True:
            if not self._untold:
                self._counted = anyio.Event()
                await self._counted.wait()
            try:
                await self.tell()
            except self._link.failures as error:
                self._failed(error)
                await anyio.sleep(BEAT_SECONDS)
            else:
                await anyio.sleep(PAUSE_SECONDS)

    def _note(self, meter: ClusterMeter) -> None:
        if not self._untold:
            self._counted.set()
        self._untold.add(meter)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, self._link.refusals):
            self._link.failed(error)
        elif not self._is_refused:
            self._is_refused = True
            _logger.error("Redis refuses to count rates (%s): until it does, each replica counts by itself", error)
        self._was_lost = True
        now = self._clock()
        for meter in tuple(self._untold):
            meter.regain(now)
            if meter.is_unused(now) or len(self._untold) > _MOST_UNTOLD:
                self._untold.discard(meter)

    async def _returned(self) -> None:
        """Have Redis told all that is known here: it may have come back empty."""
        self._was_lost = True
        now = self._clock()
        for meter in tuple(self._meters):
            if not meter.is_unused(now):
                self._note(meter)
