"""Atomic writing of the configuration files of clients.

The entry of one server is set; comments and order of a file are kept. A file is written by one process at a time,
completely or not at all, with a backup.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections import Counter
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from bridge.cli.install import json_text, toml_text, yaml_text
from bridge.cli.reporting import CommandError
from bridge.cli.targets.client_entries import merged
from bridge.errors import ConfigError
from bridge.private_files import make_folder, make_private_folder, open_private, state_folder
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Protocol

    class Editor(Protocol):
        """Reads and sets members of objects in texts of one format."""

        def with_member(self, text: str, section: str, name: str, value: Mapping[str, Any], source: str) -> str:
            """Set a member of the object under a key of the root."""

        def member_of(self, text: str, section: str, name: str, source: str) -> Any:
            """Return the value of a member; None if it is missing."""

        def comments(self, text: str) -> list[str]:
            """Comments of a text."""


_logger = logging.getLogger("bridge.cli")
_LOCK_SECONDS = 30.0
_EDITORS: dict[str, Editor] = {".toml": toml_text, ".yaml": yaml_text, ".yml": yaml_text}

_SUFFIXES = frozenset({".json", ".jsonc", *_EDITORS})


def editor_of(suffix: str) -> Editor:
    """Return the editor of files with a suffix; JSON's for any but those of TOML and YAML."""
    return _EDITORS.get(suffix.lower(), json_text)


def set_entry(
    path: Path,
    section: str | None,
    name: str,
    entry: Mapping[str, Any],
    suffix: str = ".json",
    *,
    keeps_settings: bool = False,
) -> tuple[bool, Path | None]:
    """Set a member of a file's object under ``section``, by default the one that has, or would get, this server.

    The ``suffix`` is that of files in the format of this one. With ``keeps_settings``, a present entry keeps its other
    settings; see `bridge.cli.install.client_entries.merged`.

    Returns:
        False if the file has this entry already, and the backup; None for a file that is new or unchanged.

    Raises:
        CommandError: The file cannot be written; it is unchanged.
        MissingExtraError: The package that edits the format is not installed.
    """
    with _unchanged_on_error(path):
        _, edited = _edited(path, section, name, entry, suffix, keeps_settings=keeps_settings)
        return (False, None) if edited is None else (True, replace_file(path, edited.encode()))


def lost_comments(path: Path, section: str, name: str, entry: Mapping[str, Any], suffix: str) -> list[str]:
    """Comments that a file does not have any more once `set_entry` has set an entry, which keeps its settings.

    Raises:
        CommandError: The file cannot be written.
        MissingExtraError: The package that edits the format is not installed.
    """
    with _unchanged_on_error(path):
        text, edited = _edited(path, section, name, entry, suffix, keeps_settings=True)
        if edited is None:
            return []
        comments = editor_of(suffix).comments
        return list((Counter(comments(text)) - Counter(comments(edited))).elements())


def _edited(
    path: Path, section: str | None, name: str, entry: Mapping[str, Any], suffix: str, *, keeps_settings: bool
) -> tuple[str, str | None]:
    """Text of a file, and its text with an entry; None if it has the entry already."""
    if path.suffix.lower() in _SUFFIXES and editor_of(path.suffix) is not editor_of(suffix):
        form = suffix.removeprefix(".").upper()
        raise CommandError(f"{path}: the entry is {form}, and the file has the suffix of another format; name another")
    file = regular_file(path)
    text = file.read_bytes().decode() if file.exists() else ""
    editor = editor_of(suffix)
    where = section or json_text.section_of(text, name, str(path))
    present = editor.member_of(text, where, name, str(path))
    if keeps_settings:
        entry = merged(entry, present)
    return text, None if present == entry else editor.with_member(text, where, name, entry, str(path))


@contextmanager
def _unchanged_on_error(path: Path) -> Iterator[None]:
    """Say that a file was not changed if it cannot be edited or written in this block."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8; it was not changed") from error
    except (ValueError, ConfigError) as error:
        raise CommandError(f"{error}; it was not changed") from error
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}; it was not changed") from error


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Lock a file against other processes of this user during this block.

    The lock file is in the user's state folder. If that folder is not writable, a warning is logged and there is no
    lock.

    Raises:
        CommandError: Another process holds the lock for too long.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - slow to import, rarely needed

    folder = state_folder() / "locks"
    name = sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    try:
        make_private_folder(folder)
        lock = FileLock(folder / f"{name}.lock", mode=0o600)
        lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout:
        message = f"another process has been writing {path} for {with_count(_LOCK_SECONDS, 'second')}; try again"
        raise CommandError(message) from None
    except OSError as error:
        _logger.warning("%s is written without a lock: %s", path, error)
        yield
        return
    try:
        yield
    finally:
        lock.release()


def regular_file(path: Path) -> Path:
    """Resolve symbolic links to a regular file, which may not exist yet.

    Raises:
        OSError: It is not a regular file, or the links are circular.
    """
    try:
        path = path.resolve()
        is_regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return path
    except RuntimeError:  # Python 3.12 and before
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    if not is_regular:
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path


def replace_file(path: Path, data: bytes) -> Path | None:
    """Replace a file's content, and keep a backup next to it, which is returned; None if there was no file.

    The new content is complete on disk before it replaces the old one, with the same permissions; a new file, which may
    get secrets, is for its user alone. Symbolic links are followed, and missing directories are created.

    Raises:
        OSError: The disk is full, permission is denied, or it is not a regular file; the file is unchanged.
    """
    path = regular_file(path)
    make_folder(path.parent)
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
    """Create a file and sync it to disk; it is removed on failure."""
    descriptor = open_private(path, os.O_WRONLY | os.O_EXCL | getattr(os, "O_BINARY", 0))
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
