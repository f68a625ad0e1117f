"""Files of other programs are told apart before anything is written, and our own are private."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import sqlite
from bridge.errors import MemoryStoreError
from bridge.server.tasks.sqlite_store import SqliteTaskStore
from bridge.server.tasks.store import TaskStoreError
from bridge.service.memory.persistent_stores import SqliteStore
from bridge.service.messages import UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

EXPIRED = "INSERT INTO task VALUES ('a', 1, x'00', x'00', x'00')"
FOREIGN = {
    "tables": "CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('Ada')",
    "version": "CREATE TABLE customers (name TEXT); PRAGMA user_version = 1",
    "task": f"CREATE TABLE task (id, expires_at REAL, a, b, c); {EXPIRED}; PRAGMA user_version = 1",
    "more": "CREATE TABLE task (id, expires_at, state, request, outcome);"
    f"CREATE TABLE users (name); {EXPIRED}; PRAGMA user_version = 1",
    "message": "CREATE TABLE message (position, text); PRAGMA user_version = 1",
    "number": "PRAGMA application_id = 7",
    "log": "PRAGMA journal_mode = wal; CREATE TABLE customers (name TEXT)",
}


async def use_tasks(path: Path) -> None:
    store = SqliteTaskStore(path)
    try:
        await store.open()
    finally:
        await store.close()


async def use_conversations(path: Path) -> None:
    store = SqliteStore(path)
    try:
        await store.append("a", [UserMessage.of("secret")])
    finally:
        store.close()


USES = {"tasks": use_tasks, "conversations": use_conversations}


@pytest.fixture(params=USES)
def use(request: pytest.FixtureRequest) -> Any:
    """Function that opens a file."""
    return USES[request.param]


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("script", FOREIGN)
async def test_the_database_of_another_program_is_refused_and_stays_as_it_is(
    tmp_path: Path, use: Any, script: str
) -> None:
    path = tmp_path / "other program.db?mode=rw"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FOREIGN[script])
    before, mode = bytes_in(tmp_path), path.stat().st_mode
    with pytest.raises((TaskStoreError, MemoryStoreError), match="a database of another program; name a new file"):
        await use(path)
    assert (bytes_in(tmp_path), path.stat().st_mode) == (before, mode)


@pytest.mark.parametrize("content", [b"\n", b"x" * 15, b"SQLite format 3\0", b"x" * 511, b"x" * 5000])
async def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(
    tmp_path: Path, use: Any, content: bytes
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    before = path.stat().st_mode
    with pytest.raises((TaskStoreError, MemoryStoreError), match="file is not a database"):
        await use(path)
    assert (bytes_in(tmp_path), path.stat().st_mode) == ({"notes.txt": content}, before)


@pytest.mark.parametrize("table", ["task", "message"])
async def test_a_file_with_our_number_and_other_tables_is_refused(tmp_path: Path, use: Any, table: str) -> None:
    path = tmp_path / "data.db"
    await use(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchall():
            return  # of the other kind
        connection.executescript(f"PRAGMA journal_mode = DELETE; DROP TABLE {table}; CREATE TABLE {table} (other)")
    before = bytes_in(tmp_path)
    with pytest.raises((TaskStoreError, MemoryStoreError), match="a database of another program"):
        await use(path)
    assert bytes_in(tmp_path) == before


async def test_a_database_that_another_program_writes_is_refused(tmp_path: Path, use: Any) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.executescript(FOREIGN["log"])
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO customers VALUES ('Ada')")
        with pytest.raises((TaskStoreError, MemoryStoreError), match="a database of another program"):
            await use(path)
        writer.execute("COMMIT")
        assert writer.execute("SELECT name FROM customers").fetchall() == [("Ada",)]
        assert writer.execute("PRAGMA user_version").fetchone() == (0,)


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
async def test_a_database_that_a_link_names_is_told_apart_by_the_log_beside_it(tmp_path: Path, use: Any) -> None:
    path, link = tmp_path / "data" / "other.db", tmp_path / "mine.db"
    path.parent.mkdir()
    link.symlink_to(path)
    with closing(sqlite3.connect(path)) as writer:
        writer.executescript(FOREIGN["log"])
        with pytest.raises((TaskStoreError, MemoryStoreError), match="a database of another program"):
            await use(link)
        writer.executescript("DROP TABLE customers")
    await use(link)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize("reads", [1, 2])
async def test_a_file_that_another_process_is_creating_is_used(
    tmp_path: Path, use: Any, monkeypatch: pytest.MonkeyPatch, reads: int, *, has_log: bool
) -> None:
    path, created = tmp_path / "new.db", tmp_path / "created.db"
    await use(created)
    creator = sqlite3.connect(path, check_same_thread=False)
    creator.execute("PRAGMA journal_mode = WAL")
    if has_log:
        creator.execute("SELECT * FROM sqlite_schema")
    assert path.with_name("new.db-wal").exists() == has_log
    found, read = [], sqlite._pragma

    def read_before(connection: sqlite3.Connection, name: str) -> int:
        number = read(connection, name)
        found.append(number)
        if len(found) == reads:  # the other process writes all at this moment
            with closing(sqlite3.connect(created)) as source:
                source.backup(creator)
            creator.close()
        return number

    monkeypatch.setattr(sqlite, "_pragma", read_before)
    await use(path)
    assert found[:2] == [0, 0]


async def test_a_file_that_one_process_opens_twice_stays_locked(tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"
    counting = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]);"
        "print(*file.execute('SELECT count(*) FROM message').fetchone()); file.close()"
    )
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as again:
        for count in (2, 4):
            for each in (store, again):
                await each.append("a", [UserMessage.of("Hello")])
            # The other process would remove the log if it believed to be the last one.
            run = await anyio.run_process([sys.executable, "-c", counting, str(path)])
            assert run.stdout == f"{count}\n".encode()


async def test_tasks_and_conversations_do_not_share_a_file(tmp_path: Path) -> None:
    await use_tasks(tmp_path / "tasks.db")
    with pytest.raises(MemoryStoreError, match="another program"):
        await use_conversations(tmp_path / "tasks.db")
    await use_conversations(tmp_path / "notes.db")
    with pytest.raises(TaskStoreError, match="another program"):
        await use_tasks(tmp_path / "notes.db")


async def test_files_of_earlier_checkouts_and_empty_ones_are_used(tmp_path: Path, use: Any) -> None:
    path = tmp_path / "mine.db"
    path.touch()
    for _ in range(3):
        await use(path)
        with closing(sqlite3.connect(path)) as connection:
            (kind,) = connection.execute("PRAGMA application_id").fetchone()
            assert kind > 0
            connection.execute("PRAGMA application_id = 0")  # as it was before


def modes(path: Path) -> dict[str, int]:
    """Modes of a file and of those that SQLite keeps beside it."""
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")
async def test_files_are_for_their_user_alone_also_those_of_earlier_checkouts(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    private = {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as again:
        await store.append("a", [UserMessage.of("secret")])
        assert modes(path) == private
        for name in private:
            path.with_name(name).chmod(0o644)
        await again.append("a", [UserMessage.of("secret")])
        assert modes(path) == private
