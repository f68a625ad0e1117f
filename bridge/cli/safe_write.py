"""Writing a file so that nothing is lost: whole or not at all, with a copy of what it was."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NEW_FILE_MODE = 0o666  # less what the umask takes away


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
        OSError: The disk is full, or writing is not allowed; the file is what it was.
    """
    path = path.resolve()
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
