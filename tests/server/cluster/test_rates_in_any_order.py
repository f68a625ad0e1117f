"""Replicas of one rate, with calls, synchronizations and outages in any order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.server.limits.limits import Meter
from tests.server.cluster.timed import INTERVAL_SECONDS, RATE, ROUNDING_SECONDS, TimedReplica, nothing, replicas

if TYPE_CHECKING:
    from bridge.server.cluster.rates import ClusterRates
    from tests.redis_server import RedisServer
    from tests.server.cluster.timed import Time

REPLICAS = 3
WHAT = ["call"] * 6 + ["tell", "tell while a call comes", "tell and lose the answer"]
STEP = st.tuples(st.sampled_from(WHAT), st.integers(0, REPLICAS - 1))
PAUSE = st.tuples(st.just("pass"), st.sampled_from([50, 100, 250, 1000]))
STEPS = st.lists(st.one_of(STEP, STEP, STEP, PAUSE), min_size=30, max_size=80)


class History:
    """The calls of all replicas, which no replica knows."""

    def __init__(self) -> None:
        self.lost = 0
        """Number of calls that were reported by a command whose response was lost."""
        self.longest_lag_seconds = 0.0
        self._meter = Meter(RATE)
        self._untold: list[list[float]] = [[] for _ in range(REPLICAS)]
        self._counted = [0] * REPLICAS
        self._told = 0
        self._heard = [0] * REPLICAS
        self._asking: set[int] = set()

    def let_in(self, replica: int, now: float) -> None:
        self._meter.count(now)
        self._counted[replica] += 1
        self._untold[replica].append(now)
        self._asking.add(replica)

    def refuse(self, replica: int) -> None:
        self._asking.add(replica)

    def unknown_to(self, replica: int) -> int:
        """Number of calls that a replica has neither counted nor received."""
        return sum(self._counted) - self._heard[replica] - len(self._untold[replica])

    async def tell(self, replica: int, rates: ClusterRates, now: float) -> None:
        before, is_asking = self._untold[replica].copy(), replica in self._asking
        self._asking.discard(replica)
        try:
            await rates.synchronize()
        except ConnectionError:
            self.lost += len(before)
            self._asking.add(replica)
            return
        if before:
            del self._untold[replica][: len(before)]
            self._told += len(before)
            self.longest_lag_seconds = max(self.longest_lag_seconds, now - before[0])
        if is_asking:
            self._heard[replica] = self._told

    def left_seconds(self, now: float) -> float:
        """Seconds after which none of this matters."""
        return max(0.0, self._meter.wait_seconds(now) + RATE.per_seconds - INTERVAL_SECONDS)


class Course:
    """Calls, synchronizations and outages of some replicas, and their model.

    Args:
        time: The time of the replicas.
        replicas: The replicas.
    """

    def __init__(self, time: Time, replicas: list[TimedReplica]) -> None:
        self.history = History()
        self._time = time
        self._replicas = replicas

    async def takes(self, what: str, number: int) -> None:
        """Do one step."""
        if what == "pass":
            await self._time.passes(number)
        elif what == "call":
            self._call(number)
        else:
            replica = self._replicas[number]
            if "call" in what:
                replica.redis.meanwhile = partial(self._call, number)
            elif "lose" in what:
                replica.redis.meanwhile = lose
            await self.history.tell(number, replica.rates, self._time())
            replica.redis.meanwhile = nothing

    async def ends(self) -> None:
        """Let all replicas report their calls, and receive those of the others."""
        for number in range(REPLICAS):
            await self.takes("tell", number)
        for number, each in enumerate(self._replicas):
            each.meter.count(self._time())
            self.history.let_in(number, self._time())
            await self.takes("tell", number)
        for each in self._replicas:
            await each.ask()

    def _call(self, number: int) -> None:
        if self._replicas[number].lets_in():
            self.history.let_in(number, self._time())
            over = self.history.left_seconds(self._time()) - RATE.per_seconds
            assert over <= self.history.unknown_to(number) * INTERVAL_SECONDS + ROUNDING_SECONDS
        else:
            self.history.refuse(number)


def lose() -> None:
    raise ConnectionError("as if the connection broke")


@given(STEPS)
def test_no_replica_lets_in_more_than_the_rate_but_for_what_it_was_not_told(
    redis: RedisServer, steps: list[tuple[str, int]]
) -> None:
    anyio.run(in_any_order, redis.url, steps)


async def in_any_order(url: str, steps: list[tuple[str, int]]) -> None:
    async with replicas(url, REPLICAS) as (time, all_of_them):
        course = Course(time, all_of_them)
        for step in steps:
            await course.takes(*step)
        await course.ends()
        waits = [each.wait_seconds for each in all_of_them]
        left = course.history.left_seconds(time())
    assert waits == pytest.approx([waits[0]] * REPLICAS, abs=ROUNDING_SECONDS)
    at_most = left + course.history.longest_lag_seconds + course.history.lost * INTERVAL_SECONDS
    agreed = waits[0] + RATE.per_seconds - INTERVAL_SECONDS
    assert left - ROUNDING_SECONDS <= agreed <= at_most + ROUNDING_SECONDS
