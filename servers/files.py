"""An MCP server for the files of one folder, and of nothing outside it.

Run it:

    FILES_ROOT=~/notes bridge serve servers/files.py
    FILES_ROOT=~/notes FILES_WRITABLE=1 bridge serve servers/files.py --transport http

Environment:

    FILES_ROOT             The folder to serve. Required.
    FILES_WRITABLE         1 adds the tools that change files. Default: 0, and they do not exist.
    FILES_SEARCH_SECONDS   How long one search may take, in seconds. Default: 10.
    FILES_POLL_SECONDS     How often files are examined for changes, in seconds. Default: 2.

Files are also resources, file:///notes/today.txt. Clients that watch one are notified when it changes, and of files
that come and go. The first 1,000 files are listed, without hidden ones; others are read by their URIs, whose paths are
completed. The prompt `summarize` has a file summed up.

How it stays inside: `bridge.resources.Folder` opens the folder once, and every name of a path within the folder before
it, without following symbolic links. There is no moment between a check and its use in which a link could be slipped
in, and no text of a path is trusted. Files with several hard links, pipes, devices and sockets are refused. It needs
Linux or macOS.
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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from mimetypes import guess_type
from secrets import token_hex
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from pydantic import Field

from bridge import (
    Audio,
    DefinitionError,
    File,
    Image,
    InvocationContext,
    P,
    ResourceBox,
    Text,
    ToolAnnotations,
    ToolError,
    prompt,
    resource,
    tool,
)
from bridge.errors import TargetError
from bridge.resources import Folder, PollingResourceBox, Resource, ResourceTemplate
from bridge.resources.folder import CREATE, parts_of, require_plain, reserved, shown_path

PAGE_BYTES = 65_536  # of a text, in one read
WHOLE_BYTES = 1_048_576  # of a file that is returned or searched whole, and of a text that is written
LINE_CHARS = 200  # of a line that was found
LISTED_ENTRIES = 500
FOUND_MATCHES = 100
LISTED_FILES = 1_000  # that are listed as resources
EXAMINED_ENTRIES = 10_000  # for that, and for a completion
COMPLETED_PATHS = 100
CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # which never begin a character of UTF-8
Kind = Literal["file", "folder", "link", "other"]
KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
SHOWN_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
REASONS = {
    errno.ENOENT: " does not exist; list_directory shows what does",
    errno.EEXIST: " exists already, and is left as it is",
    **dict.fromkeys((errno.ELOOP, errno.ENOTDIR), " is no folder, or leads through a file or a symbolic link"),
}


def _root() -> Folder:
    if not (name := os.environ.get("FILES_ROOT")):
        raise TargetError("FILES_ROOT is not set; it names the folder to serve")
    try:
        return Folder(name)
    except DefinitionError as error:
        raise TargetError(f"FILES_ROOT must be a folder: {error}") from error


ROOT = _root()
if (WRITABLE := os.environ.get("FILES_WRITABLE", "")) not in {"", "0", "1"}:
    raise TargetError("FILES_WRITABLE must be 0 or 1")
if not (SEARCH_SECONDS := os.environ.get("FILES_SEARCH_SECONDS", "10")).isdecimal():
    raise TargetError("FILES_SEARCH_SECONDS must be a whole number")
if not (POLL_SECONDS := os.environ.get("FILES_POLL_SECONDS", "2")).isdecimal() or POLL_SECONDS == "0":
    raise TargetError("FILES_POLL_SECONDS must be a whole number above 0")

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
    """Entries of a folder, sorted by name."""

    entries: list[Entry]
    more_after: str | None
    """If there are more entries: the name to pass as `after`."""


@reading
def list_directory(
    path: Annotated[str, P("The folder, relative to the root; '.' is the root itself")] = ".",
    after: Annotated[str, P("Only names after this one: `more_after` of the listing before")] = "",
) -> Listing:
    """Lists the files and folders in a folder, in the order of their names."""
    with _explained(path), ROOT.opened(path) as folder, os.scandir(folder) as found:
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
    with _explained(path), ROOT.opened_file(path) as file:
        size = os.fstat(file).st_size
        if offset_bytes > size:
            raise ToolError(f"{shown_path(path)} has only {size} bytes, so nothing is at offset_bytes={offset_bytes}")
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
    """Matches of a search."""

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
    with _explained(path):
        for folder, where, name in ROOT.walk(path):
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
    with _explained(path), ROOT.opened_parent(path, create=True) as (folder, name):
        permissions = None
        if overwrite:
            with suppress(FileNotFoundError):
                permissions = stat.S_IMODE(
                    require_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path).st_mode
                )
        temporary = f".{token_hex(8)}.partial"
        try:
            with os.fdopen(os.open(temporary, CREATE, 0o666, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                if permissions is not None:
                    os.fchmod(file.fileno(), permissions)
                os.fsync(file.fileno())
            with nullcontext() if overwrite else reserved(folder, name, is_folder=False):
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
    return f"Wrote {len(data)} bytes to {shown_path(path)}."


def move_file(
    source: Annotated[str, P("The file or folder to move, relative to the root")],
    destination: Annotated[str, P("Its new path, with its new name, relative to the root; must not exist")],
) -> str:
    """Moves or renames a file or a folder, and makes the folders that the new path needs. Never overwrites."""
    parts = parts_of(source)
    if parts_of(destination)[: len(parts)] == parts:
        raise ToolError(
            f"{shown_path(source)} cannot be moved to {shown_path(destination)}, which is itself or inside it"
        )
    with _explained(source), ROOT.opened_parent(source) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not (is_folder := stat.S_ISDIR(status.st_mode)):
            require_plain(status, source)
        with (
            _explained(destination),
            ROOT.opened_parent(destination, create=True) as (new_folder, new_name),
            reserved(new_folder, new_name, is_folder=is_folder),
        ):
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)
    return f"Moved {shown_path(source)} to {shown_path(destination)}."


if WRITABLE == "1":
    write_file = tool(annotations=ToolAnnotations(read_only=False, destructive=True, open_world=False))(write_file)
    move_file = tool(annotations=ToolAnnotations(read_only=False, destructive=False, open_world=False))(move_file)


# --- contents --------------------------------------------------------------------------------------------------------


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Tell a model what the operating system has against a path."""
    try:
        yield
    except OSError as error:
        raise ToolError(shown_path(path) + REASONS.get(error.errno or 0, f": {error.strerror}")) from error


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
        raise ToolError(
            f"{shown_path(path)} ({kind}, {size} bytes) is not UTF-8 text, and larger than {WHOLE_BYTES} bytes"
        )
    data = os.pread(file, WHOLE_BYTES, 0)
    media = Image if kind in SHOWN_IMAGES else Audio if kind.startswith("audio/") else None
    return media(data, kind) if media else File("file:///" + quote("/".join(parts_of(path))), data, kind)


