"""Files that their user alone can read, or alone can change, and the folder with the state of this package."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE_VARIABLE = "BRIDGE_STATE_DIR"
"""Environment variable for the state folder."""
PRIVATE_MODE = 0o600
"""Mode of a file that its user alone can read and write."""


def open_private(path: str | Path, flags: int) -> int:
    """Open a file that is created for its user alone; an existing regular file is restricted to its user.

    Args:
        path: The file.
        flags: Flags of `os.open`; ``O_CREAT`` is added.

    Returns:
        The file descriptor.

    Raises:
        OSError: It cannot be opened or restricted.
    """
    file = os.open(path, flags | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), PRIVATE_MODE)
    try:
        found = os.fstat(file).st_mode
        if hasattr(os, "fchmod") and stat.S_ISREG(found) and stat.S_IMODE(found) != PRIVATE_MODE:
            os.fchmod(file, PRIVATE_MODE)  # `os.open` does not change the mode of an existing file
    except OSError:
        os.close(file)
        raise
    return file


def make_private_folder(folder: Path) -> None:
    """Create a folder, and the missing ones above it, for their user alone; those that exist stay as they are.

    Raises:
        OSError: One cannot be created, or is a file.
    """
    make_folder(folder, mode=0o700)


def make_folder(folder: Path, *, mode: int = 0o755) -> None:
    """Create a folder, and the missing ones above it, which their user alone can change, whatever the umask is.

    `Path.mkdir` restricts the last one only, and whoever may write to those above can replace what is in it.

    Raises:
        OSError: One cannot be created, or is a file.
    """
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=mode, exist_ok=True)


def write_readable(path: Path, data: bytes, *, must_be_new: bool = False) -> None:
    """Write a file; a new one can be changed by its user alone, whatever the umask is, and read by others.

    Raises:
        OSError: It cannot be written, or exists and must be new.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if must_be_new else os.O_TRUNC) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o644), "wb") as file:
        file.write(data)


def state_folder() -> Path:
    """Folder for the state of this package.

    ``$BRIDGE_STATE_DIR``, else ``bridge`` in ``$XDG_STATE_HOME`` (XDG Base Directory Specification; Windows:
    ``%LOCALAPPDATA%``), else ``~/.local/state/bridge``.
    """
    if chosen := os.environ.get(STATE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_STATE_HOME")
    return Path(base) / "bridge" if base else Path.home() / ".local" / "state" / "bridge"


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name a file in errors of writing it: those of a full disk, and of a broken one, have no name.

    Raises:
        OSError: The error of the block.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
