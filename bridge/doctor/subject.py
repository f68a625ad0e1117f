"""Subject of an examination: targets, servers and definitions, in one form for local and remote ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bridge.doctor.hidden import undisguised
from bridge.prompts.prompt import Prompt
from bridge.resources.resource import Resource
from bridge.text import clip
from bridge.wire.events import event_type_to_wire
from bridge.wire.prompts import prompt_to_wire
from bridge.wire.resources import resource_to_wire, template_to_wire
from bridge.wire.skills import skill_to_wire
from bridge.wire.tools import tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.client.pins import Drift
    from bridge.errors import ServerError
    from bridge.events.event_type import EventType
    from bridge.resources.resource import ResourceTemplate
    from bridge.server.features import Features
    from bridge.skills.skill import Skill
    from bridge.tools.specification import ToolSpecification

Kind = Literal["target", "server", "tool", "resource", "prompt", "skill", "event"]

MAX_TEXTS = 100_000
"""Maximum texts of one definition that are examined; a hostile server may send more."""
MAX_TEXT_CHARS = 100_000
"""Maximum characters of one text that are examined."""
MAX_TARGET_CHARS = 2_000_000
"""Maximum characters of all texts of a target that are examined."""
_MAX_PATH_CHARS = 500
_NOT_TEXT = frozenset({"icons"})
"""Keys of a definition whose values are addresses or encoded images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An object that findings concern."""

    kind: Kind
    name: str
    """Name, or URI of a resource."""
    source: str
    """The target that it belongs to, as given, without secrets."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


