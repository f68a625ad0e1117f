"""An MCP server for the files of one folder, and of nothing outside it.

Run it:

    FILES_ROOT=~/notes bridge serve servers/files.py
    FILES_ROOT=~/notes FILES_WRITABLE=1 bridge serve servers/files.py --transport http

Environment:

    FILES_ROOT             The folder to serve. Required.
    FILES_WRITABLE         1 adds the tools that change files. Default: 0, and they do not exist.
    FILES_SEARCH_SECONDS   How long one search may take, in seconds. Default: 10.

How it stays inside: the folder is opened once, and every name of a path is opened within the folder before it, without
following symbolic links. There is no moment between a check and its use in which a link could be slipped in, and no
text of a path is trusted. Files with several hard links, pipes, devices and sockets are refused. Linux and macOS.
"""

import errno
import fnmatch
import heapq
import os
import stat
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from mimetypes import guess_type
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from bridge import Audio, File, Image, InvocationContext, P, TargetError, Text, ToolAnnotations, ToolError, tool

if not hasattr(os, "O_DIRECTORY"):
    raise TargetError("the file server needs Linux or macOS")

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

PAGE_BYTES = 65_536  # of a text, in one read
WHOLE_BYTES = 1_048_576  # of a file that is returned or searched whole, and of a text that is written
PATH_CHARS = 4_096
LINE_CHARS = 200  # of a line that was found
LISTED_ENTRIES = 500
FOUND_MATCHES = 100
FOLDER_DEPTH = 64  # below which a search does not go
FOLDER_NAMES = 100_000  # of one folder, that a search looks at
CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # which never begin a character of UTF-8
Kind = Literal["file", "folder", "link", "other"]
KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
SHOWN_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
REASONS = {
    errno.ENOENT: " does not exist; list_directory shows what does",
    errno.EEXIST: " exists already, and is left as it is",
    **dict.fromkeys((errno.ELOOP, errno.ENOTDIR), " is no folder, or leads through a file or a symbolic link"),
}


