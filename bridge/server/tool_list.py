"""Pages of tools, views by access, change notifications.

The catalog: the tools of a ToolBox as clients see them listed, computed once per change.

Pure data, without the SDK: MCP's ``Tool`` objects in pages with opaque cursors (schema ``ListToolsResult``, both eras).

News of a ToolBox's changes, carried from any thread to whoever listens on an event loop.

Views: the tools of one ToolBox as callers of different access see them.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import EventLoopToken, current_token

from bridge.errors import BridgeError
from bridge.server.auth.access import EVERYTHING, matches
from bridge.tools.toolbox import ToolBox
from bridge.wire.tools import tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.types import Json

LIST_TTL_MS = 0
"""How long a client may rely on a list, in milliseconds: tools can change at any moment, and a change is announced."""

CACHE_SCOPE: Final = "private"
"""Who may share a cached answer: only the caller who got it."""

HEADER_KEYWORD = "x-mcp-header"
"""The schema keyword by which a parameter asks to be mirrored in an ``Mcp-Param-*`` header."""

_MAX_CURSOR_CHARS = 1024

MAX_VIEWS = 64
"""How many lists are kept for callers who see only a part of the tools; of more, the one made first is made again."""


class CursorError(BridgeError, ValueError):
    """A cursor that this server did not make."""


class ToolList:
    """The list of a ToolBox's tools, kept until the ToolBox changes.

    Args:
        tools: What is listed.
        page_size: How many tools a page holds at most; None for one page.

    Raises:
        ValueError: The page size is not positive.
    """

    def __init__(self, tools: ToolBox, page_size: int | None = None) -> None:
        if page_size is not None and page_size < 1:
            raise ValueError(f"page_size must be at least 1, not {page_size!r}")
        self._tools = tools
        self._page_size = page_size
        self._version: object = object()
        self._edition = _Edition(self._version, tools, page_size)
        self.close = tools.on_change(self._forget)
        """Stop following the ToolBox."""

    def page(self, cursor: object = None, *, modern: bool) -> Json:
        """One page of the list, as the result of ``tools/list``. The same object as before, unless something changed.

        Args:
            cursor: Where to go on, as the page before said; None for the first page.
            modern: Whether the client speaks the 2026-07-28 revision, which adds caching hints and allows output
                schemas of any type. Older revisions know only objects: an output schema of another type is left out.

        Raises:
            CursorError: The cursor is not one of ours.
        """
        edition = self._current()
        start = 0 if cursor is None else edition.position(cursor)
        return edition.page(start, modern=modern)

    def first_page_as_json(self, write: Callable[[Json], bytes], *, modern: bool) -> bytes:
        """The first page as JSON, written once and kept until the ToolBox changes.

        Args:
            write: Writes a page of its own, which it may change.
            modern: As for `page`; `write` is always the same for each of the two.
        """
        return self._current().first_page_as_json(write, modern=modern)

    def header_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool with parameters that are mirrored in HTTP headers; None for any other tool."""
        return self._current().header_schema(name)

    def _forget(self) -> None:
        # Any thread may come here. A new identity, not a counter: nothing can be lost between reading and writing.
        self._version = object()

    def _current(self) -> _Edition:
        version = self._version
        if self._edition.version is not version:
            self._edition = _Edition(version, self._tools, self._page_size)
        return self._edition


