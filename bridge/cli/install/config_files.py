"""In-place, atomic editing of JSON files.

One member of an object is set; all other characters, including comments and trailing commas, are unchanged. A file is
written by one process at a time, completely or not at all, with a backup.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from bridge.cli.reporting import CommandError
from bridge.client.config.document import blank_comments, parse_jsonc
from bridge.client.config.formats import map_of
from bridge.errors import ConfigError
from bridge.private_files import open_private, state_folder
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_BLANK = re.compile(r"\s*")
_BLANK_OR_COMMENTS = re.compile(r"(?:\s|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE_INDENT = re.compile(r"[ \t]*")
_REST_OF_LINE_COMMENT = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*(?=[\r\n]))")
_FIRST_MEMBER = re.compile(r"\{\s*\n([ \t]+)\S")
_DEFAULT_INDENT = "  "
_logger = logging.getLogger("bridge.cli")
_LOCK_SECONDS = 30.0


def with_member(text: str, section: str, name: str, value: Mapping[str, Any], source: str) -> str:
    """Set ``name: value`` in the object under ``section``, a key at the root that is created if missing.

    The text is JSON with comments and trailing commas; blank text is an empty object. Errors name its ``source``.

    Raises:
        ConfigError: The text is not JSON.
        ValueError: The root or the section is not an object.
    """
    if not text.strip("\ufeff \t\r\n"):
        return text.rstrip(" \t\r\n") + json.dumps({section: {name: value}}, indent=2, ensure_ascii=False) + "\n"
    document = parse_jsonc(_without_mark(text), source)
    if not isinstance(document, dict) or not isinstance(document.get(section, {}), dict):
        where = "root" if not isinstance(document, dict) else repr(section)
        raise ValueError(f"{source}: its {where} is not a JSON object")  # noqa: TRY004 - not an argument's type
    edited = _Layout(text).with_member(section, name, value)
    document.setdefault(section, {})[name] = value
    assert parse_jsonc(_without_mark(edited), source) == document
    return edited


def set_entry(path: Path, section: str | None, name: str, entry: Mapping[str, Any]) -> tuple[bool, Path | None]:
    """Set a member of a file's object under ``section``, by default the one that has, or would get, this server.

    Returns:
        False if the file has this entry already, and the backup; None for a file that is new or unchanged.

    Raises:
        CommandError: The file cannot be written; it is unchanged.
    """
    try:
        file = regular_file(path)
        text = file.read_bytes().decode() if file.exists() else ""
        where = section or _section_of(text, name, str(path))
        if member_of(text, where, name, str(path)) == entry:
            return False, None
        return True, replace_file(path, with_member(text, where, name, entry, str(path)).encode())
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8; it was not changed") from error
    except (ValueError, ConfigError) as error:
        raise CommandError(f"{error}; it was not changed") from error
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}; it was not changed") from error


def _section_of(text: str, name: str, source: str) -> str:
    document = parse_jsonc(_without_mark(text), source) if text.strip("\ufeff \t\r\n") else {}
    if not isinstance(document, dict) or (section := map_of(document, name)) is None:
        raise ValueError(f"{source}: it has no 'mcpServers', into which the server could be written")
    return section


def member_of(text: str, section: str, name: str, source: str) -> Any:
    """Return the value of a member; None if it is missing or the text is blank.

    Raises:
        ConfigError: The text is not JSON.
    """
    document = parse_jsonc(_without_mark(text), source) if text.strip("\ufeff \t\r\n") else {}
    inner = document.get(section) if isinstance(document, dict) else None
    return inner.get(name) if isinstance(inner, dict) else None


def _without_mark(text: str) -> str:
    return " " + text[1:] if text.startswith("\ufeff") else text


@dataclass(frozen=True, slots=True)
class _Member:
    """Position of an object's member in the text."""

    key: str
    key_start: int
    start: int
    """Start of the value."""
    end: int
    """End of the value."""


