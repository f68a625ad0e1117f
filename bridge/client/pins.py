"""Pinning: detect changes of a server's tools, resources, prompts, skills and events since they were reviewed.

A lock file holds a hash of each part of each item, and the parts themselves. Only the hashes are compared; the parts
are used to display a diff. A lock file of before resources and prompts were pinned has none of them: they are not
compared until they are pinned.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bridge.client.connection.list_methods import EVENTS, LIST_METHODS, PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS
from bridge.errors import ConfigError, ConfigProblem, WireError
from bridge.private_files import write_readable
from bridge.text import clip_lines, diff_lines, escape_controls
from bridge.types import require_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bridge.client.connection.list_methods import Listed, ListMethod
    from bridge.types import Json

PinMode: TypeAlias = Literal["refuse", "flag"]
"""Handling of an item that differs from its pin: leave it out, or use it with a warning."""

LOCK_VERSION = 1
"""Format version of the lock file."""

MAX_DIFF_LINES = 60
"""Maximum lines of the diff of one item."""

_DESCRIBED = {"description": ("name", "title", "description"), "mimeType": ("mimeType",)}
_PARTS: Mapping[ListMethod, Mapping[str, tuple[str, ...]]] = {
    TOOLS: {
        "description": ("title", "description"),
        "inputSchema": ("inputSchema",),
        "outputSchema": ("outputSchema",),
        "annotations": ("annotations",),
    },
    RESOURCES: _DESCRIBED,
    TEMPLATES: _DESCRIBED,
    PROMPTS: {"description": ("title", "description"), "arguments": ("arguments",)},
    SKILLS: {"frontmatter": ("frontmatter",), "resources": ("resources",)},
    EVENTS: {
        "description": ("title", "description"),
        "inputSchema": ("inputSchema",),
        "payloadSchema": ("payloadSchema",),
    },
}
"""Parts that are hashed separately, with the keys of MCP's JSON that they consist of."""

_logger = logging.getLogger("bridge.client")


@dataclass(frozen=True, slots=True)
class Pin:
    """One pinned item."""

    hashes: Mapping[str, str]
    """Hash of each part."""
    definition: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The parts themselves; empty if the lock file has only hashes."""

    @classmethod
    def of(cls, method: ListMethod, item: Mapping[str, Any]) -> Pin:
        """Create the pin of an item as listed."""
        parts = _PARTS[method]
        hashes = {part: _hash([item.get(key) for key in keys]) for part, keys in parts.items()}
        return cls(hashes, {key: item[key] for keys in parts.values() for key in keys if item.get(key) is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Difference of one item from its pin."""

    name: str
    """The name, URI or URI template on its server."""
    kind: Literal["added", "removed", "changed"]
    """The item is not pinned, is no longer listed, or differs from its pin."""
    noun: str = "tool"
    """The kind of item."""
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
        return f"the {self.noun} {self.name!r} {summaries[self.kind]}"

    def __str__(self) -> str:
        return f"{self.brief}\n{self.diff}" if self.diff else self.brief


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPins:
    """Pinned items of one server, and the handling of differences."""

    items: Mapping[str, Mapping[str, Pin]]
    """Pins by key, by member of the lists: ``tools``, ``resources``, ``resourceTemplates``, ``prompts``, ``skills``,
    ``events``.
    What is not there is not compared."""
    mode: PinMode = "refuse"
    """Handling of items that are not pinned or differ from their pins."""

    @classmethod
    def nothing(cls, mode: PinMode = "refuse") -> ServerPins:
        """Create the pins of a server that was never reviewed: every item differs from them."""
        return cls(items={method.member: {} for method in LIST_METHODS}, mode=mode)

    def covers(self, method: ListMethod) -> bool:
        """Return True if the items of a list are compared."""
        return method.member in self.items

    def drift(self, method: ListMethod, listed: Iterable[Mapping[str, Any]]) -> list[Drift]:
        """Compare listed items, each as MCP's JSON, with the pins."""
        pins = self.items.get(method.member)
        if pins is None:
            return []
        current: set[str] = set()
        found: dict[str, Drift] = {}
        for item in listed:  # one that is listed twice may differ in either place
            name, now = str(item.get(method.key)), Pin.of(method, item)
            current.add(name)
            if (pinned := pins.get(name)) is None:
                found.setdefault(name, Drift(name=name, noun=method.noun, kind="added"))
            elif parts := tuple(part for part in _PARTS[method] if pinned.hashes.get(part) != now.hashes[part]):
                diff = _diff(method, pinned, now, parts)
                found.setdefault(name, Drift(name=name, noun=method.noun, kind="changed", parts=parts, diff=diff))
        removed = (name for name in pins if name not in current)
        return [*found.values(), *(Drift(name=name, noun=method.noun, kind="removed") for name in removed)]

    def admitted(self, server: str, method: ListMethod, listed: Listed) -> Listed:
        """Select the listed items that may be used; differences from the pins are logged.

        Returns:
            The list, in which the refused items have moved to `Listed.refused`.
        """
        if not self.covers(method):
            if listed.items:
                _logger.warning(
                    "server %r: its %ss are not pinned, and are used; bridge pin adds them", server, method.noun
                )
            return listed
        refused: dict[str, str] = {}
        for each in self.drift(method, listed.items):
            if self.mode == "refuse" and each.kind != "removed":
                refused[each.name] = each.brief
            action = "left out" if each.name in refused else "reported only"
            _logger.warning("server %r: difference from its pins (%s): %s", server, action, each)
        items = [item for item in listed.items if item.get(method.key) not in refused]
        return listed._replace(items=items, refused=refused)


