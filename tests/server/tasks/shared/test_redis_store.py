"""The store of tasks on Redis: claims, their fences, maxima and expiry."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import pytest

from bridge.errors import MissingExtraError
from bridge.server.tasks.shared import redis_store
from bridge.server.tasks.shared.redis_store import LOST, Claim, RedisTaskStore
from bridge.server.tasks.store import TaskRecord
from bridge.tools.task import Task
from tests.redis_server import REDIS, VALKEY, redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio
MAXIMA = 10, 100_000


@pytest.fixture
def anyio_backend() -> str:
    """redis-py runs on asyncio alone."""
    return "asyncio"


@pytest.fixture(scope="module", params=[REDIS, VALKEY])
def redis(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis, and a Valkey."""
    with redis_server(tmp_path_factory.mktemp("redis"), request.param) as server:
        yield server


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[RedisTaskStore]:
    store = RedisTaskStore(redis.url)
    store.connect(f"tests-{uuid4().hex}")
    with anyio.fail_after(30):
        yield store
        await store.replica.redis.aclose()


def record(task_id: str = "a", *, ttl_seconds: float | None = 60, created_at: float | None = None) -> TaskRecord:
    now = time() if created_at is None else created_at
    task = Task(id=task_id, created_at=now, updated_at=now, ttl_seconds=ttl_seconds, poll_interval_seconds=1)
    return TaskRecord(task=task, owner="me", account="me", tool="add", request=b"{}")


async def created(store: RedisTaskStore, of: TaskRecord, *, waits: bool = True) -> None:
    """Create a task, which waits for a process, or is held by "one"."""
    assert await store.create(of, MAXIMA, "one", may_run_again=False) == "ok"
    if waits:
        assert await store.release(of, Claim("one", "1"), is_counted=False, has_begun=False) == "held"


def completed(of: TaskRecord) -> TaskRecord:
    return of.changed(status="completed", outcome=b'{"content":[]}')


async def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.backoff", None)
    message = "a store of tasks on Redis needs the package 'redis': pip install 'mcp-toolbridge[tasks]'"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        RedisTaskStore("redis://localhost")


async def test_a_task_is_claimed_once_and_oldest_first(store: RedisTaskStore) -> None:
    now = time()
    for each, age in (("new", 0), ("old", 5), ("middle", 2)):
        await created(store, record(each, created_at=now - age))
    assert await store.claim("one", 2, ()) == ["old", "middle"]
    assert await store.claim("other", 2, ()) == ["new"]
    assert await store.claim("one", 2, ()) == []
    assert await store.held_by("one") == {"old", "middle"}


async def test_tools_of_another_version_are_left_to_others(store: RedisTaskStore) -> None:
    await created(store, record())
    assert await store.claim("one", 1, ("add", "other")) == []
    assert await store.claim("one", 1, ("other",)) == ["a"]


async def test_tasks_that_a_process_cannot_run_hide_none_that_it_can(store: RedisTaskStore) -> None:
    now = time()
    for number in range(1100):
        task = replace(record(str(number), created_at=now - 30), tool="other")
        assert await store.create(task, (5000, 100_000_000), "one", may_run_again=False) == "ok"
        assert await store.release(task, Claim("one", "1"), is_counted=False, has_begun=False) == "held"
    await store.create(record(), (5000, 100_000_000), "one", may_run_again=False)
    await store.release(record(), Claim("one", "1"), is_counted=False, has_begun=False)
    assert await store.claim("one", 1, ("other",)) == ["a"]
    assert await store.claim("one", 2, ("add",)) != []


async def test_a_process_that_was_taken_for_dead_changes_nothing(store: RedisTaskStore) -> None:
    task = record()
    await created(store, task)
    await store.claim("one", 1, ())
    first = Claim("one", "2")
    assert await store.release(task, first, is_counted=True, has_begun=True) == "held"
    await store.claim("one", 1, ())
    second = Claim("one", "3")
    found = await store.find("a")
    assert found is not None
    assert (found.claim, found.record.runs) == (second, 2)
    assert await store.put(task.changed(status_message="late"), first) == "lost"
    assert await store.finish(completed(task), first, None) == "lost"
    assert await store.finish(completed(task), second, None) == "done"
    assert await store.finish(task.changed(status="failed", outcome=b"{}"), second, None) == "ended"
    found = await store.find("a")
    assert found is not None
    assert found.record.task == completed(task).task


async def test_a_task_that_redis_has_lost_is_restored_unless_another_process_has_it(store: RedisTaskStore) -> None:
    task, claim = record(), Claim("one", "7")
    assert await store.finish(completed(task), claim, None) == "gone"
    assert await store.restore(task, claim, may_run_again=False) == "held"
    assert await store.restore(task, Claim("other", "7"), may_run_again=False) == "lost"
    assert await store.held_by("one") == {"a"}
    assert await store.finish(completed(task), claim, None) == "done"


async def test_a_task_that_failed_because_redis_lost_it_gives_way_to_the_process_that_runs_it(
    store: RedisTaskStore,
) -> None:
    task, claim = record(), Claim("one", "1")
    failed = task.changed(status="failed", outcome=b"{}")
    assert await store.restore(failed, LOST, may_run_again=False) == "held"
    assert await store.restore(failed, LOST, may_run_again=False) == "ended"
    taken = await store.replica.redis.hgetall(store.replica.key("taken"))
    assert (taken["open"], taken["bytes"]) == ("0", str(failed.stored_bytes))
    assert await store.finish(completed(task), claim, None) == "gone"
    assert await store.restore(task, claim, may_run_again=False) == "held"
    assert await store.restore(failed, LOST, may_run_again=False) == "lost"
    assert await store.finish(completed(task), claim, None) == "done"
    found = await store.find("a")
    assert found is not None
    assert found.record.task == completed(task).task


