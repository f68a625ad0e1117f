"""The list of tools, with what is computed once for all calls of a tool, and its views by access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.protocol.param_headers import checked_headers
from bridge.server.listing import Listing, ListKind, Views
from bridge.tools.tool import Tool
from bridge.tools.toolbox import ToolBox
from bridge.wire.tools import object_schema, tool_to_wire

if TYPE_CHECKING:
    from bridge.protocol.param_headers import CheckedHeader
    from bridge.server.direct_calls import DirectExecutor
    from bridge.types import Json


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a list, and what is computed once for all of its calls."""

    tool: Tool
    is_plain: bool
    """`Tool.is_plain`."""
    takes_context: bool
    """True unless it is known to need no context; see `FunctionExecutor.takes_context`."""
    direct: DirectExecutor | None
    """Its executor if that sends calls at once, and nothing limits them; None otherwise."""
    headers: tuple[CheckedHeader, ...]
    """HTTP headers that repeat its arguments."""


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

    def find(self, name: str) -> ListedTool | None:
        """Return a tool of the list; None if there is none of this name."""
        edition = self._edition if self._edition.version is self._version else self.current()
        listed: ListedTool | None = edition.found.get(name)
        if listed is None and (tool := edition.items.get(name)) is not None:
            headers = checked_headers(tool.specification.parameters)
            takes_context = getattr(tool.executor, "takes_context", True)
            executor: Any = tool.executor
            direct = executor if tool.is_unlimited and getattr(executor, "sends_at_once", False) else None
            listed = edition.found[name] = ListedTool(tool, tool.is_plain, takes_context, direct, headers)
        return listed


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
