"""Replicas that count rates through a real Redis, with a clock that tests control."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from redis.asyncio import Redis

from bridge.server.cluster.rates import NOW, ClusterMeter, ClusterRates
from bridge.server.cluster.replica import Replica
from bridge.server.limits import Limits, Rate
from bridge.server.limits.accounts import Accounts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

RATE = Rate(5, 500)
INTERVAL_SECONDS = RATE.per_seconds / RATE.calls
ROUNDING_SECONDS = 1e-3
EPOCH_SECONDS = 1_700_000_000
"""Time of Redis when the test's time is 0."""
TIME_OF_THE_TEST = 'local now = tonumber(redis.call("GET", "time of the test"))'


def nothing() -> None:
    pass


class TimedRedis(Redis):
    """A Redis whose scripts use a test's time, and whose responses take as long as the test wants."""

    meanwhile: Callable[[], object] = staticmethod(nothing)
    """Called after a script has run, and before its response arrives."""

    def register_script(self, script: Any) -> Any:
        assert script.startswith(NOW)
        carry_out = super().register_script(script.replace(NOW, TIME_OF_THE_TEST))

        async def run(**given: Any) -> Any:
            answer = await carry_out(**given)
            self.meanwhile()
            return answer

        return run


class Time:
    """Time of a test, for replicas and their Redis."""

    def __init__(self, redis: Redis) -> None:
        self.seconds = 1_000.0
        self.redis_behind_seconds = 0.0
        self._redis = redis

    def __call__(self) -> float:
        return self.seconds

    async def passes(self, seconds: float) -> None:
        self.seconds += seconds
        of_redis = self.seconds + EPOCH_SECONDS - self.redis_behind_seconds
        await self._redis.set("time of the test", round(of_redis * 1_000_000))


class TimedReplica:
    """One replica, with its rates only."""

    def __init__(self, redis: Any, name: str, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.redis = redis
        self.link = Replica(redis, name)
        self.accounts = Accounts(Limits(rate=RATE), clock)
        self.rates = ClusterRates(self.accounts, self.link)
        self.meter = self.meter_of("ada")

    def meter_of(self, *of: str, rate: Rate = RATE) -> ClusterMeter:
        return self.rates.make_meter(*of, rate=rate)

    def lets_in(self) -> bool:
        is_within = self.meter.wait_seconds(self.clock()) <= 0
        if is_within:
            self.meter.count(self.clock())
        return is_within

    async def ask(self) -> None:
        """Synchronize counts that Redis may not have, as after an outage."""
        for each in self.link.on_return:
            await each()
        await self.rates.synchronize()

    @property
    def wait_seconds(self) -> float:
        return self.meter.wait_seconds(self.clock())


@asynccontextmanager
async def replicas(url: str, count: int) -> AsyncIterator[tuple[Time, list[TimedReplica]]]:
    """Replicas of one name and one time."""
    name = f"rates-{uuid4().hex}"
    async with AsyncExitStack() as stack:
        clients = [TimedRedis.from_url(url, decode_responses=True) for _ in range(count)]
        for client in clients:
            stack.push_async_callback(client.aclose)
        time = Time(clients[0])
        await time.passes(0)
        yield time, [TimedReplica(client, name, time) for client in clients]
