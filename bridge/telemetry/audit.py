"""The audit log: a file that is only ever appended to, and that begins anew when it has grown.

A batch of lines is on the disk (``fsync``) when `AuditFile.write` returns. Several processes may share a file: a lock
on it keeps their batches whole, and lets one of them rotate it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from bridge.telemetry.writer import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: one process, one file
    fcntl = None  # type: ignore[assignment]

MODE = 0o600
"""Who may read and write the file: its owner."""
DEFAULT_MAX_BYTES = 100 * 1024 * 1024
"""How long a file may become by default: 100 MiB."""
DEFAULT_KEPT_FILES = 10
"""How many earlier files are kept by default."""


class AuditFile:
    """Appends lines to a file, and keeps earlier files as ``FILE.1``, ``FILE.2``, the youngest first.

    Args:
        path: The file.
        max_bytes: How long it may become before it is rotated. A batch stays together, so that it may be a little more.
        kept_files: How many earlier files are kept.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, kept_files: int = DEFAULT_KEPT_FILES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        self._file = self._opened()

    def write(self, lines: bytes) -> None:
        """Append whole lines, durably.

        Raises:
            OSError: They cannot be; the file is as long as before.
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
                with suppress(OSError):  # no half line before the one that is written when there is room again
                    os.ftruncate(file, size)
                raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _opened(self) -> int:
        if self._path.exists():
            _refuse_irregular(self._path.stat(), self._path)  # before it is opened: a pipe would wait for a reader
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), MODE)
        try:
            _refuse_irregular(os.fstat(file), self._path)
            os.fchmod(file, MODE)  # a file that was there keeps the mode that it had
            _sync_directory(self._path.parent)
        except OSError:
            os.close(file)
            raise
        return file

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file that has the name now, for this process alone."""
        while True:
            held = self._file
            _lock(held)
            if _is_at(held, self._path):
                break
            self._file = self._opened()
            os.close(held)  # which lets go of the lock
        try:
            yield held
        finally:
            if self._file == held:
                _unlock(held)
            else:
                os.close(held)

    def _rotate(self) -> None:
        """Let the file be the youngest of the earlier ones; the lock on it is held meanwhile."""
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n + 1}") for n in range(self._kept_files))]
        if self._kept_files == 0:
            self._path.unlink()
        for older, younger in reversed(list(zip(names[1:], names[:-1], strict=True))):
            with suppress(FileNotFoundError):
                younger.replace(older)
        self._file = self._opened()
        _lock(self._file)


def _refuse_irregular(found: os.stat_result, path: Path) -> None:
    """See that something is a file, which can be made durable, renamed, and kept from others."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _is_at(file: int, path: Path) -> bool:
    """Whether a file that is open is the one at a path: another process may have rotated it."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: int) -> None:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


def _unlock(file: int) -> None:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_UN)


def _sync_directory(path: Path) -> None:
    """Let the name of a new file be on the disk too."""
    if os.name == "posix":
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
