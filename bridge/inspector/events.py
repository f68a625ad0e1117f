"""Events of the inspector for all of its open pages (Server-Sent Events, HTML Living Standard, 9.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from bridge.inspector.page_json import page_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

MAX_WAITING_EVENTS = 2_000
"""Maximum events that a page has not read yet; the page is disconnected, and reads the whole state when it returns."""
MAX_WAITING_CHARS = 8 * 1024 * 1024
"""Maximum characters of these events, which are ASCII; a single event may be longer."""


class Events:
    """Publishes events to any number of pages."""

    def __init__(self) -> None:
        self._pages: set[_Waiting] = set()

    def publish(self, kind: str, data: Any, *, replaces: Hashable = None) -> None:
        """Send an event to all pages; a page that does not read is disconnected.

        Args:
            kind: Name of the event.
            data: JSON data.
            replaces: Object that the event describes completely: an earlier event of this kind and object is left
                out if it still waits. None for an event that stands for itself.
        """
        text = event_text(kind, data) if self._pages else ""
        for page in tuple(self._pages):
            if not page.add(text, None if replaces is None else (kind, replaces)):
                self._remove(page)

    async def of_page(self, kind: str, data: Any) -> AsyncIterator[str]:
        """Yield a first event, and then all that are published, as the texts of an event stream."""
        page = _Waiting()
        self._pages.add(page)
        try:
            yield event_text(kind, data)
            while (text := await page.next()) is not None:
                yield text
        finally:
            self._remove(page)

    def close(self) -> None:
        """End the streams of all pages."""
        for page in tuple(self._pages):
            self._remove(page)

    def _remove(self, page: _Waiting) -> None:
        self._pages.discard(page)
        page.close()


class _Waiting:
    """Events that a page has not read yet, the oldest first."""

    def __init__(self) -> None:
        self._texts: dict[Hashable, str] = {}
        self._chars = 0
        self._is_closed = False
        self._changed = anyio.Event()

    def add(self, text: str, key: Hashable) -> bool:
        """Add an event, in place of an earlier one with its key; False if there is no room."""
        key = object() if key is None else key
        chars = self._chars + len(text) - len(self._texts.get(key, ""))
        if self._texts and (chars > MAX_WAITING_CHARS or len(self._texts) >= MAX_WAITING_EVENTS):
            return False
        self._texts[key] = text
        self._chars = chars
        self._changed.set()
        return True

    def close(self) -> None:
        """End the stream after the events that wait."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> str | None:
        """The oldest event, waited for; None at the end."""
        while not self._texts:
            if self._is_closed:
                return None
            self._changed = anyio.Event()
            await self._changed.wait()
        text = self._texts.pop(next(iter(self._texts)))
        self._chars -= len(text)
        return text


def event_text(kind: str, data: Any) -> str:
    """Format an event; its data is JSON in ASCII, and so one line whatever a server has sent."""
    return f"event: {kind}\ndata: {page_json(data)}\n\n"