async def test_a_claim_that_redis_has_lost_is_restored_out_of_the_queue(store: RedisTaskStore) -> None:
    task = record()
    await created(store, task)
    assert await store.restore(task, Claim("one", "2"), may_run_again=False) == "held"
    assert await store.claim("other", 1, ()) == []


async def test_places_and_bytes_are_given_back(store: RedisTaskStore) -> None:
    task = record()
    maxima = 2, 5 * task.stored_bytes
    assert await store.create(task, maxima, "one", may_run_again=False) == "ok"
    assert await store.create(record("b"), maxima, "one", may_run_again=False) == "tasks"
    large = task.changed(status="completed", outcome=b" " * 10_000)
    assert await store.finish(large, Claim("one", "1"), maxima[1]) == "full"
    assert await store.finish(completed(task), Claim("one", "1"), maxima[1]) == "done"
    assert await store.create(record("b"), maxima, "one", may_run_again=False) == "ok"
    for each in "ab":
        await store.forget(each, "one")
    taken = await store.replica.redis.hgetall(store.replica.key("taken"))
    assert taken == {"bytes": "0", "open": "0"}
    assert set(await store.replica.redis.keys(store.replica.key("*"))) == {
        store.replica.key("taken"),
        store.replica.key("runners"),
    }


async def test_expired_tasks_are_unknown_and_leave_nothing(store: RedisTaskStore) -> None:
    old = record(ttl_seconds=1, created_at=time() - 5)
    await created(store, old)
    assert await store.find("a") is None
    assert await store.claim("one", 1, ()) == []
    assert set(await store.replica.redis.keys(store.replica.key("*"))) == {
        store.replica.key("taken"),
        store.replica.key("runners"),
    }


async def test_redis_deletes_an_expired_task_even_if_no_process_does(store: RedisTaskStore) -> None:
    await created(store, record(ttl_seconds=100))
    await store.claim("one", 1, ())
    await store.answer("a", {"name": {"action": "cancel"}})
    for key in ("task", "answers"):
        left = await store.replica.redis.ttl(store.replica.key(key, "a"))
        assert 100 < left <= 160


async def test_no_key_stays_when_no_process_is_left(store: RedisTaskStore) -> None:
    for each in "abc":
        await created(store, record(each))
    await store.claim("one", 2, ())
    await store.answer("a", {"name": {"action": "cancel"}})
    redis = store.replica.redis
    keys = [str(each) for each in await redis.keys(store.replica.key("*"))]
    assert {key.removeprefix(store.replica.key("")).partition(":")[0] for key in keys} == {
        *("task", "answers", "queue", "queued", "of", "mail", "runners", "kept", "sizes", "taken")
    }
    for key in keys:
        assert 60 < await redis.ttl(key) <= 180, key


async def test_bookkeeping_stays_for_a_task_that_never_expires(store: RedisTaskStore) -> None:
    await created(store, record("a", ttl_seconds=None))
    await created(store, record("b"))
    for kind in ("queue", "runners", "kept", "sizes", "taken"):
        assert await store.replica.redis.ttl(store.replica.key(kind)) == -1


@pytest.mark.parametrize("wrong_by_seconds", [-3600, 3600])
async def test_a_task_of_a_process_with_a_wrong_clock_expires_in_time(
    store: RedisTaskStore, monkeypatch: pytest.MonkeyPatch, wrong_by_seconds: int
) -> None:
    with monkeypatch.context() as process:
        process.setattr(redis_store, "time", lambda: time() + wrong_by_seconds)
        await created(store, record(created_at=time() + wrong_by_seconds))
        assert await store.find("a") is not None
    assert await store.claim("other", 1, ()) == ["a"]
    found = await store.find("a")
    assert found is not None
    assert found.seconds_left is not None
    assert 30 < found.seconds_left <= 60


async def test_answers_are_kept_once_and_are_mail_for_the_process(store: RedisTaskStore) -> None:
    await created(store, record())
    await store.claim("one", 1, ())
    await store.answer("a", {"name": {"action": "accept"}})
    await store.answer("a", {"name": {"action": "decline"}, "other": {"action": "cancel"}})
    assert await store.answers("a") == {"name": {"action": "accept"}, "other": {"action": "cancel"}}
    assert [*await store.mail("one")] == ["a"]
    assert [*await store.mail("one")] == []


async def test_a_cancellation_of_a_task_that_runs_is_mail(store: RedisTaskStore) -> None:
    task = record()
    await created(store, task, waits=False)
    await store.cancel(task.changed(status="cancelled"))
    found = await store.find("a")
    assert found is not None
    assert (found.is_cancelled, found.record.task.status) == (True, "working")
    assert [*await store.mail("one")] == ["a"]


async def test_an_id_with_lone_surrogates_is_unknown(store: RedisTaskStore) -> None:
    assert await store.find("\ud800") is None


async def test_the_request_of_a_finished_task_is_deleted(store: RedisTaskStore) -> None:
    task = record()
    await created(store, task, waits=False)
    await store.finish(replace(completed(task), request=b""), Claim("one", "1"), None)
    found = await store.find_with_request("a")
    assert found is not None
    assert found.record.request == b""
