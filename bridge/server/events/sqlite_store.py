"""Store of events in the SQLite file of a server's tasks, so that cursors outlive the process."""

from __future__ import annotations

import logging
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, TypeVar

from bridge.server.events.store import (
    OVERHEAD_BYTES,
    STATE_SUFFIX,
    EventStoreError,
    Page,
    Stored,
    read_cursor,
    record_from_json,
    record_to_json,
    written_cursor,
)
from bridge.server.tasks.store import TaskStoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from bridge.server.events.options import EventOptions
    from bridge.server.events.store import EventRecord
    from bridge.server.tasks.sqlite_store import SqliteTaskStore

_T = TypeVar("_T")
_logger = logging.getLogger("bridge.server")

_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS event (
        number INTEGER PRIMARY KEY AUTOINCREMENT, timestamp REAL NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL
    )
    """,
    "CREATE TABLE IF NOT EXISTS event_store (id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS event_subscription (id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
)
_OVER_BYTES = """
    DELETE FROM event WHERE number <= (
        SELECT max(number) FROM (SELECT number, sum(size) OVER (ORDER BY number DESC) AS kept FROM event) WHERE kept > ?
    )
"""
_SAVE = """
    INSERT OR REPLACE INTO event_subscription SELECT ?1, ?2
    WHERE ?3 IS NULL OR EXISTS (SELECT 1 FROM event_subscription WHERE id = ?3)
"""
_DELETE = """
    DELETE FROM event_subscription WHERE id IN (?1, ?3)
    AND EXISTS (SELECT 1 FROM event_subscription WHERE id = ?1 AND coalesce(record = ?2, TRUE))
"""
_NEWEST = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)"
_OLDEST = "SELECT number, timestamp FROM event ORDER BY number LIMIT 1"


class SqliteEventStore:
    """Keeps events beside tasks; see `bridge.server.events.store.EventStore`.

    Args:
        tasks: The store of the tasks, whose file has the events as well.
        options: The options of events.
    """

    is_shared = False

    def __init__(self, tasks: SqliteTaskStore, options: EventOptions) -> None:
        self._tasks = tasks
        self._options = options
        self._id = ""
        self._revision = 0  # one process uses the file

    async def open(self) -> None:
        """Open the file.

        Raises:
            EventStoreError: It cannot be opened, or another process uses it.
        """
        try:
            await self._tasks.open()
        except TaskStoreError as error:
            raise EventStoreError(str(error)) from error
        await self._run(self._prepare)

    async def append(self, records: Sequence[EventRecord]) -> None:
        """Add events, and drop the oldest ones over the maxima; they are on the disk when this returns."""
        rows = [(each.timestamp, record_to_json(each)) for each in records]

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN")
            try:
                connection.executemany(
                    "INSERT INTO event (timestamp, size, record) VALUES (?, ?, ?)",
                    [(timestamp, OVERHEAD_BYTES + len(record), record) for timestamp, record in rows],
                )
                self._trim(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

        await self._run(work)

    async def newest(self) -> str:
        """Return the position after the newest event."""
        return await self._run(lambda connection: written_cursor(self._id, _number(connection, _NEWEST)))

    async def read(self, cursor: str, limit: int) -> Page:
        """Return events after a position; those that are kept if it is none of this store."""
        number = read_cursor(cursor, self._id)

        def work(connection: sqlite3.Connection) -> Page:
            self._trim_old(connection)
            oldest = connection.execute(_OLDEST).fetchone()
            first = _number(connection, _NEWEST) + 1 if oldest is None else oldest[0]
            truncated = number is None or number < first - 1
            after = first - 1 if truncated or number is None else number
            statement = "SELECT number, record FROM event WHERE number > ? ORDER BY number LIMIT ?"
            rows = connection.execute(statement, (after, limit + 1)).fetchall()
            found = []
            for at, record in rows[:limit]:
                try:
                    found.append(Stored(written_cursor(self._id, at), record_from_json(record)))
                except ValueError as error:
                    _logger.error("an event in the file is malformed, and left out: %s", error)  # noqa: TRY400 - as said
            return Page(found, truncated, len(rows) > limit)

        return await self._run(work)

    async def wait(self, cursor: str) -> None:
        """Refuse: no other process appends events."""
        raise NotImplementedError("one process uses a file at a time")

    async def revision(self) -> int:
        """Return a number that changes with the stored subscriptions; see `EventStore.revision`."""
        return self._revision

    async def subscriptions(self) -> Mapping[str, bytes]:
        """Return the stored subscriptions and their states, by identifier."""
        statement = "SELECT id, record FROM event_subscription"
        return await self._run(lambda connection: dict(connection.execute(statement).fetchall()))

    async def subscription(self, identifier: str) -> bytes | None:
        """Return a subscription or a state; None if it is not stored."""
        statement = "SELECT record FROM event_subscription WHERE id = ?"
        found = await self._run(lambda connection: connection.execute(statement, (identifier,)).fetchone())
        return None if found is None else bytes(found[0])

    async def save_subscription(self, identifier: str, record: bytes) -> None:
        """Store a subscription, or the state of one that is stored; it is on the disk when this returns."""
        is_state = identifier.endswith(STATE_SUFFIX)
        of = identifier.removesuffix(STATE_SUFFIX) if is_state else None
        await self._run(lambda connection: connection.execute(_SAVE, (identifier, record, of)))
        self._revision += not is_state

    async def delete_subscription(self, identifier: str, record: bytes | None = None) -> bool:
        """Delete a subscription and its state; see `EventStore.delete_subscription`."""
        row = (identifier, record, identifier + STATE_SUFFIX)
        deleted = await self._run(lambda connection: connection.execute(_DELETE, row).rowcount)
        self._revision += deleted > 0
        return deleted > 0

    async def leads(self, process: str, seconds: float) -> bool:  # noqa: ARG002 - the protocol's
        """Return True: there is no other process."""
        return True

    async def close(self) -> None:
        """Close the file, unless tasks still use it; it may be opened again."""
        await self._tasks.close()

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return await self._tasks.run(work)
        except TaskStoreError as error:
            raise EventStoreError(str(error)) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        for statement in _SCHEMA:
            connection.execute(statement)
        found = connection.execute("SELECT id FROM event_store").fetchone()
        if found is None:
            found = (token_hex(8),)
            connection.execute("INSERT INTO event_store VALUES (?)", found)
        self._id = found[0]

    def _trim(self, connection: sqlite3.Connection) -> None:
        newest = _number(connection, _NEWEST)
        connection.execute("DELETE FROM event WHERE number <= ?", (newest - self._options.max_events,))
        if _number(connection, "SELECT coalesce(sum(size), 0) FROM event") > self._options.max_bytes:
            connection.execute(_OVER_BYTES, (self._options.max_bytes,))
        self._trim_old(connection)

    def _trim_old(self, connection: sqlite3.Connection) -> None:
        kept_from = time() - self._options.kept_seconds
        oldest = connection.execute(_OLDEST).fetchone()
        if oldest is not None and oldest[1] < kept_from:
            statement = (
                "DELETE FROM event WHERE number < coalesce((SELECT min(number) FROM event WHERE timestamp >= ?), ?)"
            )
            connection.execute(statement, (kept_from, _number(connection, _NEWEST) + 1))


def _number(connection: sqlite3.Connection, statement: str) -> int:
    (number,) = connection.execute(statement).fetchone()
    assert isinstance(number, int)
    return number
