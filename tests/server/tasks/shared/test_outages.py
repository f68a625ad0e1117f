"""Tasks while Redis hangs, and after it has come back empty."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import anyio.from_thread
import pytest
from redis import Redis

from bridge import tool
from bridge.server import Server, http_app
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.shared import claimed_task, redis_store
from bridge.server.tasks.shared.redis_store import RedisTaskStore
from bridge.server.tasks.shared.shared_tasks import SharedTasks
from tests.client.proxy import Proxy
from tests.redis_server import REDIS, VALKEY, RedisServer, redis_server
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


@contextmanager
def failing_over(folder: Path, program: str) -> Iterator[tuple[RedisServer, RedisServer, Proxy]]:
    """A primary, its replica, and the address that leads to one of them."""
    folders = [folder / name for name in ("primary", "replica")]
    for each in folders:
        each.mkdir()
    with (
        redis_server(folders[0], program) as primary,
        redis_server(folders[1], program, "--replicaof", "127.0.0.1", str(primary.port)) as replica,
        anyio.from_thread.start_blocking_portal() as portal,
    ):
        proxy = Proxy(primary.port)
        with portal.wrap_async_context_manager(proxy.running()):
            yield primary, replica, proxy


def wait_for_replica(primary: RedisServer, replica: RedisServer) -> None:
    """Wait until a replica has all data of its primary."""
    with Redis.from_url(primary.url) as one, Redis.from_url(replica.url) as other:
        deadline = monotonic() + WAIT_SECONDS
        while True:
            found: Any = [each.info("replication") for each in (other, one)]
            is_linked = found[0].get("master_link_status") == "up"
            if is_linked and found[0]["slave_repl_offset"] == found[1]["master_repl_offset"]:
                return
            assert monotonic() < deadline


@pytest.mark.slow
@pytest.mark.parametrize("program", [REDIS, VALKEY])
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "demoted"])
def test_tasks_go_on_when_redis_fails_over_to_its_replica(tmp_path: Path, program: str, is_killed: bool) -> None:
    with failing_over(tmp_path, program) as (primary, replica, proxy):
        url = f"redis://127.0.0.1:{proxy.port}/0"
        server = TaskServer(url, max_running=1)
        other = TaskServer(url, server.publisher.name, max_running=0)
        with (
            http_server.serving(server.app) as origin,
            http_server.serving(other.app) as other_origin,
            TaskClient(origin) as client,
            TaskClient(other_origin) as other_client,
        ):
            server.gate.set()
            ended = client.created("wait")
            client.settled(ended)
            server.gate.clear()
            server.begun.clear()
            running = client.created("wait")
            assert server.begun.wait(WAIT_SECONDS)
            waiting = other_client.created("wait")
            wait_for_replica(primary, replica)
            if is_killed:
                primary.kill()
            with Redis.from_url(replica.url) as promoted:
                promoted.replicaof("NO", "ONE")
            proxy.target_port = replica.port
            if not is_killed:  # its clients stay connected, and may only read
                with Redis.from_url(primary.url) as demoted:
                    demoted.replicaof("127.0.0.1", str(replica.port))
            server.gate.set()
            deadline = monotonic() + WAIT_SECONDS
            for task_id in (ended, running, waiting):
                while (state := other_client.get(task_id)).get("status") != "completed":
                    assert state.get("code") in {None, -32603}
                    assert state.get("status") in {None, "working"}
                    assert monotonic() < deadline, state
        assert server.runs == 3
