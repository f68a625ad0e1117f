"""SQLite files of this package: for their user alone, and told apart from those of other programs before any write."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.private_files import PRIVATE_MODE

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPANIONS = ("-wal", "-shm")
_MIN_BYTES = 512
"""Bytes of the smallest database: one page of the smallest size."""


class ForeignFileError(Exception):
    """A file belongs to another program, or to another version of this package.

    Attributes:
        version: The other version; None if it belongs to another program.
    """

    def __init__(self, message: str, version: int | None) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """Kind of file, such as that of tasks."""

    application_id: int
    """Number in the header of a file, by which programs tell files apart (``PRAGMA application_id``)."""
    version: int
    """Version of its schema (``PRAGMA user_version``)."""
    schema: Mapping[str, tuple[str, ...]]
    """Names of its tables, with their columns, and of its indexes, with none."""

    def prepare(self, path: Path, busy_seconds: float) -> None:
        """Create a file for its user alone, or restrict a file of this kind to its user.

        Other processes, and other connections of this one, may use the file meanwhile.

        Args:
            path: The file.
            busy_seconds: Seconds to wait for a process that has locked it.

        Raises:
            ForeignFileError: It belongs to another program, or has another version; it was not changed.
            OSError: It cannot be opened.
            sqlite3.Error: It is no database, or another process has locked it.
        """
        if str(path) == ":memory:" or (path.exists() and not path.is_file()):  # SQLite says what is wrong
            return
        path = Path(os.path.realpath(path))  # SQLite keeps companions beside the file that a link names
        if path.exists() and (found_bytes := path.stat().st_size):
            if found_bytes < _MIN_BYTES:  # SQLite takes some for empty databases
                raise sqlite3.DatabaseError("file is not a database")
            self._require_own(path, busy_seconds)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_MODE))
        except FileExistsError:
            _restrict(path)  # without opening it, since closing it would release the locks of this process
        for end in _COMPANIONS:
            with suppress(FileNotFoundError):  # the last process that closes the file removes them
                _restrict(path.with_name(path.name + end))

    def mark(self, connection: sqlite3.Connection) -> None:
        """Write the kind and version into a file, within a transaction."""
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")

    def is_marked(self, connection: sqlite3.Connection) -> bool:
        """Return True for a file that `mark` has written, False for an empty one or that of an earlier checkout."""
        return _pragma(connection, "application_id") == self.application_id

    def _require_own(self, path: Path, busy_seconds: float) -> None:
        # Without a write-ahead log, an immutable database creates no files and takes no locks.
        how = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
        address = f"{path.as_uri()}?{how}"
        with closing(sqlite3.connect(address, uri=True, timeout=busy_seconds, isolation_level=None)) as connection:
            connection.execute("BEGIN")  # the values are of one moment, though another process may be creating the file
            found, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
            schema = _schema(connection) if found in {0, self.application_id} else {}
        is_like_own = all(schema.get(name, columns) == columns for name, columns in self.schema.items())
        if found == self.application_id and version == self.version and is_like_own:
            return
        if found == 0 and ((version == 0 and not schema) or (version == self.version and schema == self.schema)):
            return
        if (found == self.application_id and version != self.version) or (found == 0 and schema in ({}, self.schema)):
            raise ForeignFileError("it was written by another version of this package; name a new file", version)
        raise ForeignFileError("it is a database of another program; name a new file", None)


def _restrict(path: Path) -> None:
    """Restrict a regular file to its user."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & ~PRIVATE_MODE:
        path.chmod(mode & PRIVATE_MODE)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    assert isinstance(value, int)
    return value


def _schema(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    names = connection.execute("SELECT name, type FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    return {
        name: tuple(row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))
        if kind == "table"
        else ()
        for name, kind in names.fetchall()
    }
