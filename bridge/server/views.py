"""Views: the tools of one ToolBox as callers of different access see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.server.auth.access import EVERYTHING, matches
from bridge.server.tool_list import Catalog
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from bridge.server.auth.access import Access

MAX_VIEWS = 64
"""How many lists are kept for callers who see only a part of the tools; of more, the one made first is made again."""


@dataclass(frozen=True, slots=True)
class View:
    """The tools as some callers see them."""

    tools: ToolBox
    """What these callers can call, and what an unknown name is compared with."""
    catalog: Catalog
    """What they are listed."""


class Views:
    """The views of one ToolBox, each computed once per change.

    Args:
        tools: The tools.
        page_size: As for `Catalog`.

    Raises:
        ValueError: The page size is not positive.
    """

    def __init__(self, tools: ToolBox, page_size: int | None = None) -> None:
        self._page_size = page_size
        self.whole = View(tools, Catalog(tools, page_size))
        """What is seen by whoever may know of all tools."""
        self._partial: dict[tuple[str, ...], View] = {}
        self.close = tools.on_change(self._forget)
        """Stop following the ToolBox."""

    def of(self, access: Access = EVERYTHING) -> View:
        """What a caller of some access sees."""
        if access.tools is None:
            return self.whole
        partial = self._partial  # what is made of tools that change meanwhile goes where it is forgotten
        view = partial.get(access.tools)
        if view is None:
            if len(partial) >= MAX_VIEWS:
                partial.pop(next(iter(partial)), None)
            view = partial[access.tools] = self._made(access.tools)
        return view

    def _made(self, patterns: tuple[str, ...]) -> View:
        tools = ToolBox()
        tools.replace(tool for tool in self.whole.tools if matches(patterns, tool.name))
        return View(tools, Catalog(tools, self._page_size))

    def _forget(self) -> None:
        self._partial = {}
