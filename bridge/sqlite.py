"""SQLite files of this package: for their user alone, and told apart from those of other programs before any write."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.private_files import PRIVATE_MODE, open_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BUSY_SECONDS = 1.0
_COMPANIONS = ("-wal", "-shm")


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

    def prepare(self, path: Path) -> None:
        """Create a file for its user alone, or restrict a file of this kind to its user.

        Raises:
            ForeignFileError: It belongs to another program, or has another version; it was not changed.
            OSError: It cannot be opened.
            sqlite3.Error: It is no database, or another process has locked it.
        """
        if str(path) == ":memory:" or (path.exists() and not path.is_file()):  # SQLite says what is wrong
            return
        if path.exists() and path.stat().st_size:
            self._require_own(path)
        os.close(open_private(path, os.O_RDWR))
        for companion in (path.with_name(path.name + end) for end in _COMPANIONS):
            if companion.exists():
                companion.chmod(PRIVATE_MODE)

    def mark(self, connection: sqlite3.Connection) -> None:
        """Write the kind and version into a file, within a transaction."""
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")

    def is_marked(self, connection: sqlite3.Connection) -> bool:
        """Return True for a file that `mark` has written, False for an empty one or that of an earlier checkout."""
        return _pragma(connection, "application_id") == self.application_id

    def _require_own(self, path: Path) -> None:
        # Without a write-ahead log, an immutable database creates no files and takes no locks.
        how = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
        address = f"{path.absolute().as_uri()}?{how}"
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as connection:
            found, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
            schema = _schema(connection) if found == 0 else {}
        if found == self.application_id and version == self.version:
            return
        if found == 0 and ((version == 0 and not schema) or (version == self.version and schema == self.schema)):
            return
        if found == self.application_id or (found == 0 and schema in ({}, self.schema)):
            raise ForeignFileError("it was written by another version of this package; name a new file", version)
        raise ForeignFileError("it is a database of another program; name a new file", None)


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
