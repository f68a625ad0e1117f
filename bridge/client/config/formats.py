"""Dialects: the shapes in which hosts write down their servers, brought to one.

Read are Claude Desktop's and Cursor's ``mcpServers``, VS Code's ``servers`` with ``inputs``, and a bare map of servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from bridge.client.config.document import kind_of
from bridge.client.inputs import read_inputs
from bridge.client.jsonc import repeated_keys
from bridge.client.spelling import canonical_key, nearest
from bridge.client.tool_catalog import Prefixing

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.client.config.document import Findings
    from bridge.client.inputs import InputDefinition

_MAPS = ("mcpServers", "servers")
_PINNING = ("pins", "pinMode")
_PREFIX = "prefix"
_ROOT_KEYS = frozenset({*_MAPS, *_PINNING, _PREFIX, "inputs", "$schema"})
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class Root:
    """A configuration whose servers are found but not yet read."""

    servers: Mapping[str, Any]
    """Each server's entry as written, by name; an object, if it is right."""
    inputs: tuple[InputDefinition, ...]
    """The values to ask for."""
    pinning: Mapping[str, Any] = field(default_factory=dict)
    """What it says of lock files, for all servers; see `bridge.client.locks`."""
    prefixing: Prefixing | None = None
    """When a server's name stands before the names of its tools; None where it does not say."""


def read_root(document: Any, findings: Findings) -> Root:
    """Find the servers and the inputs of a configuration, whichever dialect it is in."""
    if not isinstance(document, Mapping):
        findings.problem(f"a configuration is an object with 'mcpServers', not {kind_of(document)}")
        return Root({}, ())
    maps = [key for key in _MAPS if key in document and not _is_server(document[key])]
    servers = _named_servers(document, maps, findings) if maps else _bare_servers(document, findings)
    inputs = document.get("inputs")
    asked = () if not maps and isinstance(inputs, Mapping) else read_inputs(inputs, findings)
    if not maps:
        return Root(servers, asked)
    pinning = {key: document[key] for key in _PINNING if key in document}
    return Root(servers, asked, pinning, _prefixing(document.get(_PREFIX), findings))


def _prefixing(said: Any, findings: Findings) -> Prefixing | None:
    modes: tuple[Prefixing, ...] = get_args(Prefixing)
    for mode in modes:
        if said == mode:
            return mode
    if said is not None:
        findings.problem("should be 'always', 'on_collision' or 'never'", key=_PREFIX)
    return None


def _named_servers(document: Mapping[str, Any], maps: list[str], findings: Findings) -> dict[str, Any]:
    for key in repeated_keys(document):
        if key in _ROOT_KEYS:
            findings.problem("stands twice: put the two together", key=key)
    unknown = [str(key) for key in document if key not in _ROOT_KEYS]
    if unknown:
        named = ", ".join(map(repr, unknown[:_MAX_NAMES]))
        more = f" and {len(unknown) - _MAX_NAMES} more" if len(unknown) > _MAX_NAMES else ""
        findings.warning(f"{named}{more}: not about servers, and ignored")
    servers: dict[str, Any] = {}
    for key in maps:
        found = document[key]
        if isinstance(found, Mapping):
            servers |= _checked(found, {*repeated_keys(found), *(found.keys() & servers.keys())}, findings)
        else:
            findings.problem(f"should be an object of servers by name, not {kind_of(found)}", key=key)
    return servers


def _bare_servers(document: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    found = {
        key: value
        for key, value in document.items()
        if key != "$schema" and not (key == "inputs" and isinstance(value, list))
    }
    if found and not any(_is_server(value) for value in found.values()):
        slip = next((str(key) for key in found if nearest(str(key), _MAPS) is not None), None)
        hint = f"; did you mean {nearest(slip, _MAPS)!r} by {slip!r}?" if slip is not None else ""
        findings.problem(
            "there are no servers here: expected 'mcpServers' (Claude Desktop, Cursor), 'servers' (VS Code), "
            f"or nothing but servers by name, each with a 'command' or a 'url'{hint}"
        )
        return {}
    for name, entry in found.items():
        if not isinstance(entry, Mapping):  # what stands among the servers may be none at all
            findings.problem(not_an_entry(entry), server=str(name))
    return _checked(found, repeated_keys(document), findings)


def _checked(found: Mapping[str, Any], repeated: Collection[str], findings: Findings) -> dict[str, Any]:
    servers = {}
    for name, entry in found.items():
        if complaint := _name_complaint(name):
            findings.problem(complaint, server=str(name))
        if name in repeated:
            findings.problem("two servers have this name: rename one", server=name)
        servers[name] = entry
    return servers


def _name_complaint(name: Any) -> str | None:
    if not isinstance(name, str) or not name or name != name.strip():
        return "a server's name is text without blanks around it: rename it"
    if not name.isprintable():
        return "a server's name holds no control characters: rename it"
    return None


def not_an_entry(value: Any) -> str:
    """What is wrong with a server that is no object."""
    return f"should be an object with a 'command' or a 'url', not {kind_of(value)}"


def _is_server(value: Any) -> bool:
    return isinstance(value, Mapping) and any(
        isinstance(said, str) and canonical_key(str(key)) in {"command", "url"} for key, said in value.items()
    )
