"""Configuration formats and key aliases of MCP hosts.

Supported formats are ``mcpServers`` of Claude Desktop and Cursor, VS Code's ``servers`` with ``inputs``, and a plain
map of servers. Key aliases of Claude, Cursor, VS Code, FastMCP, Windsurf, Cline, Copilot and Gemini are accepted.
Canonical keys are camelCase; ``snake_case`` is equivalent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from pydantic.alias_generators import to_camel

from bridge.client.config.document import json_type_name, repeated_keys, translated_keys
from bridge.client.config.schema import KEYS, normalize_auth
from bridge.client.config.server_json import entry_of, is_server_json
from bridge.client.config.servers import Prefixing, ToolListing
from bridge.client.config.variables import read_inputs
from bridge.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bridge.client.config.document import Diagnostics
    from bridge.client.config.variables import InputDefinition

BUNDLE_SUFFIX = ".mcpb"
"""Suffix of MCP Bundles."""
_MAPS = ("mcpServers", "servers")
_PINNING = ("pins", "pinMode")
_PREFIX = "prefix"
_TOOLS = "tools"
_PROFILES = "profiles"
_SETTINGS = (*_PINNING, _PREFIX, _TOOLS, "inputs")
_ROOT_KEYS = frozenset({*_MAPS, *_SETTINGS, _PROFILES, "$schema"})
_MAX_NAMES = 5

_KEY_SPELLINGS = {
    "transport": "type",
    "transportType": "type",
    "serverUrl": "url",
    "httpUrl": "url",
    "disabledTools": "exclude",
    "excludeTools": "exclude",
    "enabledTools": "include",
    "includeTools": "include",
    "disabledResources": "excludeResources",
    "enabledResources": "includeResources",
    "disabledPrompts": "excludePrompts",
    "enabledPrompts": "includePrompts",
    "enabled": "disabled",
    "oauth": "auth",
}

_TRANSPORT_SPELLINGS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "httpsse": "sse",
}


@dataclass(frozen=True, slots=True)
class Root:
    """A configuration with unparsed server entries."""

    servers: Mapping[str, Any]
    """Each server's entry by name, as written; not validated."""
    inputs: tuple[InputDefinition, ...]
    """Definitions of inputs."""
    pinning: Mapping[str, Any] = field(default_factory=dict)
    """Pin settings for all servers; see `bridge.client.config.loading`."""
    prefixing: Prefixing | None = None
    """When the server's name is prepended to its tool names; None if not set."""
    tool_listing: ToolListing | None = None
    """Tools that clients of a gateway list; None if not set."""
    profiles: Any = None
    """The profiles, as written; not validated."""


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """True for the name of an MCP Bundle."""
    return os.fspath(path).lower().endswith(BUNDLE_SUFFIX)


def read_root(document: Any, diagnostics: Diagnostics) -> Root:
    """Find the servers and inputs of a configuration in any supported format."""
    if not isinstance(document, Mapping):
        diagnostics.problem(f"a configuration must be an object with 'mcpServers', not {json_type_name(document)}")
        return Root({}, ())
    if is_server_json(document):
        return _described(document, diagnostics)
    maps = [key for key in _MAPS if key in document and not _is_server(document[key])]
    servers = _named_servers(document, maps, diagnostics) if maps else _bare_servers(document, diagnostics)
    inputs = document.get("inputs")
    definitions = () if not maps and isinstance(inputs, Mapping) else read_inputs(inputs, diagnostics)
    if not maps:
        return Root(servers, definitions)
    pinning = {key: document[key] for key in _PINNING if key in document}
    return Root(
        servers,
        definitions,
        pinning,
        _choice(document, _PREFIX, get_args(Prefixing), diagnostics),
        _choice(document, _TOOLS, get_args(ToolListing), diagnostics),
        document.get(_PROFILES),
    )


