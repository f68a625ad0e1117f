"""Store of callers' credentials in a SQLite file, for the processes of one machine.

Credentials are encrypted (AES-256-GCM); callers, servers and times are not, so that an operator can list them. Every
change is on the disk when it returns.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, to_thread

from bridge.gateway.credentials.errors import CredentialStoreError
from bridge.gateway.credentials.store import Credential, CredentialKey, CredentialRecord
from bridge.private_files import make_private_folder
from bridge.sqlite import FileKind, ForeignFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.gateway.credentials.sealing import CredentialSeal
    from bridge.types import Json

_T = TypeVar("_T")

_KIND = FileKind(
    application_id=0x62724372,  # "brCr"
    version=1,
    schema={
        "credential": ("issuer", "subject", "server", "kind", "made_at", "changed_at", "expires_at", "sealed"),
        "renewal": ("issuer", "subject", "server", "holder", "until"),
        "once": ("name", "until", "sealed"),
    },
)
_BUSY_SECONDS = 5.0
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS credential (
        issuer TEXT NOT NULL, subject TEXT NOT NULL, server TEXT NOT NULL, kind TEXT NOT NULL, made_at REAL NOT NULL,
        changed_at REAL NOT NULL, expires_at REAL, sealed TEXT NOT NULL, PRIMARY KEY (issuer, subject, server)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS renewal (
        issuer TEXT NOT NULL, subject TEXT NOT NULL, server TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
        PRIMARY KEY (issuer, subject, server)
    ) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS once (name BLOB PRIMARY KEY, until REAL NOT NULL, sealed TEXT NOT NULL) WITHOUT ROWID",
)
_GET = "SELECT sealed FROM credential WHERE issuer = ? AND subject = ? AND server = ?"
_PUT = "INSERT OR REPLACE INTO credential VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE = """
    UPDATE credential SET kind = ?, made_at = ?, changed_at = ?, expires_at = ?, sealed = ?
    WHERE issuer = ? AND subject = ? AND server = ? RETURNING 1
"""
_DELETE = "DELETE FROM credential WHERE issuer = ? AND subject = ? AND server = ? RETURNING 1"
_RELEASE = "DELETE FROM renewal WHERE issuer = ? AND subject = ? AND server = ? AND holder = ?"
_ROTATE = "UPDATE credential SET sealed = ? WHERE issuer = ? AND subject = ? AND server = ?"
_ACQUIRE = """
    INSERT INTO renewal VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE until <= ? RETURNING holder
"""
_LIST = """
    SELECT issuer, subject, server, kind, made_at, changed_at, expires_at FROM credential
    WHERE subject != '' AND issuer = coalesce(?, issuer)
        AND subject = coalesce(?, subject) AND server = coalesce(?, server)
    ORDER BY issuer, subject, server
