"""The store of tasks in a SQLite file."""

from __future__ import annotations

import sqlite3
import stat
import sys
from contextlib import closing
from time import time
from typing import TYPE_CHECKING, Any

import pytest

from bridge.server import SqliteTaskStore
from bridge.server.tasks import sqlite_store
from bridge.server.tasks.store import TaskRecord, TaskStoreError
from bridge.tools.task import Task

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


def record(task_id: str = "an-id", **changes: Any) -> TaskRecord:
    now = time()
    task = Task(id=task_id, created_at=now, updated_at=now, ttl_seconds=60.0, poll_interval_seconds=1.0)
    made = TaskRecord(
        task=task, owner="ada", account="ada", tool="add", request=b"{}", answers={"name": {"action": "accept"}}, runs=2
    )
    return made.changed(**changes)


async def test_tasks_are_found_after_the_file_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    running, ended = record(), record("other", status="completed", outcome=b'{"content":[]}', ttl_seconds=None)
    first = SqliteTaskStore(path)
    assert await first.open() == []
    for each in (running, ended):
        await first.save(each)
    await first.close()
    second = SqliteTaskStore(path)
    assert sorted(await second.open(), key=lambda each: each.task.id) == [running, ended]
    assert await second.find("other") == ended
    await second.delete("other")
    assert await second.find("other") is None
    await second.close()
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_an_expired_task_is_deleted_when_the_file_is_opened(tmp_path: Path) -> None:
    store = SqliteTaskStore(tmp_path / "tasks.db")
    await store.open()
    await store.save(record(created_at=time() - 61))
    await store.close()
    assert await store.open() == []
    await store.close()


async def test_an_id_that_is_no_unicode_text_is_unknown(tmp_path: Path) -> None:
    store = SqliteTaskStore(tmp_path / "tasks.db")
    await store.open()
    assert await store.find("\ud800") is None
    await store.close()


@pytest.mark.parametrize("state", ["{", "[]", '{"id": 1}'], ids=["syntax", "list", "members"])
async def test_a_malformed_task_is_left_out_and_the_others_are_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    path, good = tmp_path / "tasks.db", record()
    store = SqliteTaskStore(path)
    await store.open()
    await store.save(good)
    await store.save(record("bad"))
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE task SET state = ? WHERE id = 'bad'", (state.encode(),))
        connection.commit()
    assert await store.open() == [good]
    assert "tasks.db' is malformed" in caplog.text
    assert "it is left out" in caplog.text
    with pytest.raises(TaskStoreError, match="is malformed"):
        await store.find("bad")
    await store.close()


async def test_a_file_of_another_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_BUSY_SECONDS", 0.01)
    path = tmp_path / "tasks.db"
    first, second = SqliteTaskStore(path), SqliteTaskStore(path)
    await first.open()
    with pytest.raises(TaskStoreError, match=r"tasks\.db' cannot be used: another process uses the file; give each"):
        await second.open()
    with pytest.raises(TaskStoreError, match="another process uses the file"):
        second.check()
    await first.close()
    second.check()
    assert await second.open() == []
    await second.close()


async def test_a_full_disk_is_an_error_and_the_record_before_stays(tmp_path: Path) -> None:
    store = SqliteTaskStore(tmp_path / "tasks.db")
    await store.open()
    await store.save(record())
    connection = store._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(TaskStoreError, match="database or disk is full"):
        await store.save(record(status="completed", outcome=b"x" * 100_000))
    found = await store.find("an-id")
    assert found is not None
    assert found.task.status == "working"
    await store.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"no database" * 1000, "file is not a database"), (None, "written by another version of this package")],
    ids=["no database", "another version"],
)
async def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "tasks.db"
    if content is None:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 7")
        connection.close()
    else:
        path.write_bytes(content)
    with pytest.raises(TaskStoreError, match=reason):
        await SqliteTaskStore(path).open()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskStoreError, match="No such file or directory"):
        await SqliteTaskStore(tmp_path / "missing" / "tasks.db").open()


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    with pytest.raises(TaskStoreError, match="is not open"):
        await SqliteTaskStore(tmp_path / "tasks.db").find("x")
