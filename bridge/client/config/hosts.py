"""Configurations of hosts with keys of their own, read as ``mcpServers``.

Codex       ``config.toml``: ``[mcp_servers.NAME]``
Goose       ``config.yaml``: ``extensions``
Continue    ``config.yaml``: ``mcpServers``, a list of entries with names
Zed         ``settings.json``: ``context_servers``
others      ``settings.json`` and so on: ``mcpServers``, among other settings

Keys that only the host needs are dropped, and so are servers that only the host can start.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from bridge.client.config.document import JsonObject, json_type_name, parse_jsonc, repeated_keys
from bridge.errors import ConfigError, ConfigProblem, DefinitionError
from bridge.yaml_reader import read_yaml

Entry = dict[str, Any]

_SETTINGS_FILES = frozenset({"settings.json", "claude_desktop_config.json", ".claude.json"})
"""Files of programs with settings beside the servers."""
_CODEX = {
    "http_headers": "headers",
    "startup_timeout_sec": "connectTimeoutSeconds",
    "tool_timeout_sec": "timeout",
}
_CODEX_OWN = frozenset(
    {"env_vars", "startup_timeout_ms", "default_tools_approval_mode", "supports_parallel_tool_calls", "tools"}
    | {"scopes", "oauth_resource", "experimental_environment"}
)
_GOOSE = {"cmd": "command", "envs": "env", "uri": "url", "available_tools": "include"}
_GOOSE_TYPES = frozenset({"stdio", "streamable_http", "sse"})
_GOOSE_OWN = frozenset({"name", "description", "display_name", "bundled", "env_keys", "version"})
_ZED_OWN = frozenset({"source", "settings", "remote"})


def read_document(text: str, source: str) -> Any:
    """Parse a configuration in the format of its file, and return what it has in the form of ``mcpServers``.

    Raises:
        ConfigError: The text is not in this format.
        MissingExtraError: It is YAML, and ``pyyaml`` is not installed.
    """
    document = parse_document(text, source)
    match PurePath(source).suffix.lower():
        case ".toml":
            return _of_host(document, "mcp_servers", source, _codex) or _of_toml(source)
        case ".yaml" | ".yml":
            return _of_host(document, "extensions", source, _goose) or _of_list(document) or document
        case _:
            return _of_host(document, "context_servers", source, _zed) or _of_settings(document, source) or document


def parse_document(text: str, source: str) -> Any:
    """Parse JSON with comments, or TOML or YAML by the suffix of the file; raises as `read_document`."""
    match PurePath(source).suffix.lower():
        case ".toml":
            return _toml(text, source)
        case ".yaml" | ".yml":
            return _yaml(text, source)
        case _:
            return parse_jsonc(text, source)


def _toml(text: str, source: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(source, [ConfigProblem(f"not TOML: {error}")]) from error


def _yaml(text: str, source: str) -> Any:
    try:
        return read_yaml(text.encode(), source, extra="clients") or {}
    except DefinitionError as error:
        raise ConfigError(source, [ConfigProblem(str(error).removeprefix(f"{source} "))]) from error


def _of_host(
    document: Any, key: str, source: str, entry_of: Callable[[Mapping[str, Any]], Entry | None]
) -> Entry | None:
    """Return the servers of a host without its other settings; None if it has no servers under the key.

    Raises:
        ConfigError: The value under the key is no object.
    """
    if not isinstance(document, Mapping) or key not in document or "mcpServers" in document:
        return None
    servers = {} if document[key] is None else document[key]
    if not isinstance(servers, Mapping):
        message = f"must be an object of servers by name, not {json_type_name(servers)}"
        raise ConfigError(source, [ConfigProblem(message, key=key)])
    read = {str(name): entry_of(entry) if isinstance(entry, Mapping) else entry for name, entry in servers.items()}
    return {"mcpServers": {name: entry for name, entry in read.items() if entry is not None}}


def _of_toml(source: str) -> Entry:
    """Return the configuration of a file without a table of servers.

    Raises:
        ConfigError: It is no configuration of Codex.
    """
    if PurePath(source).name.lower() != "config.toml":
        raise ConfigError(source, [ConfigProblem("not a configuration: it has no [mcp_servers]")])
    return {"mcpServers": {}}


def _of_list(document: Any) -> Entry | None:
    """Return the servers of a list; None for another document.

    Blocks of the hub, which has their entries, are left out.
    """
    servers = document.get("mcpServers") if isinstance(document, Mapping) else None
    if not isinstance(servers, list):
        return None
    pairs = [
        (str(entry["name"]), _without(entry, {"name"}))
        if isinstance(entry, Mapping) and "name" in entry
        else (f"mcpServers[{number}]", entry)
        for number, entry in enumerate(servers)
        if not (isinstance(entry, Mapping) and "uses" in entry)
    ]
    read = JsonObject(pairs)
    names = [name for name, _ in pairs]
    read.repeated = tuple(name for name in read if names.count(name) > 1)
    return {"mcpServers": read}


def _of_settings(document: Any, source: str) -> JsonObject | None:
    """Return the servers among the settings of a program; None for another file."""
    if PurePath(source).name not in _SETTINGS_FILES or not isinstance(document, JsonObject):
        return None
    if "mcpServers" not in document:
        return None
    servers = JsonObject(mcpServers=document["mcpServers"])
    servers.repeated = document.repeated
    return servers


def _codex(entry: Mapping[str, Any]) -> Entry:
    read = _translated(entry, _CODEX, _CODEX_OWN)
    given, referring = read.get("headers") or {}, read.get("env_http_headers") or {}
    keys = dict(read.translated)
    read.translated = keys
    read.pop("env_http_headers", None)
    for key, value in (("http_headers", given), ("env_http_headers", referring)):
        if not isinstance(value, Mapping):
            keys["headers"] = key
            read["headers"] = value
            return read
    headers = dict(given)
    if (token := read.pop("bearer_token_env_var", None)) is not None:
        headers["Authorization"] = f"Bearer ${{{token}}}"
        keys["headers.Authorization"] = "bearer_token_env_var"
    headers |= {name: f"${{{variable}}}" for name, variable in referring.items()}
    keys |= {f"headers.{name}": f"env_http_headers.{name}" for name in referring}
    if headers:
        read["headers"] = headers
    return read


def _goose(entry: Mapping[str, Any]) -> Entry | None:
    if isinstance(kind := entry.get("type"), str | None) and kind not in _GOOSE_TYPES:
        return None
    tools = {"available_tools"} if not entry.get("available_tools") else set()
    return _translated(entry, _GOOSE, _GOOSE_OWN | tools)


def _zed(entry: Mapping[str, Any]) -> Entry | None:
    if not {"command", "url"} & entry.keys():
        return None
    command = entry.get("command")
    if isinstance(command, Mapping):  # of versions before 2025-09
        entry = {**entry, "command": command.get("path"), **_without(command, {"path"})}
        keys = {f"command.{key}": "command" if key == "path" else key for key in ("path", "args", "env")}
        return _translated(entry, {}, _ZED_OWN, {own: key for key, own in keys.items()})
    return _translated(entry, {}, _ZED_OWN)


def _translated(
    entry: Mapping[str, Any],
    keys: Mapping[str, str],
    own: frozenset[str],
    written: Mapping[str, str] | None = None,
) -> JsonObject:
    """Translate the keys of an entry, without those that are the host's own; what it has written is recorded."""
    read = JsonObject((keys.get(key, key), value) for key, value in entry.items() if key not in own)
    read.repeated = repeated_keys(entry)
    read.translated = {ours: key for key, ours in keys.items() if ours not in entry} if written is None else written
    return read


def _without(entry: Mapping[str, Any], keys: frozenset[str] | set[str]) -> Entry:
    return {key: value for key, value in entry.items() if key not in keys}
