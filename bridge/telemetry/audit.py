"""Audit log: an append-only file that is rotated at a maximum length.

A batch of lines is on the disk (``fsync``) when `AuditFile.write` returns. Several processes may share a file, which
they lock to append a batch or to rotate it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from bridge.private_files import open_private
from bridge.telemetry.writer import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: one process, one file
    fcntl = None  # type: ignore[assignment]

DEFAULT_MAX_BYTES = 100 * 1024 * 1024
"""Default maximum length of the file: 100 MiB."""
DEFAULT_KEPT_FILES = 10
"""Default number of earlier files."""


class AuditFile:
    """Appends lines to a file, and keeps earlier files as ``FILE.1``, ``FILE.2``, the latest first.

    Args:
        path: The file.
        max_bytes: Length at which the file is rotated. A batch is never divided, so that the file may be a little
            longer.
        kept_files: Number of earlier files.

    Raises:
        OSError: The file cannot be opened, or is not a regular file.
    """

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, kept_files: int = DEFAULT_KEPT_FILES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        self._file = self._opened()

    def write(self, lines: bytes) -> None:
        """Append complete lines, durably.

        Raises:
            OSError: They could not be written; the file is unchanged.
        """
        with self._locked() as current:
            file, size = current, os.fstat(current).st_size
            if size and size + len(lines) > self._max_bytes:
                self._rotate()
                file, size = self._file, 0
            try:
                write_all(file, lines)
                os.fsync(file)
            except OSError:
                with suppress(OSError):  # remove an incomplete line
                    os.ftruncate(file, size)
                raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _opened(self) -> int:
        if self._path.exists():
            _require_regular(self._path.stat(), self._path)  # before opening, since a pipe would wait for a reader
        file = open_private(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            _require_regular(os.fstat(file), self._path)
            _sync_directory(self._path.parent)
        except OSError:
            os.close(file)
            raise
        return file

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Context in which this process alone holds the lock of the current file."""
        while True:
            held = self._file
            _lock(held)
            if _is_at(held, self._path):
                break
            self._file = self._opened()
            os.close(held)  # releases the lock
        try:
            yield held
        finally:
            if self._file == held:
                _lock(held, is_kept=False)
            else:
                os.close(held)

    def _rotate(self) -> None:
        """Rename the file and its predecessors, and open a new one, while the lock is held."""
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n + 1}") for n in range(self._kept_files))]
        if self._kept_files == 0:
            self._path.unlink()
        for older, younger in reversed(list(zip(names[1:], names[:-1], strict=True))):
            with suppress(FileNotFoundError):
                younger.replace(older)
        self._file = self._opened()
        _lock(self._file)


def _require_regular(found: os.stat_result, path: Path) -> None:
    """Require a regular file, which can be synced, renamed and locked."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _is_at(file: int, path: Path) -> bool:
    """True if an open file is the one at a path; another process may have rotated it."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: int, *, is_kept: bool = True) -> None:
    """Lock a file, or release its lock."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX if is_kept else fcntl.LOCK_UN)


def _sync_directory(path: Path) -> None:
    """Write the name of a new file to the disk."""
    if os.name == "posix":
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
