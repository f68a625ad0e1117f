"""Store of tasks in a SQLite file, which outlives the process. Events are kept in the same file.

One process uses a file at a time, and holds its lock. Every change is on the disk when it returns.
"""

from __future__ import annotations

import logging
import sqlite3
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, to_thread

from bridge.server.tasks.store import TaskStoreError, record_from_json, record_to_json
from bridge.sqlite import FileKind, ForeignFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bridge.server.tasks.store import TaskRecord

_T = TypeVar("_T")

_logger = logging.getLogger("bridge.server")

_KIND = FileKind(
    application_id=0x62725461,  # "brTa"
    version=1,
    schema={"task": ("id", "expires_at", "state", "request", "outcome")},
)
_BUSY_SECONDS = 1.0
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS task (
        id TEXT PRIMARY KEY, expires_at REAL, state BLOB NOT NULL, request BLOB NOT NULL, outcome BLOB NOT NULL
    ) WITHOUT ROWID;
"""
_SAVE = "INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, ?)"
_FIND = "SELECT state, request, outcome FROM task WHERE id = ?"
_ALL = "SELECT state, request, outcome FROM task"
_EXPIRED = "DELETE FROM task WHERE expires_at < ?"


class SqliteTaskStore:
    """Keeps tasks in a SQLite file; for `TaskOptions`.

    Results are found after a restart. Tasks that had not ended then fail with an unknown outcome, or run again if their
    tool is annotated as idempotent or read-only.

    Args:
        path: The file, for one server process; created if it does not exist, for its user alone. A file of another
            program is refused, and not changed.
    """

    is_durable = True
    is_shared = False

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._users = 0
        """Number of those that have opened the file; events are kept in it, too."""
        self._one_thread = CapacityLimiter(1)

    def beside(self, name: str) -> SqliteTaskStore:
        """Return the store of a profile: another file, with its name at the end."""
        return SqliteTaskStore(self._path.with_name(f"{self._path.name}.{name}"))

    def check(self) -> None:
        """Open and close the file, so that a server that cannot use it does not start.

        Raises:
            TaskStoreError: It cannot be opened, or another process uses it.
        """
        self._translated(self._open)
        self._close()

    async def open(self) -> Sequence[TaskRecord]:
        """Open the file; return the tasks of earlier processes.

        Raises:
            TaskStoreError: It cannot be opened, or another process uses it.
        """
        return await self._run(self._open)

    async def save(self, record: TaskRecord) -> None:
        """Add a task, or replace it; it is on the disk when this returns.

        Raises:
            TaskStoreError: It cannot be written, such as to a full disk; the record before stays.
        """
        kept = record if record.task.is_final else record.changed(status="working", questions={})
        row = (record.task.id, record.expires_at, record_to_json(kept), record.request, record.task.outcome)
        await self._run(partial(self._execute, _SAVE, row))

    async def find(self, task_id: str) -> TaskRecord | None:
        """Return a task; None if there is no such task.

        Raises:
            TaskStoreError: The file, or the task in it, cannot be read.
        """
        try:
            task_id.encode()
        except UnicodeEncodeError:  # lone surrogates, which JSON may have and SQLite may not
            return None
        rows = await self._run(partial(self._execute, _FIND, (task_id,)))
        return self._record(*rows[0]) if rows else None

    async def delete(self, task_id: str) -> None:
        """Delete a task, if it exists.

        Raises:
            TaskStoreError: The file cannot be written.
        """
        await self._run(partial(self._execute, "DELETE FROM task WHERE id = ?", (task_id,)))

    async def close(self) -> None:
        """Close the file; it may be opened again."""
        await self._run(self._close)

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something with the open file: for what is kept beside the tasks.

        Raises:
            TaskStoreError: The file cannot be used.
        """
        return await self._run(lambda: work(self._opened()))

    async def _run(self, function: Callable[[], _T]) -> _T:
        """Run a function of the file in a worker thread, one at a time."""
        return await to_thread.run_sync(partial(self._translated, function), limiter=self._one_thread)

    def _translated(self, function: Callable[[], _T]) -> _T:
        try:
            return function()
        except (sqlite3.Error, OSError, ForeignFileError) as error:
            raise TaskStoreError(f"the tasks in {str(self._path)!r} cannot be used: {_described(error)}") from error

    def _open(self) -> list[TaskRecord]:
        if self._connection is None:
            self._connect()
        self._users += 1
        return [*self._readable(self._opened().execute(_ALL))]

    def _connect(self) -> None:
        _KIND.prepare(self._path, _BUSY_SECONDS)
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
            connection.execute(_EXPIRED, (time(),))
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _readable(self, rows: Iterable[tuple[bytes, bytes, bytes]]) -> Iterator[TaskRecord]:
        """Return the tasks of rows; malformed rows are logged and stay in the file."""
        for row in rows:
            try:
                yield self._record(*row)
            except TaskStoreError as error:
                _logger.error("%s; it is left out", error)  # noqa: TRY400 - the traceback says nothing more

    def _record(self, state: bytes, request: bytes, outcome: bytes) -> TaskRecord:
        try:
            return record_from_json(state, request, outcome)
        except ValueError as error:
            raise TaskStoreError(f"a task in {str(self._path)!r} is malformed: {error!r}") from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")  # takes the lock, which `EXCLUSIVE` keeps
        connection.execute(_SCHEMA)
        _KIND.mark(connection)
        connection.execute("COMMIT")

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        return self._opened().execute(statement, values).fetchall()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise TaskStoreError(f"the store of tasks in {str(self._path)!r} is not open")
        return self._connection

    def _close(self) -> None:
        self._users = max(0, self._users - 1)
        if self._users:
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _described(error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the basic code of an extended one
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return "another process uses the file; give each server its own"
    return str(error)
