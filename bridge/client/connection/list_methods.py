"""Methods that list what a server offers, and their outcome."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.types import Feature


class ListMethod(NamedTuple):
    """A method that lists items of a server."""

    method: str
    """Name of the method."""
    member: str
    """Member of its result that has the items."""
    noun: str
    """An item, for messages."""
    feature: Feature
    """The feature of servers that have the method."""
    key: str = "name"
    """Member of an item that identifies it."""
    extension: str | None = None
    """Extension that a server with the method announces; None for a method of the protocol itself."""


class Listed(NamedTuple):
    """Items of a server, all pages."""

    items: list[dict[str, Any]]
    """Each as MCP's JSON, unparsed."""
    ttl_seconds: float | None = None
    """Time to live of the list in seconds; None if not given."""
    malformed: tuple[str, ...] = ()
    """Malformed items, each a sentence with the reason; not in `items`."""
    refused: Mapping[str, str] = MappingProxyType({})
    """Items refused by pins, by key, likewise."""


TOOLS = ListMethod("tools/list", "tools", "tool", "tools")
RESOURCES = ListMethod("resources/list", "resources", "resource", "resources", "uri")
TEMPLATES = ListMethod("resources/templates/list", "resourceTemplates", "resource template", "resources", "uriTemplate")
PROMPTS = ListMethod("prompts/list", "prompts", "prompt", "prompts")
SKILLS = ListMethod("skills/list", "skills", "skill", "resources", "uri", extension="io.modelcontextprotocol/skills")
EVENTS = ListMethod("events/list", "events", "event", "tools", extension="io.modelcontextprotocol/events")
"""Types of events, which servers of any feature may have."""
PROTOCOL_LISTS = (TOOLS, RESOURCES, TEMPLATES, PROMPTS)
"""The lists of the protocol itself."""
LIST_METHODS = (*PROTOCOL_LISTS, SKILLS, EVENTS)
"""All lists."""
