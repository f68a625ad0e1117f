"""load_config and parse_config, with the lock files that a configuration names.

The formats are those of `bridge.client.config.formats`, with references of `bridge.client.config.variables`. A problem
of one server makes only that server unusable (`UnusableTransport`). Problems of the whole file, or of all servers, are
raised together as one `ConfigError`; other diagnostics are warnings.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from bridge.client.config.document import Diagnostics, json_type_name
from bridge.client.config.formats import (
    canonical_key,
    is_bundle,
    is_disabled,
    normalize_entry,
    not_an_entry,
    read_root,
    with_only,
)
from bridge.client.config.hosts import read_document
from bridge.client.config.profiles import read_profiles
from bridge.client.config.schema import ServerEntry
from bridge.client.config.server_json import is_server_json
from bridge.client.config.servers import DEFAULT_MAX_CALL_SECONDS, Prefixing, ServerConfig, ServersConfig
from bridge.client.config.variables import EntryReader, Inputs, InputSource, Variables
from bridge.client.pins import PinMode, ServerPins, load_pins
from bridge.client.transports.http import HttpTransport
from bridge.client.transports.stdio import StdioTransport
from bridge.client.transports.transport import UnusableTransport
from bridge.errors import ConfigError, ConfigProblem
from bridge.types import without_none

if TYPE_CHECKING:
    from bridge.client.config.servers import ProtocolPin
    from bridge.client.transports.transport import Transport

TRANSPORTS: tuple[type[Transport], ...] = (StdioTransport, HttpTransport)
"""Transports that an entry can name."""

_logger = logging.getLogger("bridge.client")
_HOST_FOLDERS = frozenset({".vscode", ".cursor"})
_SURELY_MILLISECONDS = 1000


def load_config(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    inputs: InputSource | None = None,
    workspace_folder: str | os.PathLike[str] | None = None,
    reads_pins: bool = True,
) -> ServersConfig:
    """Read a server configuration from a JSON file, or from an MCP Bundle; comments and trailing commas are allowed.

    Args:
        path: The file. A bundle (``.mcpb``) is unpacked. TOML is read as that of Codex, and YAML as that of Goose or
            Continue.
        environ: Variables for references; the process environment by default.
        inputs: Values for ``${input:id}``, or of a bundle's ``user_config``: a mapping by id, or a function that asks
            the user.
        workspace_folder: Value of ``${workspaceFolder}`` and base of relative ``cwd`` and ``envFile``; by default the
            file's folder, or its parent if the file is in ``.vscode`` or ``.cursor``.
        reads_pins: Load the lock files that are named; otherwise only their paths are returned.

    Returns:
        The servers. Warnings are also logged.

    Raises:
        ConfigError: The file cannot be read, or no server in it is usable. It contains all problems.
    """
    source = os.fspath(path)
    if is_bundle(source):
        from bridge.client.config.bundle import bundle_configuration  # noqa: PLC0415 - only for bundles

        bundle = bundle_configuration(source, environ=os.environ if environ is None else environ, source=inputs)
        document, inputs = bundle.document, bundle.values
    else:
        document = read_document(_read_text(source), source)
    folder = Path(workspace_folder) if workspace_folder is not None else _folder_of(Path(source))
    config = parse_config(
        document,
        environ=environ,
        inputs=inputs,
        workspace_folder=folder,
        source=source,
        reads_pins=reads_pins,
        is_editable=not is_bundle(source),
    )
    servers = {
        name: replace(server, transport=server.transport.with_login_target(f"{source}#{name}"))
        for name, server in config.servers.items()
    }
    return replace(config, servers=servers)


def load_entries(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the entries of a configuration by name, as they are written; disabled ones too.

    Raises:
        ConfigError: The file cannot be read.
    """
    source = os.fspath(path)
    return dict(read_root(read_document(_read_text(source), source), Diagnostics()).servers)


def parse_entry(name: str, entry: Mapping[str, Any], path: str | os.PathLike[str] | None = None) -> ServerConfig:
    """Parse the entry of one server; the settings of a file for all of its servers count for it.

    Args:
        name: Name of the server.
        entry: Its entry, in any supported format.
        path: The file; None for none.

    Raises:
        ConfigError: The entry is invalid or disabled, or the file cannot be read.
    """
    source = "configuration" if path is None else os.fspath(path)
    document = {} if path is None else read_document(_read_text(source), source)
    folder = None if path is None else _folder_of(Path(source))
    config = parse_config(with_only(document, name, entry), workspace_folder=folder, source=source)
    if (server := config.usable(name)) is None:
        raise ConfigError(source, [ConfigProblem(config.why_missing(name), server=name)])
    return server if path is None else replace(server, transport=server.transport.with_login_target(f"{source}#{name}"))


