"""Folder: the files of one folder and its subfolders, and of nothing outside it.

The folder is opened once, and every name of a path is opened within the folder before it, without following symbolic
links. There is no moment between a check and its use in which a link could be put in place, and no text of a path is
trusted. Links, files with several hard links, pipes, devices and sockets are refused.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError, ToolError
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_PATH_CHARS = 4_096
"""Maximum length of a path."""
MAX_DEPTH = 64
"""Depth below which `Folder.walk` does not go."""
MAX_ENTRIES = 100_000
"""Maximum entries of one folder that `Folder.walk` examines."""

if hasattr(os, "O_DIRECTORY"):
    FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    """Flags that open a folder, and no link."""
    FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    """Flags that open a file for reading, and no link."""
    CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    """Flags that create a file whose name is free."""
_MAX_SHOWN_CHARS = 200


class Folder:
    """A folder, held open until `close`. Paths are relative to it, with ``/``; methods may be called in any thread.

    Args:
        path: The folder; ``~`` is the home directory.

    Raises:
        DefinitionError: There is no such folder, it cannot be read, or this is neither Linux nor macOS.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not hasattr(os, "O_DIRECTORY"):
            raise DefinitionError("a Folder needs Linux or macOS")
        try:
            self._root = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DefinitionError(f"{os.fspath(path)!r} is not a folder that can be read: {reason}") from error

    def close(self) -> None:
        """Close the folder; later use raises OSError. Idempotent."""
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    @contextmanager
    def opened(self, path: str, *, create: bool = False) -> Iterator[int]:
        """Open a folder within it, and give its file descriptor.

        Args:
            path: The folder; ``.`` is the folder itself.
            create: Create the folders that do not exist.

        Raises:
            ToolError: The path leads out of the folder.
            OSError: A folder does not exist, is none, or is a symbolic link.
        """
        with descended(self._root, parts_of(path), create=create) as folder:
            yield folder

    @contextmanager
    def opened_parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder that holds a file, and give its file descriptor and the file's name in it.

        Raises:
            ToolError: As by `opened`; or the path is the folder itself.
            OSError: As by `opened`.
        """
        *folders, name = parts_of(path) or [""]
        if not name:
            raise ToolError(f"{shown_path(path)} is the root itself; name something in it")
        with descended(self._root, folders, create=create) as folder:
            yield folder, name

    @contextmanager
    def opened_file(self, path: str) -> Iterator[int]:
        """Open a plain file for reading, and give its file descriptor.

        Raises:
            ToolError: The path leads out of the folder, or does not name a plain file.
            OSError: The file does not exist, or cannot be read.
        """
        with self.opened_parent(path) as (folder, name), self.opened_in(folder, name, path) as file:
            yield file

    @contextmanager
    def opened_in(self, folder: int, name: str, path: str) -> Iterator[int]:
        """Open a plain file of an opened folder for reading; see `opened_file`.

        The file is examined before it is opened, which could wake a device, and after, to be sure.
        """
        require_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
        file = os.open(name, FILE, dir_fd=folder)
        try:
            require_plain(os.fstat(file), path)
            yield file
        finally:
            os.close(file)

    def walk(self, path: str = ".", *, hidden: bool = True) -> Iterator[tuple[int, str, str | None]]:
        """Give everything below a folder, sorted by name.

        Args:
            path: The folder.
            hidden: Include entries whose names begin with a dot, and what is below them.

        Yields:
            The file descriptor of the folder that holds an entry, the entry's path, and its name, which is None if it
            is not a file.

        Raises:
            ToolError: As by `opened`.
            OSError: As by `opened`. Folders below it that cannot be opened are left out.
        """
        with self.opened(path) as top:
            yield from self._walk(top, "".join(f"{part}/" for part in parts_of(path)), MAX_DEPTH, hidden=hidden)

    def _walk(self, folder: int, prefix: str, depth: int, *, hidden: bool) -> Iterator[tuple[int, str, str | None]]:
        with os.scandir(folder) as found:
            entries = sorted(islice(found, MAX_ENTRIES), key=lambda entry: entry.name)
        for entry in entries:
            if entry.name.startswith(".") and not hidden:
                continue
            yield folder, prefix + entry.name, entry.name if entry.is_file(follow_symlinks=False) else None
            if depth and entry.is_dir(follow_symlinks=False):
                with suppress(OSError), descended(folder, [entry.name]) as inner:
                    yield from self._walk(inner, f"{prefix}{entry.name}/", depth - 1, hidden=hidden)


@contextmanager
def descended(within: int, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open a folder name by name, each without following a link, and give its file descriptor.

    Args:
        within: File descriptor of the folder to begin in.
        parts: Names of the folders.
        create: Create the folders that do not exist.

    Raises:
        OSError: A folder does not exist, is none, or is a symbolic link.
    """
    folder = os.open(".", FOLDER, dir_fd=within)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            outer, folder = folder, os.open(part, FOLDER, dir_fd=folder)
            os.close(outer)
        yield folder
    finally:
        os.close(folder)


def parts_of(path: str) -> list[str]:
    """Return the names that a relative path consists of.

    Raises:
        ToolError: It is not a path, or leads out of its folder.
    """
    if len(path) > MAX_PATH_CHARS or any(char == "\0" or "\ud800" <= char <= "\udfff" for char in path):
        raise ToolError(f"{shown_path(path)} is not a path")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts:
        raise ToolError(
            f"{shown_path(path)} leads out of the root; name files relative to it, such as 'notes/today.txt'"
        )
    return parts


def require_plain(status: os.stat_result, path: str) -> os.stat_result:
    """Return the status of a file that may be used.

    Raises:
        ToolError: It is a link, a folder, a pipe, a device or a socket, or has several hard links.
    """
    if stat.S_ISLNK(status.st_mode):
        raise ToolError(f"{shown_path(path)} is a symbolic link, and those are not followed")
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{shown_path(path)} is a folder, and only files are opened")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{shown_path(path)} is a pipe, a device or a socket, and only files are opened")
    if status.st_nlink > 1:
        raise ToolError(f"{shown_path(path)} has another hard link, which may be outside the root, and is not touched")
    return status


@contextmanager
def reserved(folder: int, name: str, *, is_folder: bool) -> Iterator[None]:
    """Take a name in an opened folder, so that a rename to it overwrites nothing; give it back after an exception.

    Raises:
        FileExistsError: The name is taken.
    """
    if is_folder:
        os.mkdir(name, dir_fd=folder)
    else:
        os.close(os.open(name, CREATE, dir_fd=folder))
    try:
        yield
    except BaseException:
        (os.rmdir if is_folder else os.unlink)(name, dir_fd=folder)
        raise


def shown_path(path: str) -> str:
    """Return a path for messages."""
    return repr(clip(path, _MAX_SHOWN_CHARS))