def with_only(document: Any, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration of one server with the settings that a configuration has for all of its servers."""
    is_named = isinstance(document, Mapping) and any(key in document for key in _MAPS)
    settings = {key: document[key] for key in _SETTINGS if key in document} if is_named else {}
    return {**settings, _MAPS[0]: {name: entry}}


def map_of(document: Mapping[str, Any], name: str) -> str | None:
    """Key of the object that has, or would get, a server; None if the servers are at the root."""
    maps = [key for key in _MAPS if key in document and not _is_server(document[key])]
    if not maps:
        return None if document else _MAPS[0]
    return next((key for key in maps if isinstance(document[key], Mapping) and name in document[key]), maps[0])


def _described(document: Any, diagnostics: Diagnostics) -> Root:
    """Return the server that a registry's ``server.json``, or a card, describes."""
    try:
        name, entry = entry_of(document)
    except WireError as error:
        diagnostics.problem(str(error))
        return Root({}, ())
    return Root({name: entry}, ())


def _choice(document: Mapping[str, Any], key: str, choices: tuple[str, ...], diagnostics: Diagnostics) -> Any:
    """Return a setting of all servers that is one of some words; None without it."""
    value = document.get(key)
    if value is None or value in choices:
        return value
    *others, last = map(repr, choices)
    diagnostics.problem(f"must be {', '.join(others)} or {last}", key=key)
    return None


def _named_servers(document: Mapping[str, Any], maps: list[str], diagnostics: Diagnostics) -> dict[str, Any]:
    for key in repeated_keys(document):
        if key in _ROOT_KEYS:
            diagnostics.problem("is given twice: merge the two", key=key)
    unknown = [str(key) for key in document if key not in _ROOT_KEYS]
    if unknown:
        named = ", ".join(map(repr, unknown[:_MAX_NAMES]))
        more = f" and {len(unknown) - _MAX_NAMES} more" if len(unknown) > _MAX_NAMES else ""
        diagnostics.warning(f"{named}{more}: not a server setting, ignored")
    servers: dict[str, Any] = {}
    for key in maps:
        found = document[key]
        if isinstance(found, Mapping):
            servers |= _checked(found, {*repeated_keys(found), *(found.keys() & servers.keys())}, diagnostics)
        else:
            diagnostics.problem(f"must be an object of servers by name, not {json_type_name(found)}", key=key)
    return servers


def _bare_servers(document: Mapping[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    found = {
        key: value
        for key, value in document.items()
        if key != "$schema" and not (key == "inputs" and isinstance(value, list))
    }
    if found and not any(_is_server(value) for value in found.values()):
        slip = next((str(key) for key in found if closest_key(str(key), _MAPS) is not None), None)
        hint = f"; did you mean {closest_key(slip, _MAPS)!r} by {slip!r}?" if slip is not None else ""
        diagnostics.problem(
            "no servers found: expected 'mcpServers' (Claude Desktop, Cursor), 'servers' (VS Code), "
            f"or only servers by name, each with a 'command' or a 'url'{hint}"
        )
        return {}
    for name, entry in found.items():
        if not isinstance(entry, Mapping):  # other keys may stand between the servers
            diagnostics.problem(not_an_entry(entry), server=str(name))
    return _checked(found, repeated_keys(document), diagnostics)


def _checked(found: Mapping[str, Any], repeated: Collection[str], diagnostics: Diagnostics) -> dict[str, Any]:
    servers = {}
    for name, entry in found.items():
        if problem := _name_complaint(name):
            diagnostics.problem(problem, server=str(name))
        if name in repeated:
            diagnostics.problem("two servers have this name: rename one", server=name)
        servers[name] = entry
    return servers


def _name_complaint(name: Any) -> str | None:
    if not isinstance(name, str) or not name or name != name.strip():
        return "a server's name must be text without leading or trailing blanks: rename it"
    if not name.isprintable():
        return "a server's name must not contain control characters: rename it"
    return None


def not_an_entry(value: Any) -> str:
    """Problem message for a server entry that is not an object."""
    return f"must be an object with a 'command' or a 'url', not {json_type_name(value)}"


def _is_server(value: Any) -> bool:
    return isinstance(value, Mapping) and any(
        isinstance(text, str) and canonical_key(str(key)) in {"command", "url"} for key, text in value.items()
    )


@dataclass(frozen=True, slots=True)
class NormalizedEntry:
    """A server's entry with canonical keys."""

    values: Mapping[str, Any]
    """Values by canonical key, without null values."""
    written: Mapping[str, str]
    """Original spelling of each key."""
    meant: Mapping[str, str]
    """Closest known key for each unknown key."""
    translated: Mapping[str, str]
    """Keys of a host; see `bridge.client.config.document.JsonObject`."""


def canonical_key(key: str) -> str | None:
    """Canonical form of a server's key; None if it is unknown."""
    camel = to_camel(key) if "_" in key else key
    camel = _KEY_SPELLINGS.get(camel, camel)
    return camel if camel in KEYS else None


def is_disabled(raw: Mapping[str, Any]) -> bool:
    """True if the server is disabled and must not be read."""
    return raw.get("disabled") is True or raw.get("enabled") is False


def normalize_entry(name: str, raw: Mapping[str, Any], diagnostics: Diagnostics) -> NormalizedEntry:
    """Convert the keys and the transport name of one server to their canonical form."""
    for path in (*repeated_keys(raw), *(f"{key}.{inner}" for key in raw for inner in repeated_keys(raw[key]))):
        diagnostics.problem("is given twice: remove one", server=name, key=path)
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    meant: dict[str, str] = {}
    translated = translated_keys(raw)
    known = [*(translated.get(key, key) for key in KEYS), *_KEY_SPELLINGS]
    for key, value in raw.items():
        canonical, own = canonical_key(str(key)), translated.get(key, str(key))
        if canonical is None:
            if (near := closest_key(own, known)) is not None:
                meant[own] = near
            suggestion = f"; did you mean {near!r}?" if near is not None else ""
            diagnostics.warning(f"unknown, ignored{suggestion}", server=name, key=own)
        elif value is not None:
            normalized = _canonical_value(canonical, str(key), value)
            if canonical == "auth":
                normalized = normalize_auth(name, own, normalized, diagnostics)
            if canonical in values and values[canonical] != normalized:
                diagnostics.problem(f"contradicts {written[canonical]!r}: keep one of them", server=name, key=own)
            values[canonical] = normalized
            written.setdefault(canonical, own)
    if written.get("url") == "httpUrl" and "type" not in values:
        values["type"], written["type"] = "http", "httpUrl"
    return NormalizedEntry(values, written, meant, translated)


def _canonical_value(canonical: str, key: str, value: Any) -> Any:
    if canonical == "disabled" and key == "enabled" and isinstance(value, bool):
        return not value
    if canonical == "type" and isinstance(value, str):
        letters = "".join(char for char in value.lower() if char.isalpha())
        return _TRANSPORT_SPELLINGS.get(letters, value)
    return value


def closest_key(key: str, known: Iterable[str]) -> str | None:
    """Find the known key that is most similar to an unknown one; None for none."""
    spellings = {spelling.lower(): spelling for spelling in known}
    near = get_close_matches(key.lower().replace("_", ""), spellings, n=1, cutoff=0.75)
    return spellings[near[0]] if near else None
