"""Stores for conversations in SQLite and Redis.

Each append is one transaction, so that concurrent processes append complete turns and a killed process leaves none
incomplete. The SQLite file uses WAL mode, in which readers do not wait. Redis commands are not retried: if the
connection breaks after the server executed a command, a retry would store the turn twice. Redis needs the extra
``redis``.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from anyio import to_thread

from bridge.errors import MemoryStoreError, WireError
from bridge.redis import blocking_redis_at, connection_errors, unreachable
from bridge.service.memory.store import StoredMessages, memory_key
from bridge.service.messages import SystemMessage, message_from_text, message_to_text, system_message_from_text
from bridge.sqlite import FileKind, ForeignFileError
from bridge.tools.checks import require_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.service.messages import ChatMessage

_T = TypeVar("_T")
_KIND = FileKind(
    application_id=0x6272436F,  # "brCo"
    version=1,
    schema={"message": ("position", "memory_id", "is_system", "json"), "message_by_conversation": ()},
)
_BUSY_SECONDS = 30.0

_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS message (
        position INTEGER PRIMARY KEY,
        memory_id TEXT NOT NULL,
        is_system INTEGER NOT NULL,
        json TEXT NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS message_by_conversation ON message (memory_id, is_system, position)",
)

_INSERT = "INSERT INTO message (memory_id, is_system, json) VALUES (?, ?, ?)"

_NEWEST = """
    SELECT position, json FROM message
    WHERE memory_id = ? AND is_system = ? AND position < ? ORDER BY position DESC LIMIT ?
