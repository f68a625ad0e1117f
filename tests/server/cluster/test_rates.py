"""Replicas synchronize rates through a real Redis."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from uuid import uuid4

import anyio
import pytest

from bridge.redis import connection_errors, redis_at
from bridge.server.cluster import rates as rates_module
from bridge.server.limits import Rate
from tests.redis_server import redis_server
from tests.server.cluster.timed import (
    EPOCH_SECONDS,
    INTERVAL_SECONDS,
    ROUNDING_SECONDS,
    TimedReplica,
    nothing,
    replicas,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from bridge.server.cluster.rates import ClusterMeter
    from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60


# --- one thing after another -----------------------------------------------------------------------------------------


async def test_what_is_used_up_at_one_is_used_up_at_the_other_once_it_asks(redis: RedisServer) -> None:
    async with replicas(redis.url, 2) as (time, (one, other)):
        assert [one.lets_in() for _ in range(6)] == [True] * 5 + [False]
        await one.rates.synchronize()
        assert other.lets_in()  # it has not asked yet
        await other.rates.synchronize()
        assert not other.lets_in()
        assert other.wait_seconds == pytest.approx(2 * INTERVAL_SECONDS, abs=ROUNDING_SECONDS)
        await time.passes(2 * INTERVAL_SECONDS)
        assert other.lets_in()
        assert one.lets_in()
        await one.rates.synchronize()
        await other.rates.synchronize()
        assert other.wait_seconds == pytest.approx(2 * INTERVAL_SECONDS, abs=ROUNDING_SECONDS)


async def test_bytes_over_the_rate_at_one_keep_out_at_the_other(redis: RedisServer) -> None:
    rate = Rate(100, 1000)
    async with replicas(redis.url, 2) as (time, (one, other)):
        of_one, of_other = (each.meter_of("bytes", rate=rate) for each in (one, other))
        of_one.count_bytes(one.clock(), 250)
        await one.rates.synchronize()
        assert of_other.wait_seconds(other.clock()) < 0  # it has not asked yet
        of_other.count_bytes(other.clock(), 50)
        await other.rates.synchronize()
        assert of_other.wait_seconds(other.clock()) == pytest.approx(2010, abs=ROUNDING_SECONDS)
        await time.passes(2011)
        assert of_other.wait_seconds(other.clock()) < 0


async def test_a_clock_of_redis_that_is_set_back_keeps_nobody_out_for_as_long(redis: RedisServer) -> None:
    async with replicas(redis.url, 1) as (time, (replica,)):
        assert [replica.lets_in() for _ in range(6)] == [True] * 5 + [False]
        await replica.rates.synchronize()
        time.redis_behind_seconds = 1_000_000
        await time.passes(0)
        assert not replica.lets_in()
        await replica.rates.synchronize()
        most = replica.meter.most_seconds
        assert replica.wait_seconds <= most
        await time.passes(most)
        assert replica.lets_in()


async def test_what_is_counted_while_it_asks_stays_counted(redis: RedisServer) -> None:
    async with replicas(redis.url, 1) as (_, (replica,)):
        assert replica.lets_in()
        replica.redis.meanwhile = replica.lets_in
        await replica.rates.synchronize()
        assert replica.wait_seconds == pytest.approx((2 - 4) * INTERVAL_SECONDS, abs=ROUNDING_SECONDS)
        replica.redis.meanwhile = nothing
        await replica.rates.synchronize()
        assert replica.wait_seconds == pytest.approx((2 - 4) * INTERVAL_SECONDS, abs=ROUNDING_SECONDS)


async def test_who_is_refused_hears_what_the_others_let_in_meanwhile(redis: RedisServer) -> None:
    async with replicas(redis.url, 2) as (_, (one, other)):
        for replica in (one, other):
            while replica.lets_in():
                pass
            await replica.rates.synchronize()
        assert one.wait_seconds == pytest.approx(INTERVAL_SECONDS, abs=ROUNDING_SECONDS)
        await one.rates.synchronize()
        assert one.wait_seconds == pytest.approx(6 * INTERVAL_SECONDS, abs=ROUNDING_SECONDS)


async def test_microseconds_are_counted(redis: RedisServer) -> None:
    async with replicas(redis.url, 2) as (time, (one, other)):
        meters = [each.meter_of("busy", rate=Rate(100_000, 1)) for each in (one, other)]
        await one.redis.set(meters[0].key, round((time() + EPOCH_SECONDS + 5) * 1_000_000))
        for _ in range(20):
            meters[0].count(time())
            await one.rates.synchronize()
        meters[1].count(time())
        await other.rates.synchronize()
        assert meters[1].wait_seconds(time()) == pytest.approx(5 + (21 - 99_999) / 100_000, abs=2e-6)


async def test_meters_of_other_callers_tools_patterns_and_rates_are_others(redis: RedisServer) -> None:
    async with replicas(redis.url, 1) as (_, (replica,)):
        meters = [
            replica.meter_of("ada"),
            replica.meter_of("bob"),
            replica.meter_of("ada", "add", "*"),
            replica.meter_of("ada", "add", "a*"),
            replica.meter_of("ada", "add*", "*"),
            replica.meter_of("ada", rate=Rate(1, 100)),
        ]
        assert len({meter.key for meter in meters}) == len(meters)
        assert replica.meter_of("ada").key == meters[0].key


async def test_in_redis_stands_no_name_and_nothing_for_longer_than_it_matters(redis: RedisServer) -> None:
    async with replicas(redis.url, 1) as (_, (replica,)):
        many = [replica.meter_of(f"zoë-{number}") for number in range(1200)]
        for meter in many:
            meter.count(replica.clock())
        await replica.rates.synchronize()
        client = replica.link.redis
        keys = [key async for key in client.scan_iter(f"{replica.link.key('rate')}*", count=10_000)]
        assert sorted(keys) == sorted(meter.key for meter in many)
        assert "zo" not in "".join(keys)
        assert all([0 < await client.pttl(key) <= INTERVAL_SECONDS * 1000 for key in keys[:50]])


# --- in Redis's own time ---------------------------------------------------------------------------------------------


class Running:
    """A replica that runs, in the common time unless another is given, and whose Redis client is to be closed."""

    def __init__(self, url: str, clock: Callable[[], float] = anyio.current_time) -> None:
        self.redis = redis_at(url)
        self.replica = TimedReplica(self.redis, f"rates-{uuid4().hex}", clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.redis.aclose()

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[ClusterMeter]:
        async with self.replica.rates.running():
            yield self.replica.meter

    async def left_seconds(self) -> float:
        return await self.redis.pttl(self.replica.meter.key) / 1000


async def test_what_is_counted_is_told_at_once_and_the_rest_at_the_end(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates_module, "_LAST_SYNCHRONIZATION_SECONDS", DEADLINE_SECONDS)
    async with Running(redis.url) as running:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with running.telling() as meter:
                assert running.replica.lets_in()
                while meter.pending_seconds > 0:  # a command whose response is not awaited is repeated
                    await anyio.lowlevel.checkpoint()
                meter.count(anyio.current_time())
                meter.count(anyio.current_time())
            assert 2 * INTERVAL_SECONDS < await running.left_seconds() <= 3 * INTERVAL_SECONDS


async def test_a_busy_caller_costs_a_round_trip_for_each_pause_at_most(redis: RedisServer) -> None:
    rate = Rate(5_000, 500)
    async with Running(redis.url) as running:
        running.replica.meter = running.replica.meter_of("busy", rate=rate)
        with anyio.fail_after(DEADLINE_SECONDS):
            await running.redis.config_resetstat()
            began_at = anyio.current_time()
            async with running.telling() as meter:
                for _ in range(5_000):
                    meter.count(anyio.current_time())
                    await anyio.lowlevel.checkpoint()
            pauses = (anyio.current_time() - began_at) / rates_module.PAUSE_SECONDS
            told = (await running.redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
            assert 0 < told <= pauses + 3  # the first, the last, and one that finds that the script is unknown
            assert await running.left_seconds() > 0.9 * rate.per_seconds  # nothing is lost, and the rest is admitted


async def test_a_redis_that_comes_back_empty_is_told_all_that_still_matters(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis, anyio.fail_after(DEADLINE_SECONDS):
        async with replicas(redis.url, 2) as (time, (one, other)):
            for _ in range(4):
                assert one.lets_in()
            await one.rates.synchronize()
            redis.end()
            assert one.lets_in()
            assert not one.lets_in()  # without Redis it is limited too
            with pytest.raises(connection_errors()):
                await one.rates.synchronize()
            redis.start()
            await time.passes(0)
            await one.ask()
            assert other.lets_in()
            await other.rates.synchronize()
            assert other.wait_seconds == pytest.approx(2 * INTERVAL_SECONDS, abs=ROUNDING_SECONDS)


async def test_what_is_made_up_for_when_redis_is_back_is_not_told(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis, anyio.fail_after(DEADLINE_SECONDS):
        now = [anyio.current_time()]
        async with Running(redis.url, lambda: now[0]) as running:
            redis.end()
            async with running.telling() as meter:
                for _ in range(20):
                    meter.count(now[0])
                    now[0] += INTERVAL_SECONDS
                now[0] -= INTERVAL_SECONDS
                while running.replica.link.is_up:
                    await anyio.lowlevel.checkpoint()
                now[0] += INTERVAL_SECONDS * 3 / 4
                redis.start()
                while (left := await running.left_seconds()) <= 0:
                    pass
            assert left <= INTERVAL_SECONDS / 4


async def test_while_redis_is_gone_not_without_end_many_meters_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates_module, "_MAX_PENDING", 4)
    with redis_server(tmp_path) as redis, anyio.fail_after(DEADLINE_SECONDS):
        async with Running(redis.url) as running:
            redis.end()
            async with running.telling():
                for number in range(100):
                    running.replica.meter_of(str(number)).count(anyio.current_time())
                while running.replica.link.is_up:
                    await anyio.lowlevel.checkpoint()
                redis.start()
                while not (kept := await running.redis.dbsize()):
                    pass
            assert kept == 4


async def test_a_redis_that_refuses_to_count_is_said_once_and_is_not_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates_module, "HEARTBEAT_SECONDS", 0)
    caplog.set_level(logging.INFO)
    with redis_server(tmp_path) as redis, anyio.fail_after(DEADLINE_SECONDS):
        async with Running(redis.url) as running:
            await running.redis.acl_setuser("default", enabled=True, categories=["+@all"], commands=["-evalsha"])
            async with running.telling() as meter:
                meter.count(anyio.current_time())
                for _ in range(20):  # each is at least one further attempt
                    await running.redis.ping()
                assert running.replica.link.is_up
                await running.redis.acl_setuser("default", enabled=True, categories=["+@all"])
                while await running.left_seconds() <= 0:
                    pass
            said = [record.getMessage() for record in caplog.records if record.name == "bridge.server"]
            assert len(said) == 1
            assert said[0].startswith("Redis refuses to count rates (")
