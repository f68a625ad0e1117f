"""load_config, parse_config; lock files named there.

Configuration: the ``mcp.json`` that people already have, read into values.

Every dialect of `bridge.client.config.formats`, every spelling of `bridge.client.config.formats`, with the references
of `bridge.client.config.variables`. What is wrong with one server costs that server alone (`UnusableTransport`). What
is wrong with the whole file, or with all servers, is reported all at once, in a `ConfigError`; what is doubtful is a
warning.

Locks: the lock files that a configuration names, and what its servers are held to by them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import ValidationError

from bridge.client.config.document import Diagnostics, json_type_name, parse_jsonc
from bridge.client.config.formats import canonical_key, is_disabled, normalize_entry, not_an_entry, read_root
from bridge.client.config.schema import HTTP_KEYS, STDIO_KEYS, ServerEntry, config_json_schema
from bridge.client.config.servers import (
    DEFAULT_CONNECT_TIMEOUT_SECONDS,
    DEFAULT_CONNECT_WAIT_SECONDS,
    DEFAULT_MAX_CALL_SECONDS,
    DEFAULT_TIMEOUT_SECONDS,
    HttpTransport,
    Prefixing,
    ServerConfig,
    ServersConfig,
    StdioTransport,
    UnusableTransport,
)
from bridge.client.config.transports import TransportReader
from bridge.client.config.variables import ExpansionError, InputDefinition, Inputs, InputSource, Variables
from bridge.client.tool_pins import PinMode, ServerPins, load_pins
from bridge.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from bridge.client.config.formats import NormalizedEntry
    from bridge.client.config.servers import ProtocolPin

__all__ = [
    "HttpTransport",
    "InputDefinition",
    "InputSource",
    "ServerConfig",
    "ServersConfig",
    "StdioTransport",
    "config_json_schema",
    "load_config",
    "parse_config",
]

_logger = logging.getLogger("bridge.client")

_HOST_FOLDERS = frozenset({".vscode", ".cursor"})

_SECONDS_KEYS = ("timeout", "maxCallSeconds", "connectTimeoutSeconds", "connectWaitSeconds")

_SURELY_MILLISECONDS = 1000

_MODES = get_args(PinMode)


def load_config(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    inputs: InputSource | None = None,
    workspace_folder: str | os.PathLike[str] | None = None,
    reads_pins: bool = True,
) -> ServersConfig:
    """Read a configuration of servers from a file: JSON, with comments and trailing commas where an editor left them.

    Args:
        path: The file.
        environ: The variables that references name; by default this process's.
        inputs: What ``${input:id}`` stands for: a mapping by id, or a function that asks a person.
        workspace_folder: What ``${workspaceFolder}`` stands for and relative ``cwd`` and ``envFile`` start from; by
            default the file's folder, or the one that holds it where the file is in ``.vscode`` or ``.cursor``.
        reads_pins: Hold servers to the lock files that are named; otherwise only say which they are.

    Returns:
        The servers. Each warning has also been logged.

    Raises:
        ConfigError: The file cannot be read, or neither it nor any of its servers can be used; it has all the problems.
    """
    source = os.fspath(path)
    document = parse_jsonc(_read_text(source), source)
    folder = Path(workspace_folder) if workspace_folder is not None else _folder_of(Path(source))
    config = parse_config(
        document, environ=environ, inputs=inputs, workspace_folder=folder, source=source, reads_pins=reads_pins
    )
    targets = {name: server.with_login_target(f"{source}#{name}") for name, server in config.servers.items()}
    return replace(config, servers=targets)


def parse_config(
    document: Any,
    *,
    environ: Mapping[str, str] | None = None,
    inputs: InputSource | None = None,
    workspace_folder: str | os.PathLike[str] | None = None,
    source: str = "configuration",
    reads_pins: bool = True,
) -> ServersConfig:
    """Read a configuration of servers from JSON data.

    Args:
        document: The data: an object in any of the dialects.
        environ: The variables that references name; by default this process's.
        inputs: What ``${input:id}`` stands for: a mapping by id, or a function that asks a person.
        workspace_folder: What ``${workspaceFolder}`` stands for and relative ``cwd`` and ``envFile`` start from; by
            default the current folder.
        source: What to call the data in errors and warnings.
        reads_pins: As for `load_config`.

    Returns:
        The servers. Each warning has also been logged.

    Raises:
        ConfigError: Neither it nor any of its servers can be used; it has all the problems.
    """
    findings = Diagnostics()
    root = read_root(document, findings)
    of_the_file = tuple(findings.problems)
    variables_of = os.environ if environ is None else environ
    folder = Path(workspace_folder or ".").absolute()
    variables = Variables(variables_of, folder, Inputs(root.inputs, inputs, variables_of))
    locks = LockFiles(root.pinning, variables, findings, are_read=reads_pins)
    disabled = tuple(name for name, raw in root.servers.items() if isinstance(raw, Mapping) and is_disabled(raw))
    enabled = {name: raw for name, raw in root.servers.items() if name not in disabled}
    read = [_read_server(name, raw, variables, locks, findings) for name, raw in enabled.items()]
    is_usable = any(not isinstance(server.transport, UnusableTransport) for server in read)
    if of_the_file or any(problem.server is None for problem in findings.problems):
        raise ConfigError(source, findings.problems)
    if findings.problems and not is_usable:
        raise ConfigError(source, findings.problems)
    if not root.servers:
        findings.warning("there are no servers in it")
    for warning in findings.warnings:
        _logger.warning("%s: %s", source, warning)
    servers = {server.name: replace(server, prefixing=root.prefixing) for server in read}
    return ServersConfig(servers=servers, disabled=disabled, warnings=tuple(findings.warnings), source=source)


def _read_text(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problem = ConfigProblem("not UTF-8 text: save it as UTF-8")
    except FileNotFoundError:
        problem = ConfigProblem("there is no such file")
    except OSError as error:
        problem = ConfigProblem(f"cannot be read: {error.strerror or type(error).__name__}")
    except ValueError:
        problem = ConfigProblem("is no path")
    raise ConfigError(source, [problem])


def _folder_of(path: Path) -> Path:
    folder = path.absolute().parent
    return folder.parent if folder.name in _HOST_FOLDERS else folder


def _read_server(name: str, raw: Any, variables: Variables, locks: LockFiles, findings: Diagnostics) -> ServerConfig:
    """One server; where its entry cannot be used, one that is never there and says why."""
    before = len(findings.problems)
    config = _usable_server(name, raw, variables, locks, findings)
    problems = tuple(findings.problems[before:])
    if config is not None and not problems:
        return config
    transport = UnusableTransport(problems)
    if config is not None:
        return replace(config, transport=transport)
    is_required = isinstance(raw, Mapping) and raw.get("required") is True
    return ServerConfig(name=name, transport=transport, required=is_required)


def _usable_server(
    name: str, raw: Any, variables: Variables, locks: LockFiles, findings: Diagnostics
) -> ServerConfig | None:
    if not isinstance(raw, Mapping):
        findings.problem(not_an_entry(raw), server=name)
        return None
    said = normalize_entry(name, raw, findings)
    try:
        entry = ServerEntry.model_validate(dict(said.values))
    except ValidationError as error:
        findings.invalid(error, server=name, written=said.written)
        return None
    if (kind := _transport_kind(name, entry, said, findings)) is None:
        return None
    _check_seconds(name, entry, said, findings)
    if entry.prefix in get_args(Prefixing):
        message = (
            f"puts the text {entry.prefix!r} before the names of its tools; to say when, write 'prefix' at the top"
        )
        findings.warning(message, server=name, key=said.written["prefix"])
    _warn_of_useless(name, kind, said, findings)
    held = locks.held(name, entry, said.written)
    reader = TransportReader(name, variables, said.written, findings)
    return ServerConfig(
        name=name,
        transport=reader.stdio(entry) if kind == "stdio" else reader.http(entry),
        timeout_seconds=entry.timeout or DEFAULT_TIMEOUT_SECONDS,
        max_call_seconds=entry.max_call_seconds or max(DEFAULT_MAX_CALL_SECONDS, entry.timeout or 0),
        connect_timeout_seconds=entry.connect_timeout_seconds or DEFAULT_CONNECT_TIMEOUT_SECONDS,
        connect_wait_seconds=entry.connect_wait_seconds or DEFAULT_CONNECT_WAIT_SECONDS,
        required=entry.required or False,
        trusted=entry.trusted or False,
        prefix=entry.prefix,
        include=None if entry.include is None else tuple(entry.include),
        exclude=tuple(entry.exclude or ()),
        unjudged_results=entry.unjudged_results or "pass",
        protocol=_protocol(name, entry, said, findings),
        pins=held.pins,
        lock=held.lock,
    )


def _transport_kind(name: str, entry: ServerEntry, said: NormalizedEntry, findings: Diagnostics) -> str | None:
    written = said.written
    if entry.command is not None and entry.url is not None:
        findings.problem(f"has both 'command' and {written['url']!r}: keep one", server=name)
    elif entry.command is None and entry.url is None:
        slips = [key for key, meant in said.meant.items() if canonical_key(meant) in {"command", "url"}]
        hint = f"; did you mean {said.meant[slips[0]]!r} by {slips[0]!r}?" if slips else ""
        message = f"has neither 'command' (a program to start) nor 'url' (a server to connect to){hint}"
        findings.problem(message, server=name)
    elif entry.command is not None and entry.type in {"http", "sse"}:
        findings.problem(
            f"is {entry.type!r}, which goes with a 'url', not a 'command'", server=name, key=written["type"]
        )
    elif entry.url is not None and entry.type == "stdio":
        message = f"is 'stdio', which goes with a 'command', not a {written['url']!r}"
        findings.problem(message, server=name, key=written["type"])
    else:
        return "stdio" if entry.command is not None else "http"
    return None


def _check_seconds(name: str, entry: ServerEntry, said: NormalizedEntry, findings: Diagnostics) -> None:
    for key in _SECONDS_KEYS:
        seconds = said.values.get(key)
        if seconds is not None and seconds > _SURELY_MILLISECONDS:
            findings.warning(
                f"{seconds:g} is in seconds here; if milliseconds were meant, write {seconds / 1000:g}",
                server=name,
                key=said.written[key],
            )
    if entry.timeout is not None and entry.max_call_seconds is not None and entry.max_call_seconds < entry.timeout:
        findings.problem("is shorter than 'timeout': a call could never use it", server=name, key="maxCallSeconds")


def _warn_of_useless(name: str, kind: str, said: NormalizedEntry, findings: Diagnostics) -> None:
    useless = HTTP_KEYS if kind == "stdio" else STDIO_KEYS
    beside = "command" if kind == "stdio" else "url"
    for key in said.values:
        if key in useless:
            findings.warning(f"has no use beside {beside!r}, and is ignored", server=name, key=said.written[key])


def _protocol(name: str, entry: ServerEntry, said: NormalizedEntry, findings: Diagnostics) -> ProtocolPin:
    if entry.type != "sse":
        return entry.protocol or "auto"
    if entry.protocol not in {None, "auto", "legacy"}:
        message = f"is {entry.protocol!r}, which does not exist over SSE: leave it out"
        findings.problem(message, server=name, key=said.written["protocol"])
    return "legacy"


class PinSettings(NamedTuple):
    """What one server is held to."""

    lock: str | None = None
    """The lock file; None for none."""
    pins: ServerPins | None = None
    """What is in it of the server; of a server that is not in it, nothing was looked at."""


class LockFiles:
    """The lock files of one configuration, each read once.

    Args:
        said: What the root of the configuration says, for servers that say nothing themselves.
        variables: What references can be replaced by.
        findings: Where problems go.
        are_read: Whether the files are there already; whoever writes them only wants to know which.
    """

    def __init__(self, said: Mapping[str, Any], variables: Variables, findings: Diagnostics, *, are_read: bool) -> None:
        self._variables = variables
        self._findings = findings
        self._are_read = are_read
        self._read: dict[tuple[str, PinMode], Mapping[str, ServerPins]] = {}
        self._lock: str | None = None
        self._mode: PinMode = "refuse"
        if (lock := said.get("pins")) is not None:
            self._lock = lock if isinstance(lock, str) else None
            if self._lock is None:
                findings.problem(f"should be the path of a lock file, not {json_type_name(lock)}", key="pins")
        if (mode := said.get("pinMode")) is not None:
            if mode in _MODES:
                self._mode = mode
            else:
                findings.problem("should be 'refuse' or 'flag'", key="pinMode")

    def held(self, server: str, entry: ServerEntry, written: Mapping[str, str]) -> PinSettings:
        """What a server is held to.

        Args:
            server: Its name.
            entry: What it says itself.
            written: How each key was written.
        """
        text = self._lock if entry.pins is None else entry.pins
        if text is None:
            if entry.pin_mode is not None:
                self._findings.warning("has no use without 'pins'", server=server, key=written["pinMode"])
            return PinSettings()
        key = "pins" if entry.pins is None else written["pins"]
        place = {"key": key} if entry.pins is None else {"key": key, "server": server}
        try:
            expanded = self._variables.expand(text)
        except ExpansionError as error:
            for message in error.messages:
                self._findings.problem(message, **place)
            return PinSettings()
        path = str(self._variables.workspace_folder / Path(expanded.value))
        if not self._are_read:
            return PinSettings(path)
        mode = entry.pin_mode or self._mode
        try:
            if (path, mode) not in self._read:
                self._read[path, mode] = load_pins(path, mode=mode)
        except ConfigError as error:
            told = "; ".join(problem.message for problem in error.problems)
            self._findings.problem(f"{expanded.shown!r} {told} (write it with `bridge pin`)", **place)
            return PinSettings(path)
        return PinSettings(path, self._read[path, mode].get(server, ServerPins(tools={}, mode=mode)))
