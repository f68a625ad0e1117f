"""Tasks on Redis in traces, audit lines and metrics: of another process, and of one that has died."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import pytest

from bridge import tool
from bridge.server import RedisTaskStore, Server, TaskOptions, http_app
from bridge.server.tasks.store import TaskRecord
from bridge.telemetry.current import enabled
from bridge.tools.task import Task
from tests.redis_server import RedisServer, redis_server
from tests.server import http_server
from tests.server.tasks.client import TaskClient
from tests.server.test_observed import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.server.http.app import BridgeApp


@tool(task=True)
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


def app(redis: RedisServer, name: str, max_running: int = 100) -> BridgeApp:
    options = TaskOptions(store=RedisTaskStore(redis.url), max_running=max_running)
    return http_app(Server(add, name=name, tasks=options))


def test_the_work_of_another_process_is_in_the_trace_of_the_call(redis: RedisServer) -> None:
    watched, name = Watched(), uuid4().hex
    with (
        enabled(watched.observer),
        http_server.serving(app(redis, name, max_running=0)) as origin,
        TaskClient(origin) as client,
    ):
        task_id = client.created("add", a=1, b=2)
        with http_server.serving(app(redis, name)):
            client.settled(task_id)
    spans = {span.name: span for span in watched.finished}
    work, call = spans["task add"], spans["tools/call add"]
    assert work.parent is not None
    assert call.context is not None
    assert (work.parent.trace_id, work.parent.span_id) == (call.context.trace_id, call.context.span_id)
    (end,) = (each for each in watched.records if each["event"] == "task")
    assert (end["tool"], end["outcome"], end["request_id"]) == ("add", "ok", task_id[:8])
    assert end["trace_id"] == f"{call.context.trace_id:032x}"


def test_the_end_of_a_task_whose_process_has_died_is_recorded(redis: RedisServer) -> None:
    watched, name, now = Watched(), uuid4().hex, time()
    task = Task(id="lost", created_at=now, updated_at=now, ttl_seconds=60, poll_interval_seconds=1)

    async def leave_behind() -> None:
        store = RedisTaskStore(redis.url)
        store.connect(name)
        await store.register("dead")
        record = TaskRecord(task=task, owner="", account="", tool="add", team="data")
        assert await store.create(record, (10, 100_000), "dead", may_run_again=False) == "ok"
        await store.replica.redis.aclose()

    anyio.run(leave_behind)
    with enabled(watched.observer), http_server.serving(app(redis, name)) as origin, TaskClient(origin) as client:
        found = client.settled("lost")
        while not watched.counts("bridge.task.duration"):  # recorded after it is stored
            client.get("lost")
    assert found["error"] == {
        "code": -32603,
        "message": "the server ended while 'add' ran, and its outcome is unknown",
    }
    (end,) = (each for each in watched.records if each["event"] == "task")
    assert (end["tool"], end["outcome"], end["request_id"], end["team"]) == ("add", "error", "lost", "data")
    ((labels, count),) = watched.counts("bridge.task.duration")
    assert (labels["bridge.task.status"], count) == ("failed", 1)