class _Layout:
    """Text of a JSON object, and its formatting."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = blank_comments(_without_mark(text))
        self.step = next(filter(None, map(self._step_at, _FIRST_MEMBER.finditer(self.plain))), _DEFAULT_INDENT)
        self.is_one_line = "\n" not in text.strip() and not re.fullmatch(r"\s*\{\s*\}\s*", self.plain)
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def _step_at(self, match: re.Match[str]) -> str:
        """Further indentation of the first member of an object; empty if it is not clear."""
        outer = self.indent_at(match.start())
        return match[1].removeprefix(outer) if match[1].startswith(outer) and match[0][-1] != "}" else ""

    def with_member(self, section: str, name: str, value: Mapping[str, Any]) -> str:
        root = self.plain.index("{")
        found = _last(self.members(root), section)
        if found is None:
            return self.inserted(root, section, {name: value})
        present = _last(self.members(found.start), name)
        if present is None:
            return self.inserted(found.start, name, value)
        dumped = self.dumped(value, self.indent_at(present.key_start))
        return self.text[: present.start] + dumped + self.text[present.end :]

    def members(self, start: int) -> list[_Member]:
        """Members of the object at this position."""
        decoder, found = json.JSONDecoder(), []
        position = self.skip(start + 1)
        while self.plain[position] != "}":
            key, after_key = decoder.raw_decode(self.plain, position)
            value_start = self.skip(self.skip(after_key) + 1)
            _, end = decoder.raw_decode(self.plain, value_start)
            found.append(_Member(key, position, value_start, end))
            position = self.skip(end)
            if self.plain[position] == ",":
                position = self.skip(position + 1)
        return found

    def inserted(self, start: int, key: str, value: Any) -> str:
        """Add a member at the end of the object at this position."""
        members = self.members(start)
        label = json.dumps(key, ensure_ascii=False) + ": "
        if not members:
            return self.into_empty(start, label, value)
        last, close = members[-1], self.skip(members[-1].end)
        if "\n" not in self.text[start:close]:
            return self.put(last.end, ", " + label + json.dumps(value, ensure_ascii=False))
        indent = self.indent_at(members[0].key_start)
        member = self.newline + indent + label + self.dumped(value, indent)
        if (comma := self.trailing_comma(last.end, close)) is not None:
            return self.put(self.end_of_comment(comma + 1), member + ",")
        place = self.end_of_comment(last.end)
        return self.text[: last.end] + "," + self.text[last.end : place] + member + self.text[place:]

    def into_empty(self, start: int, label: str, value: Any) -> str:
        """Like `inserted`, for an object without members; it may contain comments."""
        close = self.skip(start + 1)
        outer = self.indent_at(start)
        place = start + 1 + len(self.text[start + 1 : close].rstrip())
        if self.is_one_line:
            return self.text[:place] + label + self.dumped(value, outer) + self.text[close:]
        closing = self.text[place:close] if "\n" in self.text[place:close] else self.newline + outer
        indent = outer + self.step
        addition = self.newline + indent + label + self.dumped(value, indent) + closing
        return self.text[:place] + addition + self.text[close:]

    def put(self, place: int, addition: str) -> str:
        return self.text[:place] + addition + self.text[place:]

    def skip(self, position: int) -> int:
        """Position of the next significant character."""
        return _end_of(_BLANK, self.plain, position)

    def trailing_comma(self, start: int, end: int) -> int | None:
        """Position of a trailing comma, possibly after comments; None for none."""
        found = _end_of(_BLANK_OR_COMMENTS, self.text, start, end)
        return found if self.text[found] == "," else None

    def end_of_comment(self, position: int) -> int:
        """End of a comment on the rest of the line; the position itself without one."""
        return _end_of(_REST_OF_LINE_COMMENT, self.text, position)

    def indent_at(self, position: int) -> str:
        """Indentation of the line at a position."""
        start = self.text.rfind("\n", 0, position) + 1
        return self.text[start : _end_of(_LINE_INDENT, self.text, start)]

    def dumped(self, value: Any, indent: str) -> str:
        """Serialise a value with indented lines; in a text of one line, on that line."""
        if self.is_one_line:
            return json.dumps(value, ensure_ascii=False)
        return json.dumps(value, indent=self.step, ensure_ascii=False).replace("\n", self.newline + indent)


def _end_of(pattern: re.Pattern[str], text: str, start: int, end: int = sys.maxsize) -> int:
    """End of a match at a position; the position itself without one."""
    match = pattern.match(text, start, end)
    return match.end() if match else start


def _last(members: list[_Member], key: str) -> _Member | None:
    """Last member with this key, which is the one that parsers use."""
    return next((member for member in reversed(members) if member.key == key), None)


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
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
    get secrets, is for its user alone. Symbolic links are
    followed, and missing directories are created.

    Raises:
        OSError: The disk is full, permission is denied, or it is not a regular file; the file is unchanged.
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
