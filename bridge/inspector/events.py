"""Events of the inspector for all of its open pages (Server-Sent Events, HTML Living Standard, 9.2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectSendStream

MAX_WAITING_EVENTS = 2_000
"""Maximum events that a page has not read yet; the page is disconnected, and reads the whole state when it returns."""


class Events:
    """Publishes events to any number of pages."""

    def __init__(self) -> None:
        self._pages: set[MemoryObjectSendStream[str]] = set()

    def publish(self, kind: str, data: Any) -> None:
        """Send an event to all pages; a page that does not read is disconnected."""
        text = event_text(kind, data) if self._pages else ""
        for page in tuple(self._pages):
            try:
                page.send_nowait(text)
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                self._remove(page)

    async def of_page(self, kind: str, data: Any) -> AsyncIterator[str]:
        """Yield a first event, and then all that are published, as the texts of an event stream."""
        send, receive = anyio.create_memory_object_stream[str](MAX_WAITING_EVENTS)
        self._pages.add(send)
        try:
            yield event_text(kind, data)
            async for text in receive:
                yield text
        finally:
            self._remove(send)
            receive.close()

    def close(self) -> None:
        """End the streams of all pages."""
        for page in tuple(self._pages):
            self._remove(page)

    def _remove(self, page: MemoryObjectSendStream[str]) -> None:
        self._pages.discard(page)
        page.close()


def event_text(kind: str, data: Any) -> str:
    """Format an event; its data is JSON in ASCII, and so one line whatever a server has sent."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
