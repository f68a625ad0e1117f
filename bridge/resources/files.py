"""Files of a folder as resources."""

from __future__ import annotations

import mimetypes
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError, ResourceNotFoundError
from bridge.resources.function import ResourceSettings, function_resource
from bridge.resources.resource import BINARY, Resource, ResourceTemplate
from bridge.tools.content import File

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_OF_A_SCHEME = re.compile(r"[^a-z0-9+.-]+")


def files(
    folder: str | Path, *, uri: str | None = None, pattern: str = "*", name: str | None = None
) -> ResourceTemplate:
    """Offer the files of a folder and its subfolders as resources, for example ``serve(files("docs"))``.

    A file is read when it is requested: as text if it is UTF-8 and its name does not say otherwise, else as bytes.
    Nothing outside of the folder is read, whatever the URI says and wherever links lead to. Hidden files, whose names
    begin with a dot, do not exist. Paths are completed.

    Args:
        folder: The folder.
        uri: Beginning of the URIs; the path follows. Defaults to the name as a scheme: ``docs:///``.
        pattern: Pattern of the paths that exist (`fnmatch`); ``*.md`` also matches in subfolders.
        name: Name of the template. Defaults to the name of the folder.

    Raises:
        DefinitionError: There is no such folder.
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise DefinitionError(f"there is no folder {str(folder)!r}")
    name = name or root.name

    def read(path: str) -> File:
        file = _file_in(root, path, pattern)
        if file is None:
            raise ResourceNotFoundError(path)
        data, kind = file.read_bytes(), mimetypes.guess_type(file.name)[0]
        try:
            return File("", data.decode() if _may_be_text(kind) else data, kind or "text/plain")
        except UnicodeDecodeError:
            return File("", data, kind or BINARY)

    def complete(text: str, *_: object) -> Iterable[str]:
        paths = (file.relative_to(root).as_posix() for file in sorted(root.rglob("*")))
        return (path for path in paths if path.startswith(text) and _file_in(root, path, pattern) is not None)

    scheme = _NOT_OF_A_SCHEME.sub("-", name.lower()).lstrip("-+.0123456789") or "files"
    settings = ResourceSettings(
        uri=f"{uri or f'{scheme}:///'}{{+path}}",
        name=name,
        description=f"Files of the folder {root.name}",
        completions={"path": complete},
    )
    made = function_resource(read, settings)
    assert not isinstance(made, Resource)
    return made


def _file_in(root: Path, path: str, pattern: str) -> Path | None:
    """Return the file with a path in a folder; None if it is not offered."""
    parts = path.split("/")
    if "\0" in path or "\\" in path or any(part in {"", ".", ".."} or part.startswith(".") for part in parts):
        return None
    try:
        file = root.joinpath(*parts).resolve(strict=True)
        is_inside = file.is_relative_to(root) and file.is_file()
    except (OSError, ValueError):
        return None
    return file if is_inside and fnmatchcase(path, pattern) else None


def _may_be_text(kind: str | None) -> bool:
    return kind is None or kind.startswith("text/") or kind in {"application/json", "application/xml", "image/svg+xml"}