class _Edition:
    """The catalog between two changes."""

    def __init__(self, version: object, tools: ToolBox, page_size: int | None) -> None:
        self.version = version
        self._tools = {tool.name: tool.specification for tool in tools}
        self._names = list(self._tools)
        self._page_size = page_size or max(1, len(self._names))
        self._pages: dict[tuple[int, bool], Json] = {}
        self._written: dict[bool, bytes] = {}
        self._header_schemas: dict[str, Mapping[str, Any] | None] = {}

    def page(self, start: int, *, modern: bool) -> Json:
        page = self._pages.get((start, modern))
        if page is None:
            page = self._write(start, modern=modern)
            # Clients write cursors that say anything: kept are the pages of those who follow ours.
            if start % self._page_size == 0:
                self._pages[start, modern] = page
        return page

    def first_page_as_json(self, write: Callable[[Json], bytes], *, modern: bool) -> bytes:
        written = self._written.get(modern)
        if written is None:
            written = self._written[modern] = write(dict(self.page(0, modern=modern)))
        return written

    def position(self, cursor: object) -> int:
        """Where a cursor goes on: after the tool that it names; where that is gone, where it was."""
        count, name = _read_cursor(cursor)
        if name in self._tools:
            return self._names.index(name) + 1
        return min(max(count - 1, 0), len(self._names))

    def header_schema(self, name: str) -> Mapping[str, Any] | None:
        if name not in self._header_schemas:
            specification = self._tools.get(name)
            if specification is None:
                return None
            schema = specification.parameters
            self._header_schemas[name] = schema if _mentions(schema, HEADER_KEYWORD) else None
        return self._header_schemas[name]

    def _write(self, start: int, *, modern: bool) -> Json:
        end = start + self._page_size
        names = self._names[start:end]
        tools = [tool_to_wire(self._tools[name]) for name in names]
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
    """Whether a keyword stands anywhere in a schema; too often is harmless, for the SDK looks again."""
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
    """Tells listeners, each on the event loop that it came from, that the tools have changed.

    Changes that follow one another before a listener could be told are told once.

    Args:
        tools: Whose changes are told.
    """

    def __init__(self, tools: ToolBox) -> None:
        self._bells: dict[object, _Bell] = {}
        self.close = tools.on_change(self.ring)
        """Stop following the ToolBox."""

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` on this event loop after changes; returns what ends that, which may be called twice."""
        token = object()
        self._bells[token] = _Bell(current_token(), listener)

        def end() -> None:
            self._bells.pop(token, None)

        return end

    def ring(self) -> None:
        """Tell every listener; from any thread."""
        for bell in tuple(self._bells.values()):
            bell.ring()

    def __len__(self) -> int:
        return len(self._bells)


class _Bell:
    """One listener, and the loop on which it is called."""

    def __init__(self, loop: EventLoopToken, listener: Callable[[], None]) -> None:
        self._loop = loop
        self._listener = listener
        self._rung = False

    def ring(self) -> None:
        if self._rung:
            return
        self._rung = True
        native: Any = self._loop.native_token
        # Asyncio's loop and trio's token both take a call from any thread, and neither lets the caller wait.
        schedule = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
        try:
            schedule(self._answer)
        except RuntimeError:
            # The loop has ended, and its listeners with it.
            return

    def _answer(self) -> None:
        # Before the call: a change during it rings again.
        self._rung = False
        self._listener()


@dataclass(frozen=True, slots=True)
class ToolView:
    """The tools as some callers see them."""

    tools: ToolBox
    """What these callers can call, and what an unknown name is compared with."""
    catalog: ToolList
    """What they are listed."""


class ToolViews:
    """The views of one ToolBox, each computed once per change.

    Args:
        tools: The tools.
        page_size: As for `ToolList`.

    Raises:
        ValueError: The page size is not positive.
    """

    def __init__(self, tools: ToolBox, page_size: int | None = None) -> None:
        self._page_size = page_size
        self.whole = ToolView(tools, ToolList(tools, page_size))
        """What is seen by whoever may know of all tools."""
        self._partial: dict[tuple[str, ...], ToolView] = {}
        self.close = tools.on_change(self._forget)
        """Stop following the ToolBox."""

    def of(self, access: Access = EVERYTHING) -> ToolView:
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

    def _made(self, patterns: tuple[str, ...]) -> ToolView:
        tools = ToolBox()
        tools.replace(tool for tool in self.whole.tools if matches(patterns, tool.name))
        return ToolView(tools, ToolList(tools, self._page_size))

    def _forget(self) -> None:
        self._partial = {}
