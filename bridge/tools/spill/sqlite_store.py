"""Store of large results in a SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any
from weakref import finalize

from anyio import to_thread

from bridge.sqlite import FileKind, ForeignFileError
from bridge.tools.spill.store import KeptResult, ResultStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.tools.spill.store import Bounds

_KIND = FileKind(
    application_id=0x62725265,  # "brRe"
    version=1,
    schema={
        "result": ("position", "id", "expires_at", "owner", "session", "tool", "length", "content"),
        "result_by_owner": (),
        "result_by_session": (),
    },
)
_BUSY_SECONDS = 5.0
_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS result (
        position INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        expires_at REAL NOT NULL,
        owner TEXT NOT NULL,
        session TEXT NOT NULL,
        tool TEXT NOT NULL,
        length INTEGER NOT NULL,
        content TEXT NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS result_by_owner ON result (owner, position, length)",
    "CREATE INDEX IF NOT EXISTS result_by_session ON result (session)",
)
_OVER = """
    DELETE FROM result WHERE position IN (
        SELECT position FROM (
            SELECT position, sum(length) OVER (ORDER BY position DESC) AS total FROM result {0}
        ) WHERE total > ?
    )
"""
"""Deletes the oldest results, so that the others have at most a number of bytes."""


class SqliteResultStore:
    """Keeps results in a SQLite file.

    Args:
        path: The file, which several processes may share; created if it does not exist, for its user alone. None for a
            temporary file, which no other process can open, and which is gone when the store is closed or the process
            ends.
    """

    is_shared = False

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None
        self._closing: Callable[[], object] | None = None

    async def add(self, result_id: str, kept: KeptResult, bounds: Bounds) -> None:
        """Keep a result; see `bridge.tools.spill.store.ResultStore.add`."""
        now, length = time(), len(kept.content.encode())

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM result WHERE expires_at <= ?", (now,))
            row = (result_id, now + bounds.ttl_seconds, kept.owner, kept.session, kept.tool, length, kept.content)
            connection.execute("INSERT INTO result VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute(_OVER.format("WHERE owner = ?"), (kept.owner, bounds.max_caller_bytes))
            connection.execute(_OVER.format(""), (bounds.max_bytes,))

        await self._run(write)

    async def find(self, result_id: str) -> KeptResult | None:
        """Return a result; see `bridge.tools.spill.store.ResultStore.find`."""
        query = "SELECT owner, session, tool, content FROM result WHERE id = ? AND expires_at > ?"
        row = await self._run(
            lambda connection: connection.execute(query, (result_id, time())).fetchone(), writes=False
        )
        return None if row is None else KeptResult(owner=row[0], session=row[1], tool=row[2], content=row[3])

    async def forget(self, *, owner: str | None = None, session: str | None = None) -> None:
        """Delete results; see `bridge.tools.spill.store.ResultStore.forget`."""
        if self._opened is None and self._path is None:
            return  # nothing was kept
        column, value = ("session", session) if owner is None else ("owner", owner)
        await self._run(lambda connection: connection.execute(f"DELETE FROM result WHERE {column} = ?", (value,)))  # noqa: S608 - one of two names

    async def aclose(self) -> None:
        """Close the file; the next use opens it again."""
        await to_thread.run_sync(self._close)

    def _close(self) -> None:
        with self._lock:
            self._opened = None
            if self._closing is not None:
                self._closing()

    async def _run(self, command: Callable[[sqlite3.Connection], Any], *, writes: bool = True) -> Any:
        return await to_thread.run_sync(self._done, command, writes)

    def _done(self, command: Callable[[sqlite3.Connection], Any], writes: bool) -> Any:
        try:
            with self._lock:
                connection = self._opened or self._open()
                if not writes:
                    return command(connection)
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    return command(connection)
        except (sqlite3.Error, OSError, ForeignFileError) as error:
            place = "a temporary file" if self._path is None else repr(str(self._path))
            raise ResultStoreError(f"large results cannot be kept in {place}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            _KIND.prepare(self._path, _BUSY_SECONDS)
        place = "" if self._path is None else self._path  # SQLite unlinks the file of an empty name when it creates it
        connection = sqlite3.connect(place, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            if self._path is not None:
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF" if self._path is None else "PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            _KIND.mark(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        self._opened, self._closing = connection, finalize(self, connection.close)
        return connection
