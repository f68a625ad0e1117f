"""Editing JSON files in place, atomically.

Editing JSON text: one member of one object is put in, and every other character stays what it was.

Comments and trailing commas, as editors allow them in their configuration, are read over and kept.

Writing a file so that nothing is lost: one process at a time, whole or not at all, with a copy of what it was.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from bridge.cli.reporting import CommandError
from bridge.client.config.document import blank_comments, parse_jsonc
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_BLANK = re.compile(r"\s*")

_BLANK_OR_COMMENTS = re.compile(r"(?:\s|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)

_LINE_INDENT = re.compile(r"[ \t]*")

_REST_OF_LINE_COMMENT = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*(?=[\r\n]))")

_FIRST_INDENT = re.compile(r"\{[^\S\n]*\r?\n([ \t]+)")

_DEFAULT_INDENT = "  "

_logger = logging.getLogger("bridge.cli")

_NEW_FILE_MODE = 0o666  # less what the umask takes away

_LOCK_SECONDS = 30.0


def with_member(text: str, section: str, name: str, value: Mapping[str, Any], source: str) -> str:
    """The text with ``name: value`` in the object that ``section`` names at the root, in the place of an old one.

    Args:
        text: JSON, comments and trailing commas allowed; blank text stands for an empty object.
        section: The key at the root; made where there is none.
        name: The key in that section.
        value: What to put there.
        source: What to call the text in an error.

    Raises:
        ConfigError: The text is not JSON.
        ValueError: Its root or its section is no object.
    """
    if not text.strip("\ufeff \t\r\n"):
        return text.rstrip(" \t\r\n") + json.dumps({section: {name: value}}, indent=2, ensure_ascii=False) + "\n"
    document = parse_jsonc(_without_mark(text), source)
    if not isinstance(document, dict) or not isinstance(document.get(section, {}), dict):
        where = "root" if not isinstance(document, dict) else repr(section)
        raise ValueError(f"{source}: its {where} is no JSON object")  # noqa: TRY004 - the text is wrong, and no argument
    edited = _Layout(text).with_member(section, name, value)
    document.setdefault(section, {})[name] = value
    assert parse_jsonc(_without_mark(edited), source) == document
    return edited


def member_of(text: str, section: str, name: str, source: str) -> Any:
    """The value of a member, or None where there is none or the text is blank.

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
    """A member of an object, by where it stands in the text."""

    key: str
    key_start: int
    start: int
    """Where its value begins."""
    end: int
    """Where its value ends."""


class _Layout:
    """A text that is a JSON object, and how it is laid out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = blank_comments(_without_mark(text))
        first = _FIRST_INDENT.search(self.plain)
        self.step = first[1] if first else _DEFAULT_INDENT
        self.newline = "\r\n" if "\r\n" in text else "\n"

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
        """The members of the object that starts there."""
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
        """The text with a member at the end of the object that starts there."""
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
        """As `inserted`, where there is no member yet; comments may be there."""
        close = self.skip(start + 1)
        outer = self.indent_at(start)
        place = start + 1 + len(self.text[start + 1 : close].rstrip())
        closing = "" if "\n" in self.text[place:close] else self.newline + outer
        indent = outer + self.step
        return self.put(place, self.newline + indent + label + self.dumped(value, indent) + closing)

    def put(self, place: int, addition: str) -> str:
        return self.text[:place] + addition + self.text[place:]

    def skip(self, position: int) -> int:
        """Where the next character stands that means something."""
        match = _BLANK.match(self.plain, position)
        assert match is not None
        return match.end()

    def trailing_comma(self, start: int, end: int) -> int | None:
        """Where a comma stands that no member follows; comments may stand before it."""
        match = _BLANK_OR_COMMENTS.match(self.text, start, end)
        assert match is not None
        return match.end() if self.text[match.end()] == "," else None

    def end_of_comment(self, position: int) -> int:
        """Where a comment ends that stands alone on the rest of the line; else the position itself."""
        match = _REST_OF_LINE_COMMENT.match(self.text, position)
        return match.end() if match else position

    def indent_at(self, position: int) -> str:
        """The indentation of the line in which something stands."""
        match = _LINE_INDENT.match(self.text, self.text.rfind("\n", 0, position) + 1)
        assert match is not None
        return match[0]

    def dumped(self, value: Any, indent: str) -> str:
        """A value as text, its lines after the first indented."""
        return json.dumps(value, indent=self.step, ensure_ascii=False).replace("\n", self.newline + indent)


def _last(members: list[_Member], key: str) -> _Member | None:
    """The member that counts: of a key that stands twice, readers take the last."""
    return next((member for member in reversed(members) if member.key == key), None)


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
