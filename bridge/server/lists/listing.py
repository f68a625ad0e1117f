"""Listings: what a box holds, in pages, and by access.

Pages are results of MCP's list methods, with opaque cursors (both eras). Each is written once per change of the box.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from bridge.errors import BridgeError
from bridge.server.auth.access import EVERYTHING
from bridge.tools.box import Box
from bridge.tools.labels import VERSIONS_META_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.server.auth.access import Access
    from bridge.types import Json

LIST_TTL_MS = 0
"""Milliseconds for which a client may cache a list: none, because it can change at any time."""
CACHE_SCOPE: Final = "private"
"""Cached responses must not be shared between callers."""
_MAX_CURSOR_CHARS = 1024
MAX_VIEWS = 64
"""Maximum number of cached views; the oldest is evicted."""

T = TypeVar("T")
B = TypeVar("B", bound=Box[Any])
V = TypeVar("V")


class CursorError(BridgeError, ValueError):
    """A cursor is not one of this server's."""


@dataclass(frozen=True, slots=True)
class ListKind(Generic[T]):
    """One of MCP's lists."""

    member: str
    """Member of the result: ``resourceTemplates``."""
    items: Callable[[Any], Iterable[T]]
    """Returns the items of a box."""
    key_of: Callable[[T], str]
    """Returns what a cursor names."""
    to_wire: Callable[[T, bool], Json]
    """Converts an item, for a client of version 2026-07-28 if the second argument is True."""
    is_listed: Callable[[T], bool] = lambda _: True
    """Returns False for an item that pages leave out, though it can be used."""


class Listing(Generic[T]):
    """One list of a box, cached until the box changes.

    Raises:
        ValueError: The page size is not positive.
    """

    def __init__(self, box: Box[Any], kind: ListKind[T], page_size: int | None = None) -> None:
        if page_size is not None and page_size < 1:
            raise ValueError(f"page_size must be at least 1, not {page_size!r}")
        self._box = box
        self._kind = kind
        self._page_size = page_size
        self._version: object = object()
        self._edition = Edition(self._version, box, kind.items(box), kind, page_size)
        self.close = box.on_change(self._forget)
        """Stop listening to the box."""

    def page(self, cursor: object = None, *, modern: bool) -> Json:
        """Return a page, as the result of the list's method; the same object until the box changes.

        Args:
            cursor: The ``nextCursor`` of the page before; None for the first page.
            modern: True for a client of version 2026-07-28, which has cache hints.

        Raises:
            CursorError: The cursor is not one of this server's.
        """
        edition = self.current()
        return edition.page(0 if cursor is None else edition.position(cursor), modern=modern)

    def first_page_as_json(self, write: Callable[[Json], bytes], *, modern: bool) -> bytes:
        """Return the first page as JSON, written once and cached until the box changes.

        Args:
            write: Writes a copy of the page, which it may change; always the same function for each era.
            modern: As for `page`.
        """
        return self.current().first_page_as_json(write, modern=modern)

    def _forget(self) -> None:
        # Called from any thread: unlike incrementing a counter, assigning a new object needs no lock.
        self._version = object()

    def current(self) -> Edition[T]:
        """Return the list since the last change."""
        version = self._version
        if self._edition.version is not version:
            self._edition = Edition(version, self._box, self._kind.items(self._box), self._kind, self._page_size)
        return self._edition

    def edition_of(self, items: Iterable[T]) -> Edition[T]:
        """Return other items in pages."""
        return Edition(object(), self._box, items, self._kind, self._page_size)


