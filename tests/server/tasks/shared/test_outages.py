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
from bridge.server import Publisher, http_app
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.shared import redis_store, runner
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
    monkeypatch.setattr(runner, "_SAVE_AGAIN_SECONDS", 0.05)
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


class Server:
    """A server with a tool that waits for the test."""

    def __init__(self, url: str, **options: int) -> None:
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
        self.publisher = Publisher(wait, name=f"tests-{uuid4().hex}", tasks=tasks)
        self.app = http_app(wait, publisher=self.publisher)


def test_a_task_that_runs_survives_a_redis_that_comes_back_empty(own_redis: RedisServer) -> None:
    server = Server(own_redis.url)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        own_redis.end()
        refused = client.call("wait")
        assert (refused["code"], refused["data"]) == (-32603, {"retryAfterSeconds": 10})
        assert client.get(task_id)["code"] == -32603
        own_redis.start()
        server.gate.set()
        while client.get(task_id).get("status") != "completed":
            pass
    assert server.runs == 1


def test_the_loss_of_waiting_tasks_is_logged(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(own_redis.url, max_running=1)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client:
        client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        waiting = client.created("wait")
        publisher_tasks = server.publisher.tasks
        assert isinstance(publisher_tasks, SharedTasks)
        while publisher_tasks.runner._waiting == 0:
            client.get(waiting)
        own_redis.end()
        own_redis.start()
        while client.get(waiting).get("code") != -32602:
            pass
        while not any("1 tasks that waited" in record.getMessage() for record in caplog.records):
            client.get(waiting)
        server.gate.set()


def test_tasks_run_once_beside_a_slow_redis(own_redis: RedisServer) -> None:
    server = Server(own_redis.url)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client, slow(own_redis):
        task_id = client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        server.gate.set()
        while client.get(task_id).get("status") != "completed":
            pass
    assert server.runs == 1


def test_requests_are_refused_within_a_deadline_while_redis_hangs(own_redis: RedisServer) -> None:
    server = Server(own_redis.url)
    with http_server.serving(server.app) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        assert server.begun.wait(WAIT_SECONDS)
        with own_redis.hanging():
            for answer in (client.call("wait"), client.get(task_id), client.cancel(task_id)):
                assert answer["code"] == -32603
                assert "try again in 10 seconds" in answer["message"]
        server.gate.set()
        while client.get(task_id).get("status") != "completed":
            pass
    assert server.runs == 1
