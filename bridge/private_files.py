"""Files for their user alone, which may contain secrets."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

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
