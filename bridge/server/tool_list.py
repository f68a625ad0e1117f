"""Lists of tools in pages, views by access, and notifications of changes.

Lists are MCP's ``Tool`` objects in pages with opaque cursors (``ListToolsResult``, both eras), computed once per
change.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import current_token

from bridge.errors import BridgeError
from bridge.server.auth.access import EVERYTHING, matches
from bridge.tools.toolbox import ToolBox
from bridge.wire.tools import tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.tools.tool import Tool
    from bridge.types import Json

LIST_TTL_MS = 0
"""Milliseconds for which a client may cache a list: none, because tools can change at any time."""
CACHE_SCOPE: Final = "private"
"""Cached responses must not be shared between callers."""
HEADER_KEYWORD = "x-mcp-header"
"""Schema keyword of a parameter that is mirrored in an ``Mcp-Param-*`` header."""

_MAX_CURSOR_CHARS = 1024

MAX_VIEWS = 64
"""Maximum number of cached views; the oldest is evicted."""


class CursorError(BridgeError, ValueError):
    """A cursor is not one of this server's."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a list, and what is computed once for all of its calls."""

    tool: Tool
    is_plain: bool
    """`Tool.is_plain`."""
    header_schema: Mapping[str, Any] | None
    """Its input schema if parameters are mirrored in HTTP headers; None otherwise."""


class ToolList:
    """The list of a ToolBox's tools, cached until the ToolBox changes."""

    def __init__(self, tools: ToolBox, page_size: int | None = None) -> None:
        if page_size is not None and page_size < 1:
            raise ValueError(f"page_size must be at least 1, not {page_size!r}")
        self._tools = tools
        self._page_size = page_size
        self._version: object = object()
        self._edition = _Edition(self._version, tools, page_size)
        self.close = tools.on_change(self._forget)
        """Stop listening to the ToolBox."""

    def page(self, cursor: object = None, *, modern: bool) -> Json:
        """Return a page of the list, as the result of ``tools/list``; the same object until the ToolBox changes.

        Args:
            cursor: The ``nextCursor`` of the page before; None for the first page.
            modern: True for a client of version 2026-07-28, which has cache hints and output schemas of any type. For
                older versions, output schemas of other types than object are left out.

        Raises:
            CursorError: The cursor is not one of this server's.
        """
        edition = self._current()
        start = 0 if cursor is None else edition.position(cursor)
        return edition.page(start, modern=modern)

    def first_page_as_json(self, write: Callable[[Json], bytes], *, modern: bool) -> bytes:
        """Return the first page as JSON, written once by a function that may change its copy."""
        return self._current().first_page_as_json(write, modern=modern)

    def header_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool with parameters that are mirrored in HTTP headers; None for other tools."""
        listed = self.find(name)
        return None if listed is None else listed.header_schema

    def find(self, name: str) -> ListedTool | None:
        """Return a tool of the list; None if there is none of this name."""
        edition = self._edition if self._edition.version is self._version else self._current()
        return edition.found.get(name) or edition.find(name)

    def _forget(self) -> None:
        # Called from any thread: unlike incrementing a counter, assigning a new object needs no lock.
        self._version = object()

    def _current(self) -> _Edition:
        version = self._version
        if self._edition.version is not version:
            self._edition = _Edition(version, self._tools, self._page_size)
        return self._edition


class _Edition:
    """The list between two changes."""

    def __init__(self, version: object, tools: ToolBox, page_size: int | None) -> None:
        self.version = version
        self._tools = {tool.name: tool for tool in tools}
        self._names = list(self._tools)
        self._page_size = page_size or max(1, len(self._names))
        self._pages: dict[tuple[int, bool], Json] = {}
        self._written: dict[bool, bytes] = {}
        self.found: dict[str, ListedTool] = {}
        """The tools that were found."""

    def page(self, start: int, *, modern: bool) -> Json:
        page = self._pages.get((start, modern))
        if page is None:
            page = self._write(start, modern=modern)
            # Clients may invent cursors: cache only pages that this server's cursors lead to.
            if start % self._page_size == 0:
                self._pages[start, modern] = page
        return page

    def first_page_as_json(self, write: Callable[[Json], bytes], *, modern: bool) -> bytes:
        written = self._written.get(modern)
        if written is None:
            written = self._written[modern] = write(dict(self.page(0, modern=modern)))
        return written

    def position(self, cursor: object) -> int:
        """Return the index at which a cursor continues: after the tool that it names, or its former place."""
        count, name = _read_cursor(cursor)
        if name in self._tools:
            return self._names.index(name) + 1
        return min(max(count - 1, 0), len(self._names))

    def find(self, name: str) -> ListedTool | None:
        tool = self._tools.get(name)
        if tool is None:
            return None
        schema = tool.specification.parameters
        mirrored = schema if _mentions(schema, HEADER_KEYWORD) else None
        return self.found.setdefault(name, ListedTool(tool, tool.is_plain, mirrored))

    def _write(self, start: int, *, modern: bool) -> Json:
        end = start + self._page_size
        names = self._names[start:end]
        tools = [tool_to_wire(self._tools[name].specification) for name in names]
        page: Json = {"tools": tools}
        if end < len(self._names):
            page["nextCursor"] = _write_cursor(end, names[-1])
        if modern:
            return page | {"resultType": "complete", "ttlMs": LIST_TTL_MS, "cacheScope": CACHE_SCOPE}
        for tool in tools:
            if tool.get("outputSchema", {}).get("type", "object") != "object":
                del tool["outputSchema"]
        return page


def _write_cursor(count: int, name: str) -> str:
    return urlsafe_b64encode(json.dumps([count, name]).encode()).decode()


def _read_cursor(cursor: object) -> tuple[int, str]:
    try:
        count, name = json.loads(urlsafe_b64decode(str(cursor)[:_MAX_CURSOR_CHARS].encode()))
    except (ValueError, TypeError, RecursionError) as error:
        raise CursorError(f"the cursor {str(cursor)[:100]!r} is not one of this server's") from error
    if type(count) is not int or not isinstance(name, str):
        raise CursorError(f"the cursor {str(cursor)[:100]!r} is not one of this server's")
    return count, name


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


class ToolChanges:
    """Notifies listeners of changes of the tools, each on its own event loop.

    Changes before a listener has run are notified once.
    """

    def __init__(self, tools: ToolBox) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}
        self.close = tools.on_change(self.notify)
        """Stop listening to the ToolBox."""

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` on this event loop after changes; return a function that ends that, and may be repeated."""
        native: Any = current_token().native_token
        # Asyncio's loop and trio's token both accept a call from any thread, without waiting.
        call_soon = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
        token, is_scheduled = object(), False

        def call() -> None:
            nonlocal is_scheduled
            is_scheduled = False  # before the call, so that a change during it is notified
            listener()

        def schedule() -> None:
            nonlocal is_scheduled
            if not is_scheduled:
                is_scheduled = True
                with suppress(RuntimeError):  # the loop has ended
                    call_soon(call)

        def end() -> None:
            self._listeners.pop(token, None)

        self._listeners[token] = schedule
        return end

    def notify(self) -> None:
        """Notify every listener; from any thread."""
        for schedule in tuple(self._listeners.values()):
            schedule()

    def __len__(self) -> int:
        return len(self._listeners)


