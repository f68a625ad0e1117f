"""Tool pinning: detect changes of a server's tools since they were reviewed.

A lock file holds a hash of each part of each tool, and the parts themselves. Only the hashes are compared; the parts
are used to display a diff.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bridge.errors import ConfigError, ConfigProblem, WireError
from bridge.text import clip_lines, diff_lines, escape_controls
from bridge.types import require_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bridge.types import Json

PinMode: TypeAlias = Literal["refuse", "flag"]
"""Handling of a tool that differs from its pin: leave it out, or use it with a warning."""

LOCK_VERSION = 1
"""Format version of the lock file."""

MAX_DIFF_LINES = 60
"""Maximum lines of the diff of one tool."""

_PARTS: Mapping[str, tuple[str, ...]] = {
    "description": ("title", "description"),
    "inputSchema": ("inputSchema",),
    "outputSchema": ("outputSchema",),
    "annotations": ("annotations",),
}
"""Parts that are hashed separately, with the keys of MCP's ``Tool`` that they consist of."""

_logger = logging.getLogger("bridge.client")


@dataclass(frozen=True, slots=True)
class ToolPin:
    """One pinned tool."""

    hashes: Mapping[str, str]
    """Hash of each part."""
    definition: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The parts themselves; empty if the lock file has only hashes."""

    @classmethod
    def of(cls, tool: Mapping[str, Any]) -> ToolPin:
        """Create the pin of a tool as listed (MCP's ``Tool``)."""
        hashes = {part: _hash([tool.get(key) for key in keys]) for part, keys in _PARTS.items()}
        return cls(hashes, {key: tool[key] for keys in _PARTS.values() for key in keys if tool.get(key) is not None})

    def changed_parts(self, other: ToolPin) -> tuple[str, ...]:
        """Parts in which the two tools differ."""
        return tuple(part for part in _PARTS if self.hashes.get(part) != other.hashes.get(part))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDrift:
    """Difference of one tool from its pin."""

    name: str
    """The tool's name on its server."""
    kind: Literal["added", "removed", "changed"]
    """The tool is not pinned, is no longer listed, or differs from its pin."""
    parts: tuple[str, ...] = ()
    """Changed parts: ``description``, ``inputSchema``, …"""
    diff: str = ""
    """Unified diff of the change."""

    @property
    def brief(self) -> str:
        """One-line summary without the diff."""
        summaries = {
            "added": "is not pinned",
            "removed": "is pinned but no longer listed",
            "changed": f"has changed: {', '.join(self.parts)}",
        }
        return f"the tool {self.name!r} {summaries[self.kind]}"

    def __str__(self) -> str:
        return f"{self.brief}\n{self.diff}" if self.diff else self.brief


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPins:
    """Pinned tools of one server, and the handling of differences."""

    tools: Mapping[str, ToolPin]
    """Pins by remote tool name."""
    mode: PinMode = "refuse"
    """Handling of tools that are not pinned or differ from their pins."""

    def drift(self, tools: Iterable[Mapping[str, Any]]) -> list[ToolDrift]:
        """Compare listed tools, each as MCP's ``Tool``, with the pins."""
        current = {str(tool.get("name")): ToolPin.of(tool) for tool in tools}
        found: list[ToolDrift] = []
        for name, now in current.items():
            if (pinned := self.tools.get(name)) is None:
                found.append(ToolDrift(name=name, kind="added"))
            elif parts := pinned.changed_parts(now):
                found.append(ToolDrift(name=name, kind="changed", parts=parts, diff=_diff(pinned, now, parts)))
        return [*found, *(ToolDrift(name=name, kind="removed") for name in self.tools if name not in current)]

    def admitted(self, server: str, tools: Sequence[Json]) -> tuple[list[Json], tuple[str, ...]]:
        """Select the listed tools (MCP's ``Tool``) that may be used; differences from the pins are logged.

        Returns:
            The tools, and one sentence with the reason for each refused tool.
        """
        drift = self.drift(tools)
        refused = {each.name for each in drift} if self.mode == "refuse" else set()
        for each in drift:
            action = "left out" if each.name in refused and each.kind != "removed" else "reported only"
            _logger.warning("server %r: difference from its pins (%s): %s", server, action, each)
        admitted = [tool for tool in tools if tool.get("name") not in refused]
        return admitted, tuple(each.brief for each in drift if each.name in refused and each.kind != "removed")


def pins_of(tools: Iterable[Mapping[str, Any]]) -> ServerPins:
    """Create pins from the current tools of a server, each as MCP's ``Tool``."""
    return ServerPins(tools={str(tool["name"]): ToolPin.of(tool) for tool in tools})


def load_pins(path: str | os.PathLike[str], *, mode: PinMode = "refuse") -> dict[str, ServerPins]:
    """Read the pins of each server, by name, from a lock file.

    Raises:
        ConfigError: The file cannot be read, or is not a lock file.
    """
    source = os.fspath(path)
    try:
        document = json.loads(Path(source).read_text(encoding="utf-8"))
        return dict(_read(document, mode))
    except OSError as error:
        problem = ConfigProblem(f"cannot be read: {error.strerror or type(error).__name__}")
    except (ValueError, RecursionError) as error:
        problem = ConfigProblem(f"is not a lock file of `bridge pin`: {error}")
    raise ConfigError(source, [problem])


def write_pins(path: str | os.PathLike[str], servers: Mapping[str, ServerPins]) -> None:
    """Replace a lock file atomically by the pins of each server; equal tools give equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    written = {
        server: {name: {"hashes": pin.hashes, "definition": pin.definition} for name, pin in sorted(pins.tools.items())}
        for server, pins in sorted(servers.items())
    }
    document = {"version": LOCK_VERSION, "servers": {server: {"tools": tools} for server, tools in written.items()}}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        temporary.write_bytes(text.encode(errors="backslashreplace"))  # writes lone surrogates as JSON escapes
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _read(document: Any, mode: PinMode) -> Iterator[tuple[str, ServerPins]]:
    root = require_object(document, "the document")
    if root.get("version") != LOCK_VERSION:
        raise WireError(f"its version is {root.get('version')!r}, only {LOCK_VERSION} is supported")
    for server, entry in require_object(root.get("servers"), "'servers'").items():
        tools = require_object(require_object(entry, f"server {server!r}").get("tools"), f"'tools' of {server!r}")
        yield server, ServerPins(tools={name: _pin(name, tool) for name, tool in tools.items()}, mode=mode)


def _pin(name: str, tool: Any) -> ToolPin:
    hashes = require_object(require_object(tool, f"tool {name!r}").get("hashes"), f"'hashes' of {name!r}")
    if not all(isinstance(hashes.get(part), str) for part in _PARTS):
        raise WireError(f"the tool {name!r} lacks a hash: hashes of {', '.join(_PARTS)} are required")
    return ToolPin({part: hashes[part] for part in _PARTS}, require_object(tool.get("definition", {}), f"{name!r}"))


def _hash(value: list[Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _diff(pinned: ToolPin, now: ToolPin, parts: Iterable[str]) -> str:
    lines: list[str] = []
    for key in (key for part in parts for key in _PARTS[part]):
        before, after = pinned.definition.get(key), now.definition.get(key)
        lines += diff_lines(before, after, f"{key} (pinned)", f"{key} (current)")
    return "\n".join(f"  {escape_controls(line)}" for line in clip_lines(lines, MAX_DIFF_LINES))