class Edition(Generic[T]):
    """A list between two changes."""

    def __init__(
        self, version: object, box: Box[Any], items: Iterable[T], kind: ListKind[T], page_size: int | None
    ) -> None:
        self.version = version
        self._box = box
        self._kind = kind
        self.items = {kind.key_of(item): item for item in items}
        """The items by key."""
        self.found: dict[str, Any] = {}
        """Facts about items that were looked up."""
        self._keys = [key for key, item in self.items.items() if kind.is_listed(item)]
        self._page_size = page_size or max(1, len(self._keys))
        self._pages: dict[tuple[int, bool], Json] = {}
        self._written: dict[bool, bytes] = {}

    def page(self, start: int, *, modern: bool) -> Json:
        """Return the page that begins with an item."""
        page = self._pages.get((start, modern))
        if page is None:
            page = self._write(start, modern=modern)
            # Clients may invent cursors: cache only pages that this server's cursors lead to.
            if start % self._page_size == 0:
                self._pages[start, modern] = page
        return page

    def first_page_as_json(self, write: Callable[[Json], bytes], *, modern: bool) -> bytes:
        """Return the first page as JSON."""
        written = self._written.get(modern)
        if written is None:
            written = self._written[modern] = write(dict(self.page(0, modern=modern)))
        return written

    def position(self, cursor: object) -> int:
        """Return the index at which a cursor continues: after the item that it names, or its former place."""
        count, key = _read_cursor(cursor)
        if key in self._keys:
            return self._keys.index(key) + 1
        return min(max(count - 1, 0), len(self._keys))

    def _write(self, start: int, *, modern: bool) -> Json:
        end = start + self._page_size
        keys = self._keys[start:end]
        page: Json = {self._kind.member: [self._to_wire(key, modern) for key in keys]}
        if end < len(self._keys):
            page["nextCursor"] = _write_cursor(end, keys[-1])
        return page | {"resultType": "complete", "ttlMs": LIST_TTL_MS, "cacheScope": CACHE_SCOPE} if modern else page

    def _to_wire(self, key: str, modern: bool) -> Json:
        wire = self._kind.to_wire(self.items[key], modern)
        if len(versions := self._box.versions_of(key)) > 1:
            wire["_meta"] = {**wire.get("_meta", {}), VERSIONS_META_KEY: [*versions]}
        return wire


def _write_cursor(count: int, key: str) -> str:
    return urlsafe_b64encode(json.dumps([count, key]).encode()).decode()


def _read_cursor(cursor: object) -> tuple[int, str]:
    try:
        count, key = json.loads(urlsafe_b64decode(str(cursor)[:_MAX_CURSOR_CHARS].encode()))
    except (ValueError, TypeError, RecursionError) as error:
        raise CursorError(f"the cursor {str(cursor)[:100]!r} is not one of this server's") from error
    if type(count) is not int or not isinstance(key, str):
        raise CursorError(f"the cursor {str(cursor)[:100]!r} is not one of this server's")
    return count, key


class Views(Generic[B, V]):
    """The views of one box, each computed once per change.

    Args:
        box: All items; they have a ``name``.
        make: Makes the view of a box.
        always: Names of items that every caller sees.
    """

    def __init__(self, box: B, make: Callable[[B], V], always: frozenset[str] = frozenset()) -> None:
        self._box = box
        self._always = always
        self._make = make
        self.whole = make(box)
        """View of everything."""
        self._partial: dict[tuple[tuple[str, ...] | None, frozenset[str] | None], V] = {}
        self.close = box.on_change(self._forget)
        """Stop listening to the box."""

    def of(self, access: Access = EVERYTHING) -> V:
        """Return the view of a caller."""
        if access.sees_all:
            return self.whole
        partial = self._partial  # a change meanwhile replaces it, so that an outdated view is not cached
        view = partial.get(seen := (access.tools, access.tags))
        if view is None:
            if len(partial) >= MAX_VIEWS:
                partial.pop(next(iter(partial)), None)
            view = partial[seen] = self._made(access)
        return view

    def _made(self, access: Access) -> V:
        box: B = next(each for each in type(self._box).__mro__ if "kinds" in vars(each))()
        box.replace(item for item in self._box.all_versions if item.name in self._always or access.shows(item))
        return self._make(box)

    def _forget(self) -> None:
        self._partial = {}