"""

_END = 2**63 - 1
_RETRY_SECONDS = 0.01


class _BlockingStore(ABC):
    """Runs a store's blocking commands in worker threads."""

    _failures: tuple[type[Exception], ...]
    """Exceptions that mean that the store cannot be used."""

    async def read(self, memory_id: Any, *, limit: int, before: int | None = None) -> StoredMessages:
        """See `bridge.service.memory.store.ChatMemoryStore.read`.

        Raises:
            MemoryStoreError: The store cannot be used. The other methods raise it as well.
        """
        return await self._run(self._read, memory_key(memory_id), limit, before)

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        """See `bridge.service.memory.store.ChatMemoryStore.append`."""
        await self._run(self._append, memory_key(memory_id), messages)

    async def delete(self, memory_id: Any) -> None:
        """See `bridge.service.memory.store.ChatMemoryStore.delete`."""
        await self._run(self._delete, memory_key(memory_id))

    async def _run(self, command: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return await to_thread.run_sync(command, *arguments)
        except self._failures as error:
            raise MemoryStoreError(self._described(error)) from error

    @abstractmethod
    def _read(self, key: str, limit: int, before: int | None) -> StoredMessages: ...

    @abstractmethod
    def _append(self, key: str, messages: Sequence[ChatMessage]) -> None: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    @abstractmethod
    def _described(self, error: Exception) -> str: ...


class SqliteStore(_BlockingStore):
    """Stores conversations in an SQLite file. The file is opened on first use and can be used from any thread.

    Args:
        path: The file; created if it does not exist, for its user alone. A file of another program is refused, and not
            changed.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._failures = (sqlite3.Error, OSError, ForeignFileError)
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None
        self._closing: Callable[[], object] | None = None

    def close(self) -> None:
        """Close the file; it is reopened on next use. A store that nobody refers to any more closes its file itself."""
        with self._lock:
            if self._closing is not None:
                self._closing()
                self._opened = self._closing = None

    def _described(self, error: Exception) -> str:
        is_busy = _is_busy(error)
        reason = f"another program has kept it locked for {_BUSY_SECONDS:g} seconds" if is_busy else str(error)
        return f"the conversations in {str(self._path)!r} cannot be used: {reason}"

    def _read(self, key: str, limit: int, before: int | None) -> StoredMessages:
        with self._lock, closing(self._connection().cursor()) as cursor:
            rows = cursor.execute(_NEWEST, (key, False, _END if before is None else before, limit)).fetchall()
            system = cursor.execute(_NEWEST, (key, True, _END, 1)).fetchone()
        rows.reverse()
        return StoredMessages(
            messages=[message_from_text(text) for _, text in rows],
            before=rows[0][0] if len(rows) == limit else None,
            system=None if system is None else system_message_from_text(system[1]),
        )

    def _append(self, key: str, messages: Sequence[ChatMessage]) -> None:
        rows = [(key, isinstance(message, SystemMessage), message_to_text(message)) for message in messages]
        with self._lock:
            connection = self._connection()
            with connection:  # commit, or roll back on error
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(_INSERT, rows)

    def _delete(self, key: str) -> None:
        with self._lock:
            self._connection().execute("DELETE FROM message WHERE memory_id = ?", (key,))

    def _connection(self) -> sqlite3.Connection:
        if self._opened is not None:
            return self._opened
        try:
            _KIND.prepare(self._path, _BUSY_SECONDS)
        except ForeignFileError as error:
            if error.version is None:
                raise
            message = f"{str(self._path)!r} was written by a newer version, {error.version}; upgrade to read it"
            raise WireError(message) from error
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._opened = connection
        self._closing = finalize(self, connection.close)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        _enable_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        if not _KIND.is_marked(connection):
            with connection:  # commit, or roll back on error
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    connection.execute(statement)
                _KIND.mark(connection)


def _is_busy(error: Exception) -> bool:
    """Return True if another connection holds the lock; the lowest byte of an extended error code is the basic code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging, so that readers and writers do not wait for each other."""
    give_up_at = monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Another process may be switching modes at the same time; SQLite's busy timeout does not cover that.
            if not _is_busy(error) or monotonic() > give_up_at:
                raise
            sleep(_RETRY_SECONDS)
        else:
            return


class RedisStore(_BlockingStore):
    """Stores conversations on a Redis server: one list per conversation, and the newest system message.

    Args:
        url: URL of the server, such as ``redis://localhost:6379/0``, or ``rediss://`` for TLS.
        prefix: Prefix of the keys.
        expire_seconds: Time after its last turn when a conversation is deleted; None for never.

    Raises:
        DefinitionError: ``expire_seconds`` is not a positive whole number.
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not a Redis URL.
    """

    def __init__(self, url: str, *, prefix: str = "bridge:memory", expire_seconds: int | None = None) -> None:
        require_count(expire_seconds, "expire_seconds", optional=True)
        self._url = url
        self._prefix = prefix
        self._expire_seconds = expire_seconds
        self._redis = blocking_redis_at(url)
        self._failures = connection_errors()

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _described(self, error: Exception) -> str:
        return str(unreachable(self._url, error))

    def _delete(self, key: str) -> None:
        self._redis.delete(*self._keys(key))

    def _keys(self, key: str) -> tuple[str, str]:
        """Return the keys of a conversation; the braces (a hash tag) keep both on the same cluster node."""
        return f"{self._prefix}:{{{key}}}:messages", f"{self._prefix}:{{{key}}}:system"

    def _read(self, key: str, limit: int, before: int | None) -> StoredMessages:
        messages_key, system_key = self._keys(key)
        with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.get(system_key)
            pipeline.llen(messages_key)
            if before is None:
                pipeline.lrange(messages_key, -limit, -1)
            else:
                pipeline.lrange(messages_key, max(0, before - limit), before - 1)
            system, length, texts = pipeline.execute()
        end = length if before is None else before
        if end > length:  # deleted meanwhile: the current messages are newer than the previous page
            end, texts = 0, []
        start = end - len(texts)
        return StoredMessages(
            messages=[message_from_text(text) for text in texts],
            before=start or None,
            system=None if system is None else system_message_from_text(system),
        )

    def _append(self, key: str, messages: Sequence[ChatMessage]) -> None:
        messages_key, system_key = self._keys(key)
        system = [message_to_text(message) for message in messages if isinstance(message, SystemMessage)]
        texts = [message_to_text(message) for message in messages if not isinstance(message, SystemMessage)]
        with self._redis.pipeline(transaction=True) as pipeline:
            if texts:
                pipeline.rpush(messages_key, *texts)
            if system:
                pipeline.set(system_key, system[-1])
            if self._expire_seconds is not None:
                pipeline.expire(messages_key, self._expire_seconds)
                pipeline.expire(system_key, self._expire_seconds)
            pipeline.execute()
