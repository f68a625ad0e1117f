"""The list of tools, with what is computed once for all calls of a tool, and its views by access."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.protocol.param_headers import checked_headers
from bridge.server.lists.feature import in_version
from bridge.server.lists.listing import Listing, ListKind, Views
from bridge.tools.spill.usage import UNLIMITED
from bridge.tools.tool import Tool
from bridge.tools.toolbox import ToolBox
from bridge.wire.tools import object_schema, tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.protocol.param_headers import CheckedHeader
    from bridge.resources.box import Readable
    from bridge.server.features import Features
    from bridge.server.forwarded import ForwardingExecutor
    from bridge.server.lists.search import LeftTools, SearchedTools, ServerToolSearch
    from bridge.server.results.kept_results import KeptResults
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.spill.spill import Spill
    from bridge.types import Json


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a list, and what is computed once for all of its calls."""

    tool: Tool
    runs_directly: bool
    """`Tool.runs_directly`."""
    takes_context: bool
    """True unless it is known to need no context; see `FunctionExecutor.takes_context`."""
    direct: ForwardingExecutor | None
    """Its executor if that sends calls at once, and nothing limits them; None otherwise."""
    headers: tuple[CheckedHeader, ...]
    """HTTP headers that repeat its arguments."""
    has_versions: bool
    """True if it has a version, and runs in this process."""
    max_chars: int = UNLIMITED
    """Characters up to which its results stay whole; see `bridge.tools.Spill`."""
    count: Callable[[int], None] | None = None
    """Counts the characters of a result; None for no counting."""


def _to_wire(specification: ToolSpecification, modern: bool) -> Json:
    """Convert a tool; versions before 2026-07-28 have no output schemas of other types than object."""
    wire = tool_to_wire(specification)
    if not modern and "outputSchema" in wire:
        schema = wire["outputSchema"] = object_schema(wire["outputSchema"])
        if schema["type"] != "object":
            del wire["outputSchema"]
    return wire


def _kind(kept: KeptResults | None) -> ListKind[Tool]:
    def to_wire(tool: Tool, modern: bool) -> Json:
        return _to_wire(tool.specification if kept is None else kept.listed(tool), modern)

    return ListKind("tools", iter, lambda tool: tool.name, to_wire, lambda tool: tool.listed)


class ToolList(Listing[Tool]):
    """The list of a ToolBox's tools.

    Args:
        tools: The tools.
        page_size: Maximum number of tools on a page; None for one page.
        kept: The large results that are kept aside; None if none is.

    Raises:
        ValueError: The page size is not positive.
    """

    def __init__(self, tools: ToolBox, page_size: int | None = None, kept: KeptResults | None = None) -> None:
        super().__init__(tools, _kind(kept), page_size)
        self.tools = tools
        """The tools of the list."""
        self._spill = None if kept is None else kept.spill

    def find(self, name: str) -> ListedTool | None:
        """Return a tool of the list; None if there is none of this name."""
        edition = self._edition if self._edition.version is self._version else self.current()
        listed: ListedTool | None = edition.found.get(name)
        if listed is None and (tool := edition.items.get(name)) is not None:
            listed = edition.found[name] = self._listed(tool)
        return listed

    def in_version(self, listed: ListedTool, meta: Mapping[str, Any]) -> ListedTool:
        """Return a tool in the version that ``_meta`` of a request names, if it names one.

        Raises:
            ProtocolError: There is no such version.
        """
        tool = listed.tool
        other = in_version(tool, self._box.versions_of(tool.name), meta, f"the tool {tool.name!r}")
        return listed if other is tool else self._listed(other)

    def _listed(self, tool: Tool) -> ListedTool:
        executor: Any = tool.executor
        limit = None if self._spill is None else self._spill.limit_of(tool)
        return ListedTool(
            tool,
            tool.runs_directly,
            getattr(executor, "takes_context", True),
            executor if tool.is_unlimited and getattr(executor, "sends_at_once", False) else None,
            checked_headers(tool.specification.parameters),
            tool.server is None and tool.version is not None,
            *(() if self._spill is None or limit is None else (limit, partial(self._spill.usage.count, tool.name))),
        )


@dataclass(frozen=True, slots=True)
class ToolView:
    """The tools that are visible to some callers."""

    tools: ToolBox
    """Tools that these callers can call."""
    catalog: ToolList
    """List of these tools, by which calls find them."""
    listed: ToolList
    """List that these callers receive."""


class ToolViews(Views[ToolBox, ToolView]):
    """The views of one ToolBox.

    Args:
        tools: The tools.
        page_size: Maximum number of tools on a page; None for one page.
        kept: The large results that are kept aside; None if none is.
        tool_search: Options of the search for tools; None to list all.
        left_tools: Returns the tools that the middleware of their list leaves; the search finds no others.
    """

    def __init__(
        self,
        tools: ToolBox,
        page_size: int | None = None,
        kept: KeptResults | None = None,
        tool_search: ServerToolSearch | None = None,
        left_tools: LeftTools | None = None,
    ) -> None:
        self.search: SearchedTools | None = None
        """The tools that clients search for; None if all are listed."""
        self.announced = tools
        """The tools whose changes clients are notified of."""
        if tool_search is not None:
            from bridge.server.lists.search import SearchedTools  # noqa: PLC0415 - only with tool search

            self.search = SearchedTools(tools, tool_search, left_tools)
        always = frozenset() if kept is None else kept.always
        super().__init__(tools, lambda visible: self._view(visible, page_size, kept), always)
        if tool_search is not None and tool_search.mode == "search":
            self.announced = self.whole.listed.tools

    def _view(self, visible: ToolBox, page_size: int | None, kept: KeptResults | None) -> ToolView:
        if self.search is None:
            catalog = ToolList(visible, page_size, kept)
            return ToolView(visible, catalog, catalog)
        callable_tools, listed = self.search.view(visible)
        return ToolView(callable_tools, ToolList(callable_tools, None, kept), ToolList(listed, page_size, kept))


def with_kept_results(
    features: Features, spill: Spill | None, find_other: Callable[[str], Readable | None]
) -> tuple[KeptResults | None, Features]:
    """Return the large results of a server that are kept aside, and the features to serve with what reads them.

    Without a limit, of the server or of a tool, there are none, and the features are as they are.
    """
    if spill is None and not features.spills and all(tool.policy.spill_chars is None for tool in features.tools):
        return None, features
    from bridge.server.results.kept_results import KeptResults  # noqa: PLC0415 - only with a limit

    kept = KeptResults(spill, features, find_other)
    return kept, replace(features, tools=kept.tools, resources=kept.resources)