@dataclass(frozen=True, slots=True)
class ToolView:
    """The tools that are visible to some callers."""

    tools: ToolBox
    """Tools that these callers can call."""
    catalog: ToolList
    """List of these tools."""


class ToolViews:
    """The views of one ToolBox, each computed once per change."""

    def __init__(self, tools: ToolBox, page_size: int | None = None) -> None:
        self._page_size = page_size
        self.whole = ToolView(tools, ToolList(tools, page_size))
        """View of all tools."""
        self._partial: dict[tuple[str, ...], ToolView] = {}
        self.close = tools.on_change(self._forget)
        """Stop listening to the ToolBox."""

    def of(self, access: Access = EVERYTHING) -> ToolView:
        """Return the view of a caller."""
        if access.tools is None:
            return self.whole
        partial = self._partial  # a change meanwhile replaces it, so that an outdated view is not cached
        view = partial.get(access.tools)
        if view is None:
            if len(partial) >= MAX_VIEWS:
                partial.pop(next(iter(partial)), None)
            view = partial[access.tools] = self._made(access.tools)
        return view

    def _made(self, patterns: tuple[str, ...]) -> ToolView:
        tools = ToolBox()
        tools.replace(tool for tool in self.whole.tools if matches(patterns, tool.name))
        return ToolView(tools, ToolList(tools, self._page_size))

    def _forget(self) -> None:
        self._partial = {}
