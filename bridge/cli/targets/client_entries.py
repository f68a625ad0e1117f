"""Server entries for the configurations of MCP clients."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.cli.targets.target import (
    CommandTarget,
    ConfigTarget,
    FileTarget,
    LocalTarget,
    ModuleTarget,
    OpenApiTarget,
    UrlTarget,
    target_argument,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.cli.targets.target import Target

Entry = dict[str, Any]
"""Configuration entry of one server."""

_START = frozenset({"command", "args", "env", "cwd", "envFile", "cmd", "envs", "env_keys", "env_vars"})
"""Keys of a server that the client starts."""
_ADDRESS = frozenset(
    {"url", "uri", "httpUrl", "serverUrl", "headers", "http_headers", "env_http_headers", "bearer_token_env_var"}
)
"""Keys of a server with a URL."""
_OWN = frozenset({"type", "name", "command", "args", "env", "cmd", "envs", "url", "uri", "httpUrl", "serverUrl"})
"""Keys that an installation sets or removes."""
_CHOSEN = frozenset({"enabled", "description", "timeout"})
"""Keys of new entries that the user may have changed."""


def client_entry(target: Target, options: Sequence[str] = ()) -> Entry:
    """Build the entry of one target, with absolute paths, since clients start it from any directory.

    Options of ``bridge serve`` apply to a target that it serves.
    """
    match target:
        case UrlTarget():
            return url_entry(target.url)
        case CommandTarget():
            command, *arguments = _absolute(target.command)
            return {"command": shutil.which(command) or command, "args": arguments}
        case FileTarget() | ModuleTarget() | OpenApiTarget() | ConfigTarget():
            return serving_entry([target], options)


def serving_entry(targets: Sequence[Target], options: Sequence[str] = ()) -> Entry:
    """Build the entry that serves targets over stdio, with options of ``bridge serve``."""
    command, *arguments = _own_command()
    words = [word for target in targets if not isinstance(target, CommandTarget) for word in [target_argument(target)]]
    after = [
        word for target in targets if isinstance(target, CommandTarget) for word in ("--", *_absolute(target.command))
    ]
    for target in targets:
        if isinstance(target, LocalTarget):
            options = [*options, *target.openapi.arguments()]
    entry: Entry = {"command": command, "args": [*arguments, "serve", *words, *options, *after]}
    if any(isinstance(target, ModuleTarget) and _is_found_only_here(target) for target in targets):
        entry["env"] = {"PYTHONPATH": str(Path.cwd())}
    return entry


def url_entry(url: str, kind: str = "http", *, wants_key: bool = False) -> Entry:
    """Build the entry of a server with a URL, over ``http`` or ``sse``.

    With ``wants_key``, it reads an API key from the client's environment.
    """
    headers = {"headers": {"Authorization": "Bearer ${BRIDGE_API_KEY}"}} if wants_key else {}
    return {"type": kind, "url": url, **headers}


def merged(entry: Mapping[str, Any], present: Any) -> Entry:
    """Add to an entry the settings that the user gave the present one: all but those that start or address a server."""
    if not isinstance(present, Mapping):
        return dict(entry)
    foreign = _START if _ADDRESS & entry.keys() else _ADDRESS
    kept = {key: value for key, value in present.items() if key not in _OWN | foreign}
    values = {**kept, **entry, **{key: kept[key] for key in _CHOSEN & kept.keys()}}
    return {key: values[key] for key in dict.fromkeys((*present, *entry)) if key in values}


def configuration(name: str, entry: Mapping[str, Any]) -> str:
    """Format an entry as a one-line configuration."""
    return json.dumps({"mcpServers": {name: entry}}, ensure_ascii=False)


def _own_command() -> list[str]:
    """Absolute command line of this program."""
    program = Path(sys.argv[0])
    if program.stem == "bridge" and os.access(program, os.X_OK):
        return [str(program.absolute())]
    return [sys.executable, "-m", "bridge"]


def redacted(target: Target) -> Target:
    """Redact the secrets in a URL or a command, for display only."""
    from bridge.redaction import redact_command, redact_url  # noqa: PLC0415 - not needed for most targets

    match target:
        case UrlTarget():
            return UrlTarget(redact_url(target.url).shown)
        case FileTarget() | ModuleTarget() | OpenApiTarget() if target.openapi:
            return replace(target, openapi=target.openapi.redacted())
        case CommandTarget():
            return CommandTarget(tuple(shlex.split(redact_command(target.command).shown)))
        case _:
            return target


def _absolute(command: Sequence[str]) -> list[str]:
    """Make the words of a command that are existing files absolute."""
    # `Path.is_file` raises for a word that is too long for a name.
    return [str(Path(word).absolute()) if os.path.isfile(word) else word for word in command]  # noqa: PTH113


def _is_found_only_here(target: ModuleTarget) -> bool:
    """True if the module is found only from the current directory."""
    here = str(Path.cwd())
    elsewhere = [place for place in sys.path if place not in {"", here}]
    return PathFinder.find_spec(target.module.partition(".")[0], elsewhere) is None
