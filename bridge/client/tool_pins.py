"""Pinning: what a server's tools were when somebody looked at them, so that a change does not go unseen.

A lock file holds a hash of each part of each tool that a model or a program relies on, and the parts themselves, so
that a change can be shown and not only stated. The hashes decide; the parts are for people.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bridge.errors import ConfigError, ConfigProblem
from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bridge.types import Json

PinMode: TypeAlias = Literal["refuse", "flag"]
"""What becomes of a tool that is not as it was pinned: it is left out, or taken with a warning."""

LOCK_VERSION = 1
"""The form of the lock file."""

MAX_DIFF_LINES = 60
"""How long the part of a diff about one tool may be."""

_PARTS: Mapping[str, tuple[str, ...]] = {
    "description": ("title", "description"),
    "inputSchema": ("inputSchema",),
    "outputSchema": ("outputSchema",),
    "annotations": ("annotations",),
}
"""What is hashed on its own, and the keys of MCP's ``Tool`` that it is made of."""

_logger = logging.getLogger("bridge.client")


@dataclass(frozen=True, slots=True)
class ToolPin:
    """One tool as it was pinned."""

    hashes: Mapping[str, str]
    """For each part its hash."""
    definition: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The parts themselves; empty where the lock file holds only hashes."""

    @classmethod
    def of(cls, tool: Mapping[str, Any]) -> ToolPin:
        """A tool as its server lists it (MCP's ``Tool``)."""
        parts = {part: _part(tool, keys) for part, keys in _PARTS.items()}
        hashes = {part: _hash(value) for part, value in parts.items()}
        return cls(hashes, {key: tool[key] for keys in _PARTS.values() for key in keys if tool.get(key) is not None})

    def changed_parts(self, other: ToolPin) -> tuple[str, ...]:
        """The parts in which two tools differ."""
        return tuple(part for part in _PARTS if self.hashes.get(part) != other.hashes.get(part))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDrift:
    """One tool that is not as it was pinned."""

    name: str
    """The tool's name on its server."""
    kind: Literal["added", "removed", "changed"]
    """It was not pinned, it is gone, or it is another."""
    parts: tuple[str, ...] = ()
    """What changed: ``description``, ``inputSchema``, …"""
    diff: str = ""
    """The change, line by line."""

    @property
    def brief(self) -> str:
        """What happened, without how."""
        told = {
            "added": "is not pinned",
            "removed": "is pinned, and gone",
            "changed": f"has changed: {', '.join(self.parts)}",
        }
        return f"the tool {self.name!r} {told[self.kind]}"

    def __str__(self) -> str:
        return f"{self.brief}\n{self.diff}" if self.diff else self.brief


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPins:
    """The tools of one server as they were pinned, and what becomes of others."""

    tools: Mapping[str, ToolPin]
    """By the names that they have on the server."""
    mode: PinMode = "refuse"
    """What becomes of a tool that is not pinned, or not as it was."""

    def drift(self, tools: Iterable[Mapping[str, Any]]) -> list[ToolDrift]:
        """In which tools a list differs from what was pinned.

        Args:
            tools: Each as MCP's ``Tool``.
        """
        now = {str(tool.get("name")): ToolPin.of(tool) for tool in tools}
        found = [_compared(name, self.tools.get(name), pin) for name, pin in now.items()]
        gone = [ToolDrift(name=name, kind="removed") for name in self.tools if name not in now]
        return [*filter(None, found), *gone]

    def admitted(self, server: str, tools: Sequence[Json]) -> tuple[list[Json], tuple[str, ...]]:
        """The tools that may be used, of those that a server lists; what is not as it was pinned is logged.

        Args:
            server: The server's name, for the log.
            tools: Each as MCP's ``Tool``.

        Returns:
            The tools, and for each that is refused a sentence with the reason.
        """
        drift = self.drift(tools)
        refused = {each.name for each in drift} if self.mode == "refuse" else set()
        for each in drift:
            became = "it is left out" if each.name in refused and each.kind != "removed" else "it is only said"
            _logger.warning("server %r, against its pins (%s): %s", server, became, each)
        admitted = [tool for tool in tools if tool.get("name") not in refused]
        return admitted, tuple(each.brief for each in drift if each.name in refused and each.kind != "removed")


def pins_of(tools: Iterable[Mapping[str, Any]]) -> ServerPins:
    """The pins for the tools of a server as they are now.

    Args:
        tools: Each as MCP's ``Tool``.
    """
    return ServerPins(tools={str(tool["name"]): ToolPin.of(tool) for tool in tools})


def load_pins(path: str | os.PathLike[str], *, mode: PinMode = "refuse") -> dict[str, ServerPins]:
    """Read a lock file.

    Args:
        path: The file.
        mode: What becomes of tools that are not as they were pinned.

    Returns:
        For each server's name its pins.

    Raises:
        ConfigError: The file cannot be read, or is no lock file.
    """
    source = os.fspath(path)
    try:
        document = json.loads(Path(source).read_text(encoding="utf-8"))
        return dict(_read(document, mode))
    except OSError as error:
        problem = ConfigProblem(f"cannot be read: {error.strerror or type(error).__name__}")
    except (ValueError, RecursionError, _NotALockError) as error:
        problem = ConfigProblem(f"is no lock file of `bridge pin`: {error}")
    raise ConfigError(source, [problem])


def write_pins(path: str | os.PathLike[str], servers: Mapping[str, ServerPins]) -> None:
    """Write a lock file; the same tools always give the same bytes.

    Args:
        path: The file; replaced whole, or not at all.
        servers: For each server's name its pins.

    Raises:
        OSError: It cannot be written.
    """
    document = {
        "version": LOCK_VERSION,
        "servers": {
            server: {"tools": {name: _written(pin) for name, pin in sorted(pins.tools.items())}}
            for server, pins in sorted(servers.items())
        },
    }
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        beside.write_bytes(text.encode(errors="backslashreplace"))  # a lone surrogate is escaped as JSON does it
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


class _NotALockError(Exception):
    """The document is JSON, and no lock."""


def _read(document: Any, mode: PinMode) -> Iterator[tuple[str, ServerPins]]:
    root = _object(document, "the document")
    if root.get("version") != LOCK_VERSION:
        raise _NotALockError(f"its version is {root.get('version')!r}, and {LOCK_VERSION} is known here")
    for server, said in _object(root.get("servers"), "'servers'").items():
        tools = _object(_object(said, f"server {server!r}").get("tools"), f"'tools' of {server!r}")
        yield server, ServerPins(tools={name: _pin(name, tool) for name, tool in tools.items()}, mode=mode)


def _pin(name: str, tool: Any) -> ToolPin:
    hashes = _object(_object(tool, f"tool {name!r}").get("hashes"), f"'hashes' of {name!r}")
    if not all(isinstance(hashes.get(part), str) for part in _PARTS):
        raise _NotALockError(f"the tool {name!r} lacks a hash: there is one for {', '.join(_PARTS)}")
    return ToolPin({part: hashes[part] for part in _PARTS}, _object(tool.get("definition", {}), f"{name!r}"))


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _NotALockError(f"{what} is no object")
    return value


def _written(pin: ToolPin) -> Json:
    return {"hashes": dict(pin.hashes), "definition": dict(pin.definition)}


def _part(tool: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return [tool.get(key) for key in keys]


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _compared(name: str, pinned: ToolPin | None, now: ToolPin) -> ToolDrift | None:
    if pinned is None:
        return ToolDrift(name=name, kind="added")
    parts = pinned.changed_parts(now)
    if not parts:
        return None
    return ToolDrift(name=name, kind="changed", parts=parts, diff=_diff(pinned, now, parts))


def _diff(pinned: ToolPin, now: ToolPin, parts: Iterable[str]) -> str:
    lines: list[str] = []
    for key in (key for part in parts for key in _PARTS[part]):
        before, after = _lines(pinned.definition.get(key)), _lines(now.definition.get(key))
        lines += unified_diff(before, after, f"{key}, as it was pinned", f"{key}, as it is", lineterm="", n=1)
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"… {len(lines) - MAX_DIFF_LINES} lines more"]
    return "\n".join(f"  {escape_controls(line)}" for line in lines)


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    return (value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)).splitlines()