class Text(NamedTuple):
    """One text of a definition."""

    where: str
    """Path within the definition."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A tool, resource, prompt, skill or type of events as a client receives it."""

    item: Item
    document: Mapping[str, Any]
    """MCP's JSON of it."""
    tool: ToolSpecification | None = None
    """Specification of a tool."""
    own_name: str = ""
    """Name on its server, without a prefix."""
    server: str | None = None
    """Name of its server; None if it is defined in this process."""
    max_chars: int = MAX_TARGET_CHARS
    """Characters of its texts that are examined."""

    @property
    def description(self) -> str:
        """The description; empty if there is none."""
        described = self.document["frontmatter"] if self.item.kind == "skill" else self.document
        description = described.get("description")
        return description if isinstance(description, str) else ""

    @cached_property
    def texts(self) -> tuple[Text, ...]:
        """All texts that a model or a user may read: names, descriptions, and keys and texts of schemas."""
        return self._read[0]

    @property
    def is_cut(self) -> bool:
        """True if a text was left out or shortened."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[tuple[Text, ...], bool]:
        document = {key: value for key, value in self.document.items() if key not in _NOT_TEXT}
        texts: list[Text] = []
        left, is_cut = self.max_chars, False
        for where, text in _texts_in(document):
            if len(texts) >= MAX_TEXTS or left <= 0:
                return tuple(texts), True
            shown = text[: min(left, MAX_TEXT_CHARS)]
            is_cut = is_cut or len(shown) < len(text)
            texts.append(Text(where, shown))
            left -= max(1, len(shown))
        return tuple(texts), is_cut

    @cached_property
    def plain_texts(self) -> tuple[Text, ...]:
        """The texts without disguise, for the search for phrases."""
        return tuple(Text(where, undisguised(text)) for where, text in self.texts)


def bounded(definitions: Iterable[Definition]) -> Iterator[Definition]:
    """Definitions of one target, of whose texts at most `MAX_TARGET_CHARS` characters are examined."""
    left = MAX_TARGET_CHARS
    for each in definitions:
        definition = replace(each, max_chars=left)
        yield definition
        left = max(0, left - sum(max(1, len(text)) for _, text in definition.texts))


def _texts_in(document: Mapping[str, Any]) -> Iterator[Text]:
    pending: list[tuple[str, Any]] = [("", document)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, str):
            yield Text(path, value)
        elif isinstance(value, dict):
            inner = [(_joined(path, str(key)), each) for key, each in value.items()]
            yield from (Text(place, str(key)) for key, (place, _) in zip(value, inner, strict=True))
            pending += reversed(inner)
        elif isinstance(value, list | tuple):
            pending += reversed([(_joined(path, f"[{number}]"), each) for number, each in enumerate(value)])


def _joined(path: str, part: str) -> str:
    """Path of a part; a path that is already too long stays as it is."""
    if len(path) > _MAX_PATH_CHARS:
        return path
    return clip(f"{path}.{part}" if path and not part.startswith("[") else f"{path}{part}", _MAX_PATH_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A configured server, and the result of connecting to it."""

    item: Item
    config: ServerConfig
    entry: Mapping[str, Any] = field(default_factory=dict)
    """Its entry in ``mcp.json`` before references are expanded, with canonical keys; empty for other targets."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Keys, and paths, of the file by those of `entry`, where they differ."""
    problem: ServerError | None = None
    """Failure to connect or to list its tools."""
    skipped: tuple[str, ...] = ()
    """Listed tools that are left out, each as a sentence."""
    drift: tuple[Drift, ...] | None = None
    """Differences from its pins; None if nothing is pinned."""
    unpinned: tuple[str, ...] = ()
    """Kinds that its pins do not cover: ``resources``, ``prompts``."""
    has_login: bool = False
    """True if a login is stored for it."""
    client: str | None = None
    """Title of the client that starts or reaches it, with ``--client``; None otherwise."""

    def spelled(self, where: str) -> str:
        """Path in the file of a path in `entry`."""
        key = re.split(r"[.\[]", where, maxsplit=1)[0]
        return self.written.get(where) or self.written.get(key, key) + where.removeprefix(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target, and the problems of reading it."""

    item: Item
    problems: tuple[str, ...] = ()
    """Reasons why it cannot be used."""
    warnings: tuple[str, ...] = ()
    """Warnings of its configuration."""
    without_servers: tuple[str, str] | None = None
    """Reason why an MCP client has no servers, and how to add one; None if it has some, or for another target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything that is examined together."""

    targets: tuple[Target, ...] = ()
    servers: tuple[Server, ...] = ()
    definitions: tuple[Definition, ...] = ()

    @property
    def tools(self) -> tuple[tuple[Definition, ToolSpecification], ...]:
        """The tools with their specifications."""
        return tuple((each, each.tool) for each in self.definitions if each.tool is not None)


def tool_definition(
    specification: ToolSpecification, source: str, *, own_name: str = "", server: str | None = None
) -> Definition:
    """Definition of a tool by its specification; ``own_name`` is its name on its server."""
    return Definition(
        item=Item(kind="tool", name=specification.name, source=source),
        document=tool_to_wire(specification),
        tool=specification,
        own_name=own_name or specification.name,
        server=server,
    )


def local_definitions(features: Features, source: str) -> Iterator[Definition]:
    """Definitions of everything that a Python target offers."""
    yield from (tool_definition(tool.specification, source) for tool in features.tools)
    skills = getattr(features.skills, "current", ())  # of a folder
    files = {skill.uri for skill in skills}
    for item in (*(features.resources or ()), *(features.prompts or ())):
        if getattr(item, "uri", None) not in files:
            yield feature_definition(item, source)
    yield from (skill_definition(skill, source) for skill in skills)
    yield from (event_definition(each, source) for each in (features.events.local() if features.events else ()))


def skill_definition(skill: Skill, source: str) -> Definition:
    """Definition of a skill by its entry."""
    item = Item(kind="skill", name=skill.uri, source=source)
    return Definition(item=item, document=skill_to_wire(skill), own_name=skill.uri, server=skill.server)


def event_definition(type_: EventType, source: str) -> Definition:
    """Definition of a type of events."""
    item, document = Item(kind="event", name=type_.name, source=source), event_type_to_wire(type_, type_.delivery)
    return Definition(item=item, document=document, own_name=type_.name, server=type_.server)


def feature_definition(item: Resource | ResourceTemplate | Prompt, source: str) -> Definition:
    """Definition of a resource, template or prompt."""
    kind: Kind = "prompt" if isinstance(item, Prompt) else "resource"
    if isinstance(item, Prompt):
        name, document = item.name, prompt_to_wire(item)
    elif isinstance(item, Resource):
        name, document = item.uri, resource_to_wire(item)
    else:
        name, document = str(item.uri_template), template_to_wire(item)
    return Definition(
        item=Item(kind=kind, name=name, source=source), document=document, own_name=name, server=item.server
    )
