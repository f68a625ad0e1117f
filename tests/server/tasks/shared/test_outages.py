"""Tasks while Redis hangs, and after it has come back empty."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import pytest
from redis import Redis

from bridge import tool
from bridge.server import Server, http_app
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.shared import claimed_task, redis_store
from bridge.server.tasks.shared.redis_store import RedisTaskStore
from bridge.server.tasks.shared.shared_tasks import SharedTasks
from tests.redis_server import RedisServer, redis_server
from tests.server import http_server
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_SECONDS = 30


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimed_task, "_SAVE_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(redis_store, "_COMMAND_SECONDS", 0.5)


@contextmanager
def slow(server: RedisServer) -> Iterator[None]:
    """Let all commands wait for some time."""
    has_ended = threading.Event()

    def pause() -> None:
        with Redis.from_url(server.url) as redis:
            while not has_ended.is_set():
                redis.execute_command("CLIENT", "PAUSE", "100", "ALL")

    pausing = threading.Thread(target=pause)
    pausing.start()
    try:
        yield
    finally:
        has_ended.set()
        pausing.join()


class TaskServer:
    """A server with a tool that waits for the test."""

    def __init__(self, url: str, name: str | None = None, **options: int) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.runs = 0

        @tool(task=True)
        async def wait() -> str:
            """Waits for the test."""
            self.runs += 1
            self.begun.set()
            await anyio.to_thread.run_sync(self.gate.wait, WAIT_SECONDS, abandon_on_cancel=True)
            return "done"

        tasks = TaskOptions(store=RedisTaskStore(url), **options)
        self.publisher = Server(wait, name=name or f"tests-{uuid4().hex}", tasks=tasks)
        self.app = http_app(self.publisher)

    def key(self, *parts: str) -> str:
        """Return a key on Redis."""
        tasks = self.publisher.tasks
        assert isinstance(tasks, SharedTasks)
        return tasks.runner._store.replica.key(*parts)


def test_a_task_that_runs_survives_a_redis_that_comes_back_empty(own_redis: RedisServer) -> None:
    server = TaskServer(own_redis.url)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        own_redis.end()
        refused = client.call("wait")
        assert (refused["code"], refused["data"]) == (-32603, {"retryAfterSeconds": 10})
        assert client.get(task_id)["code"] == -32603
        own_redis.start()
        server.gate.set()
        while (state := client.get(task_id)).get("status") != "completed":
            assert state.get("code") in {None, -32603}
    assert server.runs == 1


def test_a_task_that_waits_fails_if_redis_comes_back_empty_and_never_runs(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = TaskServer(own_redis.url, max_running=1)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client:
        client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        waiting = client.created("wait")
        own_redis.end()
        own_redis.start()
        while (state := client.get(waiting)).get("status") != "failed":
            assert state.get("code") in {None, -32603}
        message = "Redis has lost this task of 'wait', and its outcome is unknown"
        assert state["error"] == {"code": -32603, "message": message}
        server.gate.set()
        client.settled(client.created("wait"))
    assert server.runs == 2
    assert any("has lost 1 tasks" in record.getMessage() for record in caplog.records)


def test_a_task_that_another_process_runs_is_restored_by_it(own_redis: RedisServer) -> None:
    worker = TaskServer(own_redis.url)
    web = TaskServer(own_redis.url, worker.publisher.name, max_running=0)
    with (
        http_server.serving(worker.app),
        http_server.serving(web.app) as origin,
        TaskClient(origin) as client,
    ):
        task_id = client.created("wait")
        assert worker.begun.wait(WAIT_SECONDS)
        own_redis.end()
        own_redis.start()
        while (state := client.get(task_id)).get("status") is None:
            assert state["code"] == -32603
        worker.gate.set()
        while state.get("status") != "completed":
            assert state["status"] != "failed", state
            state = client.get(task_id)
    assert worker.runs == 1


def test_a_task_that_cannot_be_read_keeps_no_other_from_ending(own_redis: RedisServer) -> None:
    server = TaskServer(own_redis.url, max_running=0)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client:
        broken, other = client.created("wait"), client.created("wait")
        key = server.key
        with Redis.from_url(own_redis.url, decode_responses=True) as redis:
            redis.hset(key("task", broken), "state", "{")
            for each in (broken, other):  # as if a process had died with them
                redis.hset(key("task", each), "runner", "dead")
                redis.sadd(key("of", "dead"), each)
            redis.delete(key("queue"), key("queue", "wait"), key("queued"))
            redis.sadd(key("runners"), "dead")
        assert "its outcome is unknown" in client.settled(other)["error"]["message"]
        assert client.get(broken)["code"] == -32603


def test_tasks_run_once_beside_a_slow_redis(own_redis: RedisServer) -> None:
    server = TaskServer(own_redis.url)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client, slow(own_redis):
        task_id = client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        server.gate.set()
        while client.get(task_id).get("status") != "completed":
            pass
    assert server.runs == 1


def test_requests_are_refused_within_a_deadline_while_redis_hangs(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = TaskServer(own_redis.url)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        with own_redis.hanging():
            for answer in (client.call("wait"), client.get(task_id), client.cancel(task_id)):
                assert answer["code"] == -32603
                assert "try again in 10 seconds" in answer["message"]
        assert "Redis is unavailable (it did not answer within 0.5 seconds): tasks are" in caplog.text
        server.gate.set()
        while client.get(task_id).get("status") != "completed":
            pass
    assert server.runs == 1
