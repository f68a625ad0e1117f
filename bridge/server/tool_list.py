"""The list of tools, with what is computed once for all calls of a tool, and its views by access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.server.listing import Listing, ListKind, Views
from bridge.tools.tool import Tool
from bridge.tools.toolbox import ToolBox
from bridge.wire.tools import object_schema, tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.methods.passing import PassingExecutor
    from bridge.types import Json

HEADER_KEYWORD = "x-mcp-header"
"""Schema keyword of a parameter that is mirrored in an ``Mcp-Param-*`` header."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a list, and what is computed once for all of its calls."""

    tool: Tool
    is_plain: bool
    """`Tool.is_plain`."""
    takes_context: bool
    """True unless it is known to need no context; see `FunctionExecutor.takes_context`."""
    may_talk: bool
    """True if it takes a context and is interactive."""
    passing: PassingExecutor | None
    """Its executor if that passes calls on, and nothing limits them; None otherwise."""
    header_schema: Mapping[str, Any] | None
    """Its input schema if parameters are mirrored in HTTP headers; None otherwise."""


def _to_wire(tool: Tool, modern: bool) -> Json:
    """Convert a tool; versions before 2026-07-28 have no output schemas of other types than object."""
    wire = tool_to_wire(tool.specification)
    if not modern and "outputSchema" in wire:
        schema = wire["outputSchema"] = object_schema(wire["outputSchema"])
        if schema["type"] != "object":
            del wire["outputSchema"]
    return wire


_TOOLS: ListKind[Tool] = ListKind("tools", iter, lambda tool: tool.name, _to_wire)


class ToolList(Listing[Tool]):
    """The list of a ToolBox's tools.

    Raises:
        ValueError: The page size is not positive.
    """

    def __init__(self, tools: ToolBox, page_size: int | None = None) -> None:
        super().__init__(tools, _TOOLS, page_size)

    def header_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool with parameters that are mirrored in HTTP headers; None for other tools."""
        listed = self.find(name)
        return None if listed is None else listed.header_schema

    def find(self, name: str) -> ListedTool | None:
        """Return a tool of the list; None if there is none of this name."""
        edition = self._edition if self._edition.version is self._version else self.current()
        listed: ListedTool | None = edition.found.get(name)
        if listed is None and (tool := edition.items.get(name)) is not None:
            schema = tool.specification.parameters
            mirrored = schema if _mentions(schema, HEADER_KEYWORD) else None
            takes_context = getattr(tool.executor, "takes_context", True)
            may_talk = takes_context and tool.interactive
            passing: Any = tool.executor if tool.is_unlimited and getattr(tool.executor, "passes_on", False) else None
            listed = edition.found[name] = ListedTool(tool, tool.is_plain, takes_context, may_talk, passing, mirrored)
        return listed


def _mentions(schema: object, keyword: str) -> bool:
    """True if a keyword occurs anywhere in a schema; false positives are harmless, since the SDK checks again."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if keyword in node:
                return True
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return False


@dataclass(frozen=True, slots=True)
class ToolView:
    """The tools that are visible to some callers."""

    tools: ToolBox
    """Tools that these callers can call."""
    catalog: ToolList
    """List of these tools."""


class ToolViews(Views[ToolBox, ToolView]):
    """The views of one ToolBox."""

    def __init__(self, tools: ToolBox, page_size: int | None = None) -> None:
        super().__init__(tools, lambda box: ToolView(box, ToolList(box, page_size)))