"""


class SqliteCredentialStore:
    """Keeps callers' credentials in a SQLite file; a `bridge.gateway.credentials.store.CredentialStore`.

    Args:
        path: The file; created if it does not exist, for its user alone. ``:memory:`` keeps them until it is closed.
        seal: Encrypts the credentials.
    """

    def __init__(self, path: str | Path, seal: CredentialSeal) -> None:
        self._path = Path(path)
        self._seal = seal
        self._connection: sqlite3.Connection | None = None
        self._one_thread = CapacityLimiter(1)

    async def open(self) -> None:
        """Open the file, and encrypt the credentials of older keys with the latest one."""
        if self._connection is None:
            await self._run(self._open)

    async def close(self) -> None:
        """Close the file; it may be opened again."""
        await self._run(self._close)

    async def get(self, key: CredentialKey) -> Credential | None:
        """Return a credential; see `CredentialStore.get`."""
        rows = await self._execute(_GET, *_columns(key))
        return self._seal.credential(rows[0][0], key) if rows else None

    async def put(self, key: CredentialKey, credential: Credential) -> None:
        """Add or replace a credential; see `CredentialStore.put`."""
        times = (credential.made_at, time(), credential.expires_at)
        row = (*_columns(key), credential.kind, *times, self._seal.of_credential(credential, key))
        await self._execute(_PUT, *row)

    async def update(self, key: CredentialKey, credential: Credential) -> bool:
        """Replace a credential; see `CredentialStore.update`."""
        times = (credential.made_at, time(), credential.expires_at)
        row = (credential.kind, *times, self._seal.of_credential(credential, key), *_columns(key))
        return bool(await self._execute(_UPDATE, *row))

    async def delete(self, key: CredentialKey) -> bool:
        """Delete a credential; see `CredentialStore.delete`."""
        return bool(await self._execute(_DELETE, *_columns(key)))

    async def list(
        self, *, issuer: str | None = None, subject: str | None = None, server: str | None = None
    ) -> Sequence[CredentialRecord]:
        """Return descriptions; see `CredentialStore.list`."""
        rows = await self._execute(_LIST, issuer, subject, server)
        return [CredentialRecord(CredentialKey(*row[:3]), *row[3:]) for row in rows]

    async def acquire(self, key: CredentialKey, holder: str, seconds: float) -> bool:
        """Take the right to renew a credential; see `CredentialStore.acquire`."""
        now = time()
        return bool(await self._execute(_ACQUIRE, *_columns(key), holder, now + seconds, now))

    async def release(self, key: CredentialKey, holder: str) -> None:
        """Give the right to renew back; see `CredentialStore.release`."""
        await self._execute(_RELEASE, *_columns(key), holder)

    async def put_once(self, name: str, value: Json, seconds: float) -> None:
        """Keep a value; see `CredentialStore.put_once`."""
        now = time()
        await self._execute("DELETE FROM once WHERE until <= ?", now)
        row = (_digest(name), now + seconds, self._seal.of_value(value, name))
        await self._execute("INSERT OR REPLACE INTO once VALUES (?, ?, ?)", *row)

    async def find_once(self, name: str) -> Json | None:
        """Return a value; see `CredentialStore.find_once`."""
        statement = "SELECT sealed FROM once WHERE name = ? AND until > ?"
        rows = await self._execute(statement, _digest(name), time())
        return self._seal.value(rows[0][0], name) if rows else None

    async def take_once(self, name: str) -> Json | None:
        """Remove and return a value; see `CredentialStore.take_once`."""
        statement = "DELETE FROM once WHERE name = ? AND until > ? RETURNING sealed"
        rows = await self._execute(statement, _digest(name), time())
        return self._seal.value(rows[0][0], name) if rows else None

    async def _execute(self, statement: str, *values: Any) -> Sequence[Any]:
        def execute() -> Sequence[Any]:
            if self._connection is None:
                raise CredentialStoreError(f"the store of credentials in {str(self._path)!r} is not open")
            return self._connection.execute(statement, values).fetchall()

        return await self._run(execute)

    async def _run(self, function: Callable[[], _T]) -> _T:
        """Run a function of the file in a worker thread, one at a time."""
        return await to_thread.run_sync(partial(self._translated, function), limiter=self._one_thread)

    def _translated(self, function: Callable[[], _T]) -> _T:
        try:
            return function()
        except (sqlite3.Error, OSError, ForeignFileError) as error:
            message = f"the credentials in {str(self._path)!r} cannot be used: {error}"
            raise CredentialStoreError(message) from error

    def _open(self) -> None:
        make_private_folder(self._path.parent)
        _KIND.prepare(self._path, _BUSY_SECONDS)
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")  # no encrypted remains of what was forgotten
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            _KIND.mark(connection)
            self._rotate(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _rotate(self, connection: sqlite3.Connection) -> None:
        """Encrypt the credentials of older keys with the latest one; those of unknown keys stay as they are."""
        with closing(connection.cursor()) as cursor:
            for *columns, sealed in cursor.execute("SELECT issuer, subject, server, sealed FROM credential").fetchall():
                key = CredentialKey(*columns)
                if (again := self._seal.rotated(sealed, key)) is not None:
                    cursor.execute(_ROTATE, (again, *columns))

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _columns(key: CredentialKey) -> tuple[str, str, str]:
    return key.issuer, key.subject, key.server


def _digest(name: str) -> bytes:
    return sha256(name.encode()).digest()
