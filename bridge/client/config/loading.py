"""load_config and parse_config, with the lock files that a configuration names.

The formats are those of `bridge.client.config.formats`, with references of `bridge.client.config.variables`. A problem
of one server makes only that server unusable (`UnusableTransport`). Problems of the whole file, or of all servers, are
raised together as one `ConfigError`; other findings are warnings.
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
from bridge.client.config.entry_reader import TransportReader
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
    """Read a server configuration from a JSON file; comments and trailing commas are allowed.

    Args:
        path: The file.
        environ: Variables for references; the process environment by default.
        inputs: Values for ``${input:id}``: a mapping by id, or a function that asks the user.
        workspace_folder: Value of ``${workspaceFolder}`` and base of relative ``cwd`` and ``envFile``; by default the
            file's folder, or its parent if the file is in ``.vscode`` or ``.cursor``.
        reads_pins: Load the lock files that are named; otherwise only their paths are returned.

    Returns:
        The servers. Warnings are also logged.

    Raises:
        ConfigError: The file cannot be read, or no server in it is usable. It contains all problems.
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
    """Parse a server configuration from JSON data.

    Args:
        document: An object in any supported format.
        environ: Variables for references; the process environment by default.
        inputs: Values for ``${input:id}``: a mapping by id, or a function that asks the user.
        workspace_folder: Value of ``${workspaceFolder}`` and base of relative ``cwd`` and ``envFile``; by default the
            current folder.
        source: Name of the data in errors and warnings.
        reads_pins: As for `load_config`.

    Returns:
        The servers. Warnings are also logged.

    Raises:
        ConfigError: No server is usable, or the data is invalid. It contains all problems.
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
        findings.warning("it contains no servers")
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
        problem = ConfigProblem("is not a valid path")
    raise ConfigError(source, [problem])


def _folder_of(path: Path) -> Path:
    folder = path.absolute().parent
    return folder.parent if folder.name in _HOST_FOLDERS else folder


def _read_server(name: str, raw: Any, variables: Variables, locks: LockFiles, findings: Diagnostics) -> ServerConfig:
    """Read one server; an unusable entry becomes a server with an `UnusableTransport`."""
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
    normalized = normalize_entry(name, raw, findings)
    try:
        entry = ServerEntry.model_validate(dict(normalized.values))
    except ValidationError as error:
        findings.invalid(error, server=name, written=normalized.written)
        return None
    if (kind := _transport_kind(name, entry, normalized, findings)) is None:
        return None
    _check_seconds(name, entry, normalized, findings)
    if entry.prefix in get_args(Prefixing):
        message = (
            f"prepends the text {entry.prefix!r} to the names of its tools; to choose when the server's name is "
            "prepended, write 'prefix' at the top level"
        )
        findings.warning(message, server=name, key=normalized.written["prefix"])
    _warn_of_unused(name, kind, normalized, findings)
    held = locks.held(name, entry, normalized.written)
    reader = TransportReader(name, variables, normalized.written, findings)
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
        protocol=_protocol(name, entry, normalized, findings),
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
        findings.problem(f"is {entry.type!r}, which needs a 'url', not a 'command'", server=name, key=written["type"])
    elif entry.url is not None and entry.type == "stdio":
        message = f"is 'stdio', which needs a 'command', not a {written['url']!r}"
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
        findings.problem("is shorter than 'timeout', which would have no effect", server=name, key="maxCallSeconds")


def _warn_of_unused(name: str, kind: str, said: NormalizedEntry, findings: Diagnostics) -> None:
    unused = HTTP_KEYS if kind == "stdio" else STDIO_KEYS
    transport = "command" if kind == "stdio" else "url"
    for key in said.values:
        if key in unused:
            findings.warning(f"has no effect with {transport!r}, ignored", server=name, key=said.written[key])


def _protocol(name: str, entry: ServerEntry, said: NormalizedEntry, findings: Diagnostics) -> ProtocolPin:
    if entry.type != "sse":
        return entry.protocol or "auto"
    if entry.protocol not in {None, "auto", "legacy"}:
        message = f"is {entry.protocol!r}, which is not available over SSE: remove it"
        findings.problem(message, server=name, key=said.written["protocol"])
    return "legacy"


class PinSettings(NamedTuple):
    """Pin settings of one server."""

    lock: str | None = None
    """The lock file; None for none."""
    pins: ServerPins | None = None
    """Pins of the server; empty if it is not in the lock file."""


class LockFiles:
    """The lock files of one configuration, each read once.

    Args:
        said: Top-level settings, for servers without their own.
        variables: Values of references.
        findings: Collects problems.
        are_read: Read the files; False for `bridge pin`, which writes them.
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
                findings.problem(f"must be the path of a lock file, not {json_type_name(lock)}", key="pins")
        if (mode := said.get("pinMode")) is not None:
            if mode in _MODES:
                self._mode = mode
            else:
                findings.problem("must be 'refuse' or 'flag'", key="pinMode")

    def held(self, server: str, entry: ServerEntry, written: Mapping[str, str]) -> PinSettings:
        """Resolve the pin settings of a server.

        Args:
            server: Its name.
            entry: Its entry.
            written: Original spelling of each key.
        """
        text = self._lock if entry.pins is None else entry.pins
        if text is None:
            if entry.pin_mode is not None:
                self._findings.warning("has no effect without 'pins'", server=server, key=written["pinMode"])
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
            reason = "; ".join(problem.message for problem in error.problems)
            self._findings.problem(f"{expanded.shown!r} {reason} (write it with `bridge pin`)", **place)
            return PinSettings(path)
        return PinSettings(path, self._read[path, mode].get(server, ServerPins(tools={}, mode=mode)))