def parse_config(
    document: Any,
    *,
    environ: Mapping[str, str] | None = None,
    inputs: InputSource | None = None,
    workspace_folder: str | os.PathLike[str] | None = None,
    source: str = "configuration",
    reads_pins: bool = True,
    is_editable: bool = True,
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
        is_editable: False for data that another computer describes, for messages.

    Returns:
        The servers. Warnings are also logged.

    Raises:
        ConfigError: No server is usable, or the data is invalid. It contains all problems.
    """
    diagnostics = Diagnostics()
    root = read_root(document, diagnostics)
    profiles = read_profiles(root.profiles, diagnostics)
    of_the_file = tuple(diagnostics.problems)
    variables_of = os.environ if environ is None else environ
    folder = Path(workspace_folder or ".").absolute()
    variables = Variables(
        variables_of, folder, Inputs(root.inputs, inputs, variables_of), is_editable and not is_server_json(document)
    )
    locks = LockFiles(root.pinning, variables, diagnostics, are_read=reads_pins)
    disabled = tuple(name for name, raw in root.servers.items() if isinstance(raw, Mapping) and is_disabled(raw))
    enabled = {name: raw for name, raw in root.servers.items() if name not in disabled}
    read = [_read_server(name, raw, variables, locks, diagnostics, source) for name, raw in enabled.items()]
    is_usable = any(not server.transport.problems for server in read)
    is_of_one_server = not of_the_file and all(problem.server is not None for problem in diagnostics.problems)
    if diagnostics.problems and not (is_usable and is_of_one_server):
        raise ConfigError(source, diagnostics.problems)
    if not root.servers:
        diagnostics.warning("it contains no servers")
    for warning in diagnostics.warnings:
        _logger.warning("%s: %s", source, warning)
    servers = {
        server.name: replace(server, prefixing=root.prefixing, tool_listing=root.tool_listing) for server in read
    }
    return ServersConfig(
        servers=servers, disabled=disabled, warnings=tuple(diagnostics.warnings), profiles=profiles, source=source
    )


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


def _read_server(
    name: str, raw: Any, variables: Variables, locks: LockFiles, diagnostics: Diagnostics, source: str
) -> ServerConfig:
    """Read one server; an unusable entry becomes a server with an `UnusableTransport`."""
    before = len(diagnostics.problems)
    config = _usable_server(name, raw, variables, locks, diagnostics)
    problems = tuple(diagnostics.problems[before:])
    if config is not None and not problems:
        return config
    transport = UnusableTransport(problems, source)
    if config is not None:
        return replace(config, transport=transport)
    is_required = isinstance(raw, Mapping) and raw.get("required") is True
    return ServerConfig(name=name, transport=transport, required=is_required)


def _usable_server(
    name: str, raw: Any, variables: Variables, locks: LockFiles, diagnostics: Diagnostics
) -> ServerConfig | None:
    if not isinstance(raw, Mapping):
        diagnostics.problem(not_an_entry(raw), server=name)
        return None
    normalized = normalize_entry(name, raw, diagnostics)
    try:
        entry = ServerEntry.model_validate(dict(normalized.values))
    except ValidationError as error:
        diagnostics.invalid(error, server=name, written=normalized.written)
        return None
    reader = EntryReader(name, variables, normalized.written, diagnostics, normalized.translated)
    if (transport := _transport_of(entry, normalized.meant, reader)) is None:
        return None
    _check_seconds(entry, reader)
    if entry.prefix in get_args(Prefixing):
        message = (
            f"prepends the text {entry.prefix!r} to the names of its tools; to choose when the server's name is "
            "prepended, write 'prefix' at the top level"
        )
        reader.warning(message, "prefix")
    unused = frozenset().union(*(other.entry_keys for other in TRANSPORTS)) - transport.entry_keys
    for key in normalized.written:
        if key in unused:
            reader.warning(f"has no effect with {transport.address_key!r}, ignored", key)
    if entry.idle_seconds is not None and entry.start != "lazy" and entry.process_per is None:
        reader.warning('has no effect without "start": "lazy" or "processPer": "caller"', "idleSeconds")
    lock, pins = locks.held(entry, reader)
    given = without_none(
        timeout_seconds=entry.timeout,
        connect_timeout_seconds=entry.connect_timeout_seconds,
        connect_wait_seconds=entry.connect_wait_seconds,
        start=entry.start if transport.is_process else None,
        process_per=entry.process_per if transport.is_process else None,
        idle_seconds=entry.idle_seconds,
        required=entry.required,
        trusted=entry.trusted,
        unjudged_results=entry.unjudged_results,
        spill_chars=entry.spill_chars,
        extensions=entry.extensions,
        list_per=entry.list_per,
    )
    return ServerConfig(
        name=name,
        transport=transport.from_entry(entry, reader),
        max_call_seconds=entry.max_call_seconds or max(DEFAULT_MAX_CALL_SECONDS, entry.timeout or 0),
        prefix=entry.prefix,
        include=_patterns(entry.include),
        exclude=_patterns(entry.exclude) or (),
        include_resources=_patterns(entry.include_resources),
        exclude_resources=_patterns(entry.exclude_resources) or (),
        include_prompts=_patterns(entry.include_prompts),
        exclude_prompts=_patterns(entry.exclude_prompts) or (),
        always_visible=_patterns(entry.always_visible) or (),
        protocol=_protocol(entry, reader),
        pins=pins,
        lock=lock,
        **given,
    )


def _patterns(patterns: list[str] | None) -> tuple[str, ...] | None:
    return None if patterns is None else tuple(patterns)


def _transport_of(entry: ServerEntry, meant: Mapping[str, str], reader: EntryReader) -> type[Transport] | None:
    """Select the transport of an entry by the key of its address; None after a problem was reported."""
    given = [transport for transport in TRANSPORTS if transport.address_key in reader.written]
    keys = [reader.written[transport.address_key] for transport in given]
    wanted = next((transport for transport in TRANSPORTS if entry.type in transport.entry_types), None)
    if len(given) > 1:
        reader.problem(f"has both {' and '.join(map(repr, keys))}: keep one")
    elif not given:
        program, url = (reader.spelled(transport.address_key) for transport in TRANSPORTS)
        slips = [key for key, near in meant.items() if near in {program, url} or canonical_key(near) == "url"]
        hint = f"; did you mean {meant[slips[0]]!r} by {slips[0]!r}?" if slips else ""
        reader.problem(f"has neither {program!r} (a program to start) nor {url!r} (a server to connect to){hint}")
    elif wanted not in {None, given[0]}:
        assert wanted is not None
        reader.problem(
            f"is {entry.type!r}, which needs a {reader.spelled(wanted.address_key)!r}, not a {keys[0]!r}", "type"
        )
    else:
        return given[0]
    return None


def _check_seconds(entry: ServerEntry, reader: EntryReader) -> None:
    given = {
        "timeout": entry.timeout,
        "maxCallSeconds": entry.max_call_seconds,
        "connectTimeoutSeconds": entry.connect_timeout_seconds,
        "connectWaitSeconds": entry.connect_wait_seconds,
    }
    for key, seconds in given.items():
        if seconds is not None and seconds > _SURELY_MILLISECONDS:
            meant = f"if milliseconds were meant, write {seconds / 1000:g}"
            reader.warning(f"{seconds:g} is in seconds here; {meant}", key)
    if entry.timeout is not None and entry.max_call_seconds is not None and entry.max_call_seconds < entry.timeout:
        reader.problem(f"is shorter than {reader.spelled('timeout')!r}, which would have no effect", "maxCallSeconds")


def _protocol(entry: ServerEntry, reader: EntryReader) -> ProtocolPin:
    if entry.type != "sse":
        return entry.protocol or "auto"
    if entry.protocol not in {None, "auto", "legacy"}:
        reader.problem(f"is {entry.protocol!r}, which is not available over SSE: remove it", "protocol")
    return "legacy"


class LockFiles:
    """The lock files of one configuration, each read once.

    Args:
        settings: Top-level settings, for servers without their own.
        variables: Values of references.
        diagnostics: Collects problems.
        are_read: Read the files; False for `bridge pin`, which writes them.
    """

    def __init__(
        self, settings: Mapping[str, Any], variables: Variables, diagnostics: Diagnostics, *, are_read: bool
    ) -> None:
        self._reader = EntryReader(None, variables, {}, diagnostics)
        self._are_read = are_read
        self._read: dict[tuple[str, PinMode], Mapping[str, ServerPins]] = {}
        self._lock: str | None = None
        self._mode: PinMode = "refuse"
        if (lock := settings.get("pins")) is not None:
            self._lock = lock if isinstance(lock, str) else None
            if self._lock is None:
                self._reader.problem(f"must be the path of a lock file, not {json_type_name(lock)}", "pins")
        if (mode := settings.get("pinMode")) is not None:
            if mode in get_args(PinMode):
                self._mode = mode
            else:
                self._reader.problem("must be 'refuse' or 'flag'", "pinMode")

    def held(self, entry: ServerEntry, reader: EntryReader) -> tuple[str | None, ServerPins | None]:
        """Path of a server's lock file, and its pins; without pins if the file cannot be read, or is not to be."""
        text, place = (self._lock, self._reader) if entry.pins is None else (entry.pins, reader)
        if text is None:
            if entry.pin_mode is not None:
                reader.warning("has no effect without 'pins'", "pinMode")
            return None, None
        path = place.path(text, "pins")
        if path.is_missing:
            return None, None
        if not self._are_read:
            return path.value, None
        mode = entry.pin_mode or self._mode
        key = path.value, mode
        try:
            if key not in self._read:
                self._read[key] = load_pins(path.value, mode=mode)
        except ConfigError as error:
            reason = "; ".join(problem.message for problem in error.problems)
            place.problem(f"{path.shown!r} {reason} (write it with `bridge pin`)", "pins")
            return path.value, None
        return path.value, self._read[key].get(reader.server or "", ServerPins.nothing(mode))