def _open_root() -> int:
    name = os.environ.get("FILES_ROOT")
    if not name:
        raise TargetError("FILES_ROOT is not set; it names the folder to serve")
    try:
        return os.open(Path(name).expanduser(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise TargetError(f"FILES_ROOT must be a folder that can be read; {name!r}: {error.strerror}") from error


ROOT = _open_root()
if (WRITABLE := os.environ.get("FILES_WRITABLE", "")) not in {"", "0", "1"}:
    raise TargetError("FILES_WRITABLE must be 0 or 1")
if not (SEARCH_SECONDS := os.environ.get("FILES_SEARCH_SECONDS", "10")).isdecimal():
    raise TargetError("FILES_SEARCH_SECONDS must be a whole number")

reading = tool(annotations=ToolAnnotations(read_only=True, idempotent=True, destructive=False, open_world=False))
NamePattern = Annotated[
    str, P("Which names: * is any text, ? any character, as in '*.md'"), Field(max_length=LINE_CHARS)
]
FilePath = Annotated[str, P("The file, relative to the root, such as 'notes/today.txt'")]


@dataclass(frozen=True)
class Entry:
    """One name in a folder."""

    name: str
    kind: Kind
    """Links are shown and never followed."""
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True)
class Listing:
    """What is in a folder, by name."""

    entries: list[Entry]
    more_after: str | None
    """Where there are more: the name to pass as `after`."""


@reading
def list_directory(
    path: Annotated[str, P("The folder, relative to the root; '.' is the root itself")] = ".",
    after: Annotated[str, P("Only names after this one: `more_after` of the listing before")] = "",
) -> Listing:
    """Lists the files and folders in a folder, in the order of their names."""
    with _explained(path), _opened(_parts(path)) as folder, os.scandir(folder) as found:
        names = ((_printable(entry.name), entry.name) for entry in found)
        page = heapq.nsmallest(LISTED_ENTRIES + 1, (pair for pair in names if pair[0] > after))
        entries: list[Entry] = []
        for shown_name, name in page[:LISTED_ENTRIES]:
            with suppress(FileNotFoundError):  # gone since it was listed
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                kind, modified_at = KINDS.get(stat.S_IFMT(status.st_mode), "other"), status.st_mtime
                entries.append(Entry(shown_name, kind, status.st_size, datetime.fromtimestamp(modified_at, UTC)))
    return Listing(entries, more_after=page[LISTED_ENTRIES - 1][0] if len(page) > LISTED_ENTRIES else None)


@reading
def read_file(
    path: FilePath,
    offset_bytes: Annotated[int, P("Where to start; in a long text, where the read before ended"), Field(ge=0)] = 0,
) -> list[Text | Image | Audio | File]:
    """Reads a file: a text page by page, a small picture, sound or other binary file whole."""
    with _explained(path), _opened_parent(path) as (folder, name), _opened_plain(folder, name, path) as file:
        size = os.fstat(file).st_size
        if offset_bytes > size:
            raise ToolError(f"{_shown(path)} has only {size} bytes, so nothing is at offset_bytes={offset_bytes}")
        data = os.pread(file, PAGE_BYTES, offset_bytes)
        end = offset_bytes + len(data)
        page = _text_of(data, is_first=offset_bytes == 0, is_last=end >= size)
        if page is None:
            return [_binary(path, file, size)]
    text, left_over = page
    if (end := end - left_over) >= size:
        return [Text(text)]
    return [Text(text), Text(f"[bytes {offset_bytes} to {end} of {size}; read on with offset_bytes={end}]")]


@dataclass(frozen=True)
class Match:
    """One place where a search found something."""

    path: str
    line: int | None
    """The line's number, from 1; None where only names were searched."""
    text: str | None
    """The line, cut where it is long."""


@dataclass(frozen=True)
class Found:
    """What a search found."""

    matches: list[Match]
    files_searched: int
    files_skipped: int
    """Files that are binary, too large, or not to be opened."""
    stopped_because: str | None
    """Why the search ended before its end; None where it looked everywhere."""


@reading
def search_files(
    context: InvocationContext,
    text: Annotated[str, P("The text to find, literally, within one line; empty finds files by name alone")] = "",
    name_pattern: NamePattern = "*",
    path: Annotated[str, P("The folder to search, with everything below it, relative to the root")] = ".",
    match_case: Annotated[bool, P("Whether capitals matter")] = False,
) -> Found:
    """Finds files by their names, and lines by a text in them."""
    deadline = time.monotonic() + int(SEARCH_SECONDS)
    matches, searched, skipped = list[Match](), 0, 0
    with _explained(path), _opened(_parts(path)) as top:
        for folder, where, name in _walk(top, "".join(f"{part}/" for part in _parts(path)), FOLDER_DEPTH):
            if context.cancelled or time.monotonic() > deadline:
                return Found(matches, searched, skipped, f"it took more than {SEARCH_SECONDS} seconds; narrow it down")
            if name is None or not fnmatch.fnmatchcase(name, name_pattern):
                continue
            if not text:
                matches.append(Match(_printable(where), None, None))
            elif (in_file := _matches(folder, name, where, text, match_case=match_case)) is None:
                skipped += 1
            else:
                searched += 1
                matches += in_file
            if len(matches) > FOUND_MATCHES:
                return Found(matches[:FOUND_MATCHES], searched, skipped, f"there are more than {FOUND_MATCHES} matches")
    return Found(matches, searched, skipped, None)


def write_file(
    path: FilePath,
    text: Annotated[str, P("The whole new content")],
    overwrite: Annotated[bool, P("Whether to replace a file that exists")] = False,
) -> str:
    """Writes a text file, and the folders that it needs. The file changes as a whole or not at all."""
    data = text.encode()
    if len(data) > WHOLE_BYTES:
        raise ToolError(f"the text has {len(data)} bytes, more than the {WHOLE_BYTES} that can be written at once")
    with _explained(path), _opened_parent(path, create=True) as (folder, name):
        permissions = None
        if overwrite:
            with suppress(FileNotFoundError):
                permissions = stat.S_IMODE(_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path).st_mode)
        temporary = f".{token_hex(8)}.partial"
        try:
            with os.fdopen(os.open(temporary, CREATE, 0o666, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                if permissions is not None:
                    os.fchmod(file.fileno(), permissions)
                os.fsync(file.fileno())
            with nullcontext() if overwrite else _reserved(folder, name, is_folder=False):
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
    return f"Wrote {len(data)} bytes to {_shown(path)}."


def move_file(
    source: Annotated[str, P("The file or folder to move, relative to the root")],
    destination: Annotated[str, P("Its new path, with its new name, relative to the root; must not exist")],
) -> str:
    """Moves or renames a file or a folder, and makes the folders that the new path needs. Never overwrites."""
    parts = _parts(source)
    if _parts(destination)[: len(parts)] == parts:
        raise ToolError(f"{_shown(source)} cannot be moved to {_shown(destination)}, which is itself or inside it")
    with _explained(source), _opened_parent(source) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not (is_folder := stat.S_ISDIR(status.st_mode)):
            _plain(status, source)
        with (
            _explained(destination),
            _opened_parent(destination, create=True) as (new_folder, new_name),
            _reserved(new_folder, new_name, is_folder=is_folder),
        ):
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)
    return f"Moved {_shown(source)} to {_shown(destination)}."


if WRITABLE == "1":
    write_file = tool(annotations=ToolAnnotations(read_only=False, destructive=True, open_world=False))(write_file)
    move_file = tool(annotations=ToolAnnotations(read_only=False, destructive=False, open_world=False))(move_file)


# --- inside the root -------------------------------------------------------------------------------------------------


def _parts(path: str) -> list[str]:
    """The names that a path is made of."""
    if len(path) > PATH_CHARS or any(char == "\0" or "\ud800" <= char <= "\udfff" for char in path):
        raise ToolError(f"{_shown(path)} is not a path")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts:
        raise ToolError(f"{_shown(path)} leads out of the root; name files relative to it, such as 'notes/today.txt'")
    return parts


@contextmanager
def _opened(parts: list[str], *, within: int = ROOT, create: bool = False) -> Iterator[int]:
    """A folder, opened name by name from the root or a folder within it, each without following a link."""
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


@contextmanager
def _opened_parent(path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """The folder that holds a file, and the file's name in it."""
    *folders, name = _parts(path) or [""]
    if not name:
        raise ToolError(f"{_shown(path)} is the root itself; name something in it")
    with _opened(folders, create=create) as folder:
        yield folder, name


@contextmanager
def _opened_plain(folder: int, name: str, path: str) -> Iterator[int]:
    """A file to be read. It is looked at before it is opened, which could wake a device, and after, to be sure."""
    _plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    file = os.open(name, READ, dir_fd=folder)
    try:
        _plain(os.fstat(file), path)
        yield file
    finally:
        os.close(file)


def _plain(status: os.stat_result, path: str) -> os.stat_result:
    """The status of a file that may be touched; refuses any other."""
    if stat.S_ISLNK(status.st_mode):
        raise ToolError(f"{_shown(path)} is a symbolic link, and those are not followed")
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{_shown(path)} is a folder; list_directory shows what is in it")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{_shown(path)} is a pipe, a device or a socket, and only files are opened")
    if status.st_nlink > 1:
        raise ToolError(f"{_shown(path)} has another hard link, which may be outside the root, and is not touched")
    return status


@contextmanager
def _reserved(folder: int, name: str, *, is_folder: bool) -> Iterator[None]:
    """Take a name that nobody has, so that what is renamed to it overwrites nothing; give it back on failure."""
    if is_folder:
        os.mkdir(name, dir_fd=folder)
    else:
        os.close(os.open(name, CREATE, dir_fd=folder))
    try:
        yield
    except BaseException:
        (os.rmdir if is_folder else os.unlink)(name, dir_fd=folder)
        raise


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[int, str, str | None]]:
    """Everything below a folder: the folder that holds it, its path, and its name, or None where it is no file."""
    with os.scandir(folder) as found:
        entries = sorted(islice(found, FOLDER_NAMES), key=lambda entry: entry.name)
    for entry in entries:
        yield folder, prefix + entry.name, entry.name if entry.is_file(follow_symlinks=False) else None
        if depth and entry.is_dir(follow_symlinks=False):
            with suppress(OSError), _opened([entry.name], within=folder) as inner:
                yield from _walk(inner, f"{prefix}{entry.name}/", depth - 1)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Tell a model what the operating system has against a path."""
    try:
        yield
    except OSError as error:
        raise ToolError(_shown(path) + REASONS.get(error.errno or 0, f": {error.strerror}")) from error


def _text_of(data: bytes, *, is_first: bool, is_last: bool) -> tuple[str, int] | None:
    """A page of UTF-8 text, and how many bytes at its end belong to the next page; None where it is no text."""
    if not is_first:  # a page that does not begin where another ended may begin inside a character
        data = data[:3].lstrip(CONTINUATION_BYTES) + data[3:]
    decoder = getincrementaldecoder("utf-8")()
    text = "\0"
    with suppress(UnicodeDecodeError):
        text = decoder.decode(data, is_last)
    return None if "\0" in text else (text, len(decoder.getstate()[0]))


def _binary(path: str, file: int, size: int) -> Image | Audio | File:
    """A file that is no text, whole."""
    kind = guess_type(path)[0] or "application/octet-stream"
    if size > WHOLE_BYTES:
        raise ToolError(f"{_shown(path)} ({kind}, {size} bytes) is not UTF-8 text, and larger than {WHOLE_BYTES} bytes")
    data = os.pread(file, WHOLE_BYTES, 0)
    media = Image if kind in SHOWN_IMAGES else Audio if kind.startswith("audio/") else None
    return media(data, kind) if media else File("file:///" + quote("/".join(_parts(path))), data, kind)


def _matches(folder: int, name: str, where: str, text: str, *, match_case: bool) -> list[Match] | None:
    """Where a text is in a file, up to one place more than is told; None for a file that cannot be searched."""
    data = b"\0"
    with suppress(OSError, ToolError), _opened_plain(folder, name, name) as file:
        data = os.pread(file, WHOLE_BYTES + 1, 0)
    if len(data) > WHOLE_BYTES or b"\0" in data:
        return None
    compared: Callable[[str], str] = str if match_case else str.casefold
    wanted, found = compared(text), list[Match]()
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        if (position := compared(line).find(wanted)) >= 0 and len(found) <= FOUND_MATCHES:
            start = max(0, position - LINE_CHARS // 2)
            found.append(Match(_printable(where), number, line[start : start + LINE_CHARS]))
    return found


def _printable(name: str) -> str:
    """A name as JSON can carry it; a file whose name is not UTF-8 is shown, and cannot be named."""
    return os.fsencode(name).decode(errors="replace")


def _shown(path: str) -> str:
    return repr(path if len(path) <= LINE_CHARS else f"{path[:LINE_CHARS]}…")
