"""Entries: how a host's configuration names a server, as it is pasted or installed there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.cli.targets import CommandTarget, FileTarget, ModuleTarget, UrlTarget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.cli.targets import LocalTarget, Target

Entry = dict[str, Any]
"""What stands under a server's name."""


def entry_of(target: Target) -> Entry:
    """The entry of one target; a command and files in it are absolute, because a host starts it from anywhere."""
    match target:
        case UrlTarget():
            return url_entry(target.url)
        case CommandTarget():
            command, *arguments = target.command
            return {"command": shutil.which(command) or command, "args": arguments}
        case FileTarget() | ModuleTarget():
            return serving_entry([target])


def serving_entry(targets: Sequence[LocalTarget], options: Sequence[str] = ()) -> Entry:
    """The entry that serves targets over stdio.

    Args:
        targets: What is served.
        options: Options of ``bridge serve``.
    """
    command, *arguments = _own_command()
    entry: Entry = {"command": command, "args": [*arguments, "serve", *map(_argument, targets), *options]}
    if any(isinstance(target, ModuleTarget) and _is_found_only_here(target) for target in targets):
        entry["env"] = {"PYTHONPATH": str(Path.cwd())}
    return entry


def url_entry(url: str, kind: str = "http") -> Entry:
    """The entry of a server behind a URL.

    Args:
        url: The URL.
        kind: The transport: ``http`` or ``sse``.
    """
    return {"type": kind, "url": url}


def configuration(name: str, entry: Mapping[str, Any]) -> str:
    """An entry in one line, as most hosts' configuration takes it."""
    return json.dumps({"mcpServers": {name: entry}}, ensure_ascii=False)


def _own_command() -> list[str]:
    """This program, absolute."""
    program = Path(sys.argv[0])
    if program.stem == "bridge" and os.access(program, os.X_OK):
        return [str(program.absolute())]
    return [sys.executable, "-m", "bridge"]


def _argument(target: LocalTarget) -> str:
    source = str(target.path) if isinstance(target, FileTarget) else target.module
    return source if target.attribute is None else f"{source}:{target.attribute}"


def _is_found_only_here(target: ModuleTarget) -> bool:
    """Whether the module would not be found from another working directory."""
    here = str(Path.cwd())
    elsewhere = [place for place in sys.path if place not in {"", here}]
    return PathFinder.find_spec(target.module.partition(".")[0], elsewhere) is None