def pins_of(listed: Mapping[ListMethod, Iterable[Mapping[str, Any]]]) -> ServerPins:
    """Create pins from the current items of a server, each as MCP's JSON; lists that are not given are empty."""
    return ServerPins(
        items={
            method.member: {str(item[method.key]): Pin.of(method, item) for item in listed.get(method, ())}
            for method in LIST_METHODS
        }
    )


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
    """Replace a lock file atomically by the pins of each server; equal items give equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    written = {
        server: {
            member: {name: {"hashes": pin.hashes, "definition": pin.definition} for name, pin in sorted(items.items())}
            for member, items in pins.items.items()
        }
        for server, pins in sorted(servers.items())
    }
    document = {"version": LOCK_VERSION, "servers": written}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        write_readable(temporary, text.encode(errors="backslashreplace"))  # writes lone surrogates as JSON escapes
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _read(document: Any, mode: PinMode) -> Iterator[tuple[str, ServerPins]]:
    root = require_object(document, "the document")
    if root.get("version") != LOCK_VERSION:
        raise WireError(f"its version is {root.get('version')!r}, only {LOCK_VERSION} is supported")
    for server, entry in require_object(root.get("servers"), "'servers'").items():
        lists = require_object(entry, f"server {server!r}")
        pinned = [method for method in LIST_METHODS if method is TOOLS or method.member in lists]
        yield server, ServerPins(items={method.member: _pins(server, method, lists) for method in pinned}, mode=mode)


def _pins(server: str, method: ListMethod, lists: Json) -> Mapping[str, Pin]:
    items = require_object(lists.get(method.member), f"{method.member!r} of {server!r}")
    return {key: _pin(method, f"the {method.noun} {key!r}", item) for key, item in items.items()}


def _pin(method: ListMethod, what: str, item: Any) -> Pin:
    hashes = require_object(require_object(item, what).get("hashes"), f"'hashes' of {what}")
    if not all(isinstance(hashes.get(part), str) for part in _PARTS[method]):
        raise WireError(f"{what} lacks a hash: hashes of {', '.join(_PARTS[method])} are required")
    return Pin({part: hashes[part] for part in _PARTS[method]}, require_object(item.get("definition", {}), what))


def _hash(value: list[Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _diff(method: ListMethod, pinned: Pin, now: Pin, parts: Iterable[str]) -> str:
    lines: list[str] = []
    for key in (key for part in parts for key in _PARTS[method][part]):
        before, after = pinned.definition.get(key), now.definition.get(key)
        lines += diff_lines(before, after, f"{key} (pinned)", f"{key} (current)")
    return "\n".join(f"  {escape_controls(line)}" for line in clip_lines(lines, MAX_DIFF_LINES))
