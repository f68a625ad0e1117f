"""Source files of Python targets: the files themselves, the modules beside them that they import, and what is included.

Imports are read from the text, also those inside functions; nothing is executed.
"""

from __future__ import annotations

import ast
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bridge.cli.targets.target import FileTarget

_OWN = "bridge"
"""Name of this package, which uv installs."""
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
_ENVIRONMENT = "pyvenv.cfg"


def source_files(targets: Sequence[FileTarget], included: Sequence[Path] = ()) -> tuple[Path, list[Path]]:
    """Return the common folder of targets, and all of their files below it, sorted.

    Hidden files, caches, installed packages and virtual environments are left out.

    Args:
        targets: Files, and directories with all that is in them.
        included: Further files and directories below the common folder.

    Raises:
        TargetError: A file is elsewhere, is a link out of the folder, or is not Python.
    """
    folders = [target.path if target.path.is_dir() else target.path.parent for target in targets]
    root = Path(os.path.commonpath(folders))
    found: set[Path] = set()
    for target in targets:
        found |= set(_below(target.path)) if target.path.is_dir() else set(_imported_by(target.path))
    for path in (each.absolute() for each in included):
        if not path.is_relative_to(root):
            raise TargetError(f"{path} is not in {root}, the folder of the bundle's files")
        if not path.exists():
            raise TargetError(f"there is no file {str(path)!r}")
        found |= set(_below(path))
    for path in found:
        if not path.resolve().is_relative_to(root.resolve()):
            raise TargetError(f"{path} is a link to a file outside of {root}")
    return root, sorted(found)


def _below(path: Path) -> Iterator[Path]:
    """All files of a directory, or a file itself."""
    if not path.is_dir():
        yield path
        return
    for folder, inner, names in os.walk(path):
        if _ENVIRONMENT in names:
            inner.clear()
            continue
        inner[:] = [name for name in inner if not name.startswith(".") and name not in _SKIPPED]
        yield from (Path(folder, name) for name in names if not name.startswith(".") and not name.endswith(".mcpb"))


def _imported_by(path: Path) -> Iterator[Path]:
    """A file, and the modules and packages of its folder that it imports, directly or through others."""
    folder, waiting, seen = path.parent, [path], {path}
    while waiting:
        current = waiting.pop()
        yield current
        for name in _names_in(current):
            package, module = folder / name, folder / f"{name}.py"
            if (package / "__init__.py").is_file():
                files = list(_below(package))
            elif module.is_file():
                files = [module]
            else:
                continue
            waiting += [each for each in files if each not in seen]
            seen.update(files)


def _names_in(path: Path) -> set[str]:
    """Return the first names of the modules that a Python file imports."""
    if path.suffix != ".py":
        return set()
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise TargetError(f"{path} is not Python: {error}") from error
    nodes = [*ast.walk(tree)]
    plain = chain.from_iterable(each.names for each in nodes if isinstance(each, ast.Import))
    given = [each.module for each in nodes if isinstance(each, ast.ImportFrom) and each.module and not each.level]
    return {name.partition(".")[0] for name in [*(each.name for each in plain), *given]} - {_OWN}
