"""Writing a file so that nothing is lost: one process at a time, whole or not at all, with a copy of what it was."""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING

from bridge.cli.reporting import CommandError
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_logger = logging.getLogger("bridge.cli")

_NEW_FILE_MODE = 0o666  # less what the umask takes away
_LOCK_SECONDS = 30.0


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Be the only process of this user that reads, edits and writes a file in this block.

    The lock is a file in the user's state folder: nothing is left beside the file itself. Where that folder cannot be
    written, the block runs without a lock, and a warning says so.

    Raises:
        CommandError: Another process has not finished in time.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - slow to load, and seldom needed

    from bridge.client.auth.store import state_folder  # noqa: PLC0415 - likewise

    folder = state_folder() / "locks"
    name = sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name}.lock", mode=0o600)
        lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout:
        told = f"another process has been writing {path} for {with_count(_LOCK_SECONDS, 'second')}; try again"
        raise CommandError(told) from None
    except OSError as error:
        _logger.warning("%s is written without a lock: %s", path, error)
        yield
        return
    try:
        yield
    finally:
        lock.release()


def regular_file(path: Path) -> Path:
    """The file that a path leads to, through symbolic links; it may not be there yet.

    Raises:
        OSError: It is no regular file, such as a directory or a pipe, or its links lead to no end.
    """
    try:
        path = path.resolve()
        is_regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return path
    except RuntimeError:  # Python 3.12 and before
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    if not is_regular:
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path


def replace_file(path: Path, data: bytes) -> Path | None:
    """Write a file; what it held before is kept beside it.

    The new content is complete on disk before it takes the old one's place, under the same permissions. A symbolic
    link stays one: what it points to is written.

    Args:
        path: The file; its directories are made where they are missing.
        data: All that it is to hold.

    Returns:
        The copy of what it held, or None where there was no file.

    Raises:
        OSError: The disk is full, writing is not allowed, or it is no regular file; the file is what it was.
    """
    path = regular_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        before, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        _written(_free_name(path, ".new"), data, None).replace(path)
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    backup = _written(_free_name(path, ".bak"), before, mode)
    try:
        _written(_free_name(path, ".new"), data, mode).replace(path)
    except OSError:
        backup.unlink()
        raise
    return backup


def _free_name(path: Path, suffix: str) -> Path:
    return next(
        name
        for number in count(1)
        if not (name := path.with_name(path.name + suffix + ("" if number == 1 else str(number)))).exists()
    )


def _written(path: Path, data: bytes, mode: int | None) -> Path:
    """Write a file that was not there, and wait until the disk has it; where that fails, it is not there again."""
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode or _NEW_FILE_MODE
    )
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if mode is not None:
            path.chmod(mode)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
    return path
