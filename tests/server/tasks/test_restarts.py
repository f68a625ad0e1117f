"""Tasks that outlive the process, and stores that fail."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Any

import anyio

from bridge import Caller, InvocationContext, TaskPolicy, tool
from bridge.server import Server, SqliteTaskStore, TaskOptions, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.tasks import running_task
from bridge.server.tasks.restarts import MAX_RUNS, rerun_request
from bridge.server.tasks.store import MemoryTaskStore, TaskRecord, TaskStoreError
from bridge.tools.task import Task
from tests.server import http_server
from tests.server.tasks.client import SUPPORTS_TASKS, TaskClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from bridge.server.tasks.store import TaskStore

KEY = "a-key-of-tests-that-is-long-enough"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


class TaskServer:
    """A server whose functions record what they do."""

    def __init__(self, store: TaskStore) -> None:
        self.runs: list[str] = []
        self.began = threading.Event()

        @tool(task=True)
        async def add(a: int, b: int) -> int:
            """Adds."""
            self.runs.append("add")
            return a + b

        @tool(task=True, annotations={"idempotentHint": True})
        async def add_again(a: int, b: int, context: InvocationContext) -> str:
            """Adds, as often as it likes."""
            self.runs.append("add_again")
            answer = await context.elicit("Your name?", FORM, key="name")
            caller = f"{context.caller.name} of {context.caller.team}" if context.caller else "nobody"
            return f"{a + b} for {caller}, {(answer.content or {}).get('name')}"

        @tool(task=True)
        async def wait() -> None:
            """Waits for its end."""
            self.began.set()
            await anyio.sleep_forever()

        @tool(task=True, annotations={"readOnlyHint": True})
        async def wait_again() -> None:
            """Waits for its end, as often as it likes."""
            self.runs.append("wait_again")
            self.began.set()
            await anyio.sleep_forever()

        self._publisher = Server([add, add_again, wait, wait_again], name="tests", tasks=TaskOptions(store=store))

    @contextmanager
    def serving(self) -> Iterator[TaskClient]:
        auth = Auth(ApiKeys(ApiKey(name="ada", key=KEY)))
        app = http_app(self._publisher, auth=auth)
        with http_server.serving(app, http="direct") as origin, TaskClient(origin, KEY) as client:
            yield client


def unfinished(tool_name: str, *, runs: int = 1, answers: dict[str, Any] | None = None, **arguments: Any) -> TaskRecord:
    """Make the record that a killed process leaves in its store."""
    now = time()
    context = InvocationContext(caller=Caller("ada", team="data"), client_capabilities=SUPPORTS_TASKS)
    task = Task(
        id=f"the-id-of-{tool_name}", created_at=now, updated_at=now, ttl_seconds=60.0, poll_interval_seconds=1.0
    )
    request = rerun_request(arguments, context) if tool_name.endswith("again") else b""
    return TaskRecord(
        task=task, owner="ada", account="ada", tool=tool_name, request=request, runs=runs, answers=answers or {}
    )


async def left(path: Path, *records: TaskRecord) -> None:
    store = SqliteTaskStore(path)
    await store.open()
    for each in records:
        await store.save(each)
    await store.close()


UNKNOWN = {"code": -32603, "message": "the server ended while 'add' ran, and its outcome is unknown"}
NAME = {"action": "accept", "content": {"name": "Ada"}}


def test_a_result_is_found_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with TaskServer(SqliteTaskStore(path)).serving() as client:
        before = client.settled(task_id := client.created("add", a=1, b=2))
    with TaskServer(SqliteTaskStore(path)).serving() as client:
        assert client.get(task_id) == before


def test_an_unfinished_task_fails_with_an_unknown_outcome_and_is_not_run_again(tmp_path: Path) -> None:
    anyio.run(left, tmp_path / "tasks.db", unfinished("add", a=1, b=2))
    server = TaskServer(SqliteTaskStore(tmp_path / "tasks.db"))
    with server.serving() as client:
        found = client.get("the-id-of-add")
    assert (found["status"], found["error"]) == ("failed", UNKNOWN)
    assert server.runs == []


def test_an_unfinished_task_of_an_idempotent_tool_runs_again_for_its_caller(tmp_path: Path) -> None:
    anyio.run(left, tmp_path / "tasks.db", unfinished("add_again", a=1, b=2))
    with TaskServer(SqliteTaskStore(tmp_path / "tasks.db")).serving() as client:
        task_id = "the-id-of-add_again"
        client.state(task_id, "input_required")
        client.update(task_id, name=NAME)
        assert client.settled(task_id)["result"]["content"] == [{"type": "text", "text": "3 for ada of data, Ada"}]


def test_a_task_that_runs_again_keeps_the_answers_to_its_questions(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    anyio.run(left, path, unfinished("add_again", a=1, b=2, answers={"name": NAME}))
    with TaskServer(SqliteTaskStore(path)).serving() as client:
        found = client.settled("the-id-of-add_again")
    assert found["result"]["content"] == [{"type": "text", "text": "3 for ada of data, Ada"}]


def test_a_task_that_ended_several_processes_does_not_run_again(tmp_path: Path) -> None:
    anyio.run(left, tmp_path / "tasks.db", unfinished("add_again", a=1, b=2, runs=MAX_RUNS))
    server = TaskServer(SqliteTaskStore(tmp_path / "tasks.db"))
    with server.serving() as client:
        assert client.get("the-id-of-add_again")["status"] == "failed"
    assert server.runs == []


def test_a_server_that_ends_stores_unknown_outcomes_and_runs_idempotent_tools_again(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    server = TaskServer(SqliteTaskStore(path))
    with server.serving() as client:
        task_id, idempotent = client.created("wait"), client.created("wait_again")
        assert server.began.wait(20)
    server = TaskServer(SqliteTaskStore(path))
    with server.serving() as client:
        found = client.get(task_id)
        assert found["error"]["message"] == "the server ended while 'wait' ran, and its outcome is unknown"
        assert client.get(idempotent)["status"] == "working"
        assert server.began.wait(20)
    assert server.runs == ["wait_again"]


class FailingStore(MemoryTaskStore):
    """A store that fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.is_broken = False
        self.failed = threading.Event()

    async def save(self, record: TaskRecord) -> None:
        if self.is_full:
            self.failed.set()
            raise TaskStoreError("the disk is full")
        await super().save(record)

    async def find(self, task_id: str) -> TaskRecord | None:
        if self.is_broken:
            raise TaskStoreError("it cannot be read")
        return await super().find(task_id)


