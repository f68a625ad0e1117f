"""Methods that list what a server offers, and their outcome."""

from __future__ import annotations

from typing import Any, NamedTuple


class ListMethod(NamedTuple):
    """A method that lists items of a server."""

    method: str
    """Name of the method."""
    member: str
    """Member of its result that has the items."""
    noun: str
    """An item, for messages."""
    key: str = "name"
    """Member of an item that identifies it, for messages."""


class Listed(NamedTuple):
    """Items of a server, all pages."""

    items: list[dict[str, Any]]
    """Each as MCP's JSON, unparsed."""
    ttl_seconds: float | None = None
    """Time to live of the list in seconds; None if not given."""
    malformed: tuple[str, ...] = ()
    """Malformed items, each a sentence with the reason; not in `items`."""


TOOLS = ListMethod("tools/list", "tools", "tool")
RESOURCES = ListMethod("resources/list", "resources", "resource", "uri")
TEMPLATES = ListMethod("resources/templates/list", "resourceTemplates", "resource template", "uriTemplate")
PROMPTS = ListMethod("prompts/list", "prompts", "prompt")
