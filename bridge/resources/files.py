"""Files of a folder as resources."""

from __future__ import annotations

import errno
import mimetypes
import os
import re
import stat
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from bridge.errors import DefinitionError, ResourceNotFoundError, ToolError
from bridge.resources.folder import FILE, FOLDER, descended
from bridge.resources.function import ResourceSettings, function_resource
from bridge.resources.resource import BINARY, Resource, ResourceTemplate
from bridge.tools.checks import require_count
from bridge.tools.content import File

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_NOT_OF_A_SCHEME = re.compile(r"[^a-z0-9+.-]+")
_NOT_UNICODE = re.compile("[\ud800-\udfff]")
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors of a path whose names do not exist, or are links."""
_MAX_ENTRIES = 10_000
"""Maximum number of files and folders that one completion examines."""


def files(
    folder: str | Path,
    *,
    uri: str | None = None,
    pattern: str = "*",
    name: str | None = None,
    max_bytes: int = 2 * 1024 * 1024,
) -> ResourceTemplate:
    """Offer the files of a folder and its subfolders as resources, for example ``serve(files("docs"))``.

    A file is read when it is requested: as text if it is UTF-8 and its name does not say otherwise, else as bytes.
    Nothing outside of the folder is read, whatever the URI says and wherever links lead to. Hidden files, whose names
    begin with a dot, do not exist, nor do links to them. Paths are completed, except through links to folders.

    Args:
        folder: The folder.
        uri: Beginning of the URIs; the path follows. Defaults to the name as a scheme: ``docs:///``.
        pattern: Pattern of the paths that exist (`fnmatch`); ``*.md`` also matches in subfolders. A link and the file
            that it leads to must both match.
        name: Name of the template. Defaults to the name of the folder, or ``files`` if it has none.
        max_bytes: Maximum size of a file that is read; reading a larger one is an error. Others wait while a file is
            encoded, for up to 50 ms at 2 MiB.

    Raises:
        DefinitionError: There is no such folder, or ``max_bytes`` is not a positive whole number.
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise DefinitionError(f"there is no folder {str(folder)!r}")
    require_count(max_bytes, "max_bytes of files")
    name = name or root.name or "files"

    def read(path: str) -> File:
        target = _target_of(root, path, pattern)
        file = None if target is None else _opened(root, target)
        if target is None or file is None:
            raise ResourceNotFoundError(path)
        with file:
            data, kind = _content_of(file, path, max_bytes), mimetypes.guess_type(target)[0]
        try:
            return File("", data.decode() if _may_be_text(kind) else data, kind or "text/plain")
        except UnicodeDecodeError:
            return File("", data, kind or BINARY)

    scheme = _NOT_OF_A_SCHEME.sub("-", name.lower()).lstrip("-+.0123456789") or "files"
    settings = ResourceSettings(
        uri=f"{uri or f'{scheme}:///'}{{+path}}",
        name=name,
        description=f"Files of the folder {root.name or root}",
        completions={"path": lambda text, *_: _paths_in(root, text, pattern)},
    )
    made = function_resource(read, settings)
    assert not isinstance(made, Resource)
    return made


def _target_of(root: Path, path: str, pattern: str) -> str | None:
    """Return the path, without links, of the file with a path in a folder; None if it is not offered."""
    if not _is_offered(path, pattern):
        return None
    try:
        file = Path(os.path.realpath(root / path, strict=True))
        target = file.relative_to(root).as_posix() if file.is_file() else ""
    except (OSError, ValueError):
        return None
    return target if target == path or _is_offered(target, pattern) else None


def _opened(root: Path, target: str) -> BinaryIO | None:
    """Open a file in a folder; None if it no longer is a file there, such as after a link was put in its place."""
    folder, _, name = target.rpartition("/")
    try:
        with _opened_folder(root, folder) as parent:
            if isinstance(parent, Path):
                return (parent / name).open("rb")
            file = os.fdopen(os.open(name, FILE, dir_fd=parent), "rb")
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None


@contextmanager
def _opened_folder(root: Path, path: str) -> Iterator[int | Path]:
    """Open a folder name by name, each without following a link; give its path where a system cannot (Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        yield root / path
        return
    top = os.open(root, FOLDER)
    try:
        with descended(top, path.split("/") if path else ()) as folder:
            yield folder
    finally:
        os.close(top)


def _is_offered(path: str, pattern: str) -> bool:
    """Return True for a relative path without hidden parts that matches the pattern."""
    parts = path.split("/")
    return not ("\0" in path or "\\" in path or any(not part or part[0] == "." for part in parts)) and fnmatchcase(
        path, pattern
    )


def _content_of(file: BinaryIO, path: str, max_bytes: int) -> bytes:
    """Read a file, of which no more than the limit gets into memory, even if it grows."""
    size = os.fstat(file.fileno()).st_size
    data = file.read(size + 1) if size <= max_bytes else b""
    if len(data) > size:
        data += file.read(max_bytes - size)
    if (size := max(size, len(data))) > max_bytes:
        raise ToolError(
            f"the file {path!r} is too large to be read: it has {size:,} bytes, and at most {max_bytes:,} are allowed; "
            "the server's author can allow more with files(…, max_bytes=…)"
        )
    return data


def _paths_in(root: Path, text: str, pattern: str) -> Iterator[str]:
    """Return the paths that begin with a text, sorted by folder and name, as they are written into the template.

    Expansion keeps ``%41`` as it is (RFC 6570 3.2.3), so a percent sign of a name is encoded.
    """
    start, slash, _ = text.rpartition("/")
    folder = unquote(start)
    if slash and (_NOT_UNICODE.search(folder) or not _is_offered(folder, "*")):
        return
    if os.path.realpath(root / folder) != str(root / folder):
        return
    pending = [iter(_entries(root, folder, text))]
    seen = 0
    while pending and seen < _MAX_ENTRIES:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
            continue
        seen += 1
        if entry.is_folder:
            pending.append(iter(_entries(root, entry.path, text)))
        elif _is_offered(entry.path, pattern) if entry.is_file else _target_of(root, entry.path, pattern):
            yield entry.path.replace("%", "%25")


class _Entry(NamedTuple):
    path: str
    is_folder: bool
    is_file: bool


def _entries(root: Path, folder: str, text: str) -> list[_Entry]:
    """Return the entries of a folder that are or contain paths that begin with a text."""
    found = []
    try:
        with _opened_folder(root, folder) as opened, os.scandir(opened) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name[0] != "." and path.replace("%", "%25").startswith(text) and not _NOT_UNICODE.search(path):
                    kinds = entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
                    found.append(_Entry(path, *kinds))
    except OSError:
        return []
    return sorted(found)


def _may_be_text(kind: str | None) -> bool:
    return kind is None or kind.startswith("text/") or kind in {"application/json", "application/xml", "image/svg+xml"}