def _matches(folder: int, name: str, where: str, text: str, *, match_case: bool) -> list[Match] | None:
    """Positions of a text in a file, at most one more than is reported; None for a file that cannot be searched."""
    data = b"\0"
    with suppress(OSError, ToolError), ROOT.opened_in(folder, name, name) as file:
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


# --- resources and a prompt ------------------------------------------------------------------------------------------


def _paths(start: str, *_rest: object) -> Iterator[str]:
    """The paths of the first files that begin with a text; hidden ones, and names that are not UTF-8, are left out."""
    for _, path, name in islice(ROOT.walk(hidden=False), EXAMINED_ENTRIES):
        if name is not None and path.startswith(start) and _printable(path) == path:
            yield path


def _encoded_paths(text: str, *_: object) -> list[str]:
    """The same, as the template takes them."""
    return [quote(path) for path in islice(_paths(unquote(text)), COMPLETED_PATHS)]


@resource("file:///{+path}", title="File", completions={"path": _encoded_paths})
def file(path: str) -> File | None:
    """A file of the folder, given by its path."""
    with _explained(path), suppress(FileNotFoundError), ROOT.opened_file(path) as opened:
        data = os.pread(opened, WHOLE_BYTES + 1, 0)
        if len(data) > WHOLE_BYTES:
            raise ToolError(f"{shown_path(path)} is larger than {WHOLE_BYTES} bytes; read_file reads it page by page")
        text = _text_of(data, is_first=True, is_last=True)
        kind = guess_type(path)[0] or ("application/octet-stream" if text is None else "text/plain")
        return File("", data if text is None else text[0], kind)
    return None


def _listed() -> Iterator[Resource | ResourceTemplate]:
    """The template, and the first files."""
    yield TEMPLATE
    uris = {f"file:///{quote(path)}": path for path in islice(_paths(""), LISTED_FILES)}
    for gone in _known.keys() - uris.keys():
        del _known[gone]
    for uri, path in uris.items():
        if uri not in _known:
            _known[uri] = TEMPLATE.resource_at(uri, name=path, title=None, mime_type=guess_type(path)[0])
        yield _known[uri]


def _version(uri: str) -> object:
    """Value that differs once a file has changed; None where it cannot be read."""
    with suppress(OSError, ToolError), ROOT.opened_file(unquote(uri.removeprefix("file:///"))) as opened:
        status = os.fstat(opened)
        return status.st_ino, status.st_mtime_ns, status.st_size
    return None


(TEMPLATE,) = ResourceBox(file).templates
_known: dict[str, Resource] = {}  # so that only new files are made resources
files = PollingResourceBox(version=_version, listing=_listed, interval_seconds=int(POLL_SECONDS))


@prompt(title="Summarize a file", completions={"path": _paths})
def summarize(path: FilePath) -> list[str | File]:
    """Sums up a file."""
    if (attached := file(path)) is None:
        raise ToolError(f"there is no file {shown_path(path)}")
    task = f"Summarize {path}: what it is about, and what follows from it."
    return [replace(attached, uri=f"file:///{quote(path)}"), task]