def test_a_task_that_cannot_be_stored_is_refused_and_not_run(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore()
    store.is_full = True
    server = TaskServer(store)
    with server.serving() as client:
        refused = client.call("add", a=1, b=2)
        assert refused == {
            "code": -32603,
            "message": "the task of 'add' could not be stored: try again in 10 seconds",
            "data": {"retryAfterSeconds": 10},
        }
        store.is_full = False
        client.settled(client.created("add", a=1, b=2))
    assert server.runs == ["add"]
    assert "a task of 'add' could not be stored: the disk is full" in caplog.text


def test_an_outcome_that_cannot_be_stored_is_found_and_stored_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running_task, "_SAVE_AGAIN_SECONDS", 0.01)
    store = FailingStore()
    with TaskServer(store).serving() as client:
        task_id = client.created("add_again", a=1, b=2)
        client.state(task_id, "input_required")
        store.is_full = True
        client.update(task_id, name=NAME)
        found = client.settled(task_id)
        assert found["status"] == "completed"
        assert store.failed.wait(20)
        store.is_full = False
        while (stored := anyio.run(store.find, task_id)) is None or not stored.task.is_final:
            client.get(task_id)
        assert client.get(task_id) == found
    assert "the outcome of a task of 'add_again' is not stored yet: the disk is full" in caplog.text


class SlowStore(MemoryTaskStore):
    """A store that takes long to save an outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.saving, self.gate, self.deleted = threading.Event(), threading.Event(), threading.Event()
        self.events: list[str] = []

    async def save(self, record: TaskRecord) -> None:
        if record.task.is_final:
            self.saving.set()
            await anyio.to_thread.run_sync(self.gate.wait, 20)
            self.events.append("saved")
        await super().save(record)

    async def delete(self, task_id: str) -> None:
        await super().delete(task_id)
        self.events.append("deleted")
        self.deleted.set()


def test_a_task_that_expires_while_its_outcome_is_stored_is_deleted() -> None:
    store = SlowStore()

    @tool(task=TaskPolicy(ttl_seconds=0.1))
    async def short() -> None:
        """Ends at once."""

    publisher = Server(short, name="tests", tasks=TaskOptions(store=store))
    with http_server.serving(http_app(publisher)) as origin, TaskClient(origin) as client:
        task_id = client.created("short")
        assert store.saving.wait(20)
        while client.get(task_id).get("code") != -32602:  # until it has expired
            pass
        store.gate.set()
        assert store.deleted.wait(20)
        assert store.events == ["saved", "deleted"]


def test_a_store_that_cannot_be_read_is_an_error_that_says_when_to_try_again() -> None:
    store = FailingStore()
    with TaskServer(store).serving() as client:
        task_id = client.created("add", a=1, b=2)
        client.settled(task_id)
        store.is_broken = True
        assert client.get(task_id) == {
            "code": -32603,
            "message": "the store of tasks does not respond: try again in 10 seconds",
            "data": {"retryAfterSeconds": 10},
        }
