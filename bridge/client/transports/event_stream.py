"""Streams of server-sent events over HTTP: notification of their end, and replacement of long data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx2

from bridge.client.transports.limits import LARGE_BYTES, ResponseTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MAX_EVENT_LINES = 2_000_000
"""Maximum lines of one event; a line takes up to ten times its bytes in memory."""

_BLANK_LINE = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_MAX_BLANK_LINE_BYTES = 4


def fields_of(event: bytes) -> dict[bytes, bytes]:
    """Fields of a server-sent event: lines of data are joined; of any other field, the last one counts."""
    fields: dict[bytes, bytes] = {}
    data: list[bytes] = []
    for line in event.splitlines():
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name:  # a line that begins with a colon is a comment
            fields[name] = value.removeprefix(b" ")
    if data:
        fields[b"data"] = b"\n".join(data)
    return fields


class EndingStream(httpx2.AsyncByteStream):
    """Event stream that reports its end; a broken connection ends it without an error.

    Args:
        stream: The received stream.
        ended: Called at its end with the error, if any. An event beyond the limit is raised as well.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, ended: Callable[[Exception | None], None]) -> None:
        self._stream = stream
        self._ended = ended

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx2.TransportError as error:
            self._ended(error)
            if isinstance(error, ResponseTooLongError):
                raise
        else:
            self._ended(None)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


class ShortenedEvents(httpx2.AsyncByteStream):
    """Event stream that replaces the data of long events. Short events pass unchanged when they are complete.

    Args:
        stream: The received stream.
        shortened: Returns the replacement of a long event's data.
        max_event_bytes: Maximum bytes of an event.
    """

    def __init__(
        self, stream: httpx2.AsyncByteStream, shortened: Callable[[bytes], bytes], max_event_bytes: int
    ) -> None:
        self._stream = stream
        self._shortened = shortened
        self._max_event_bytes = max_event_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        events = bytearray()
        async for chunk in self._stream:
            if not events and len(chunk) <= LARGE_BYTES and chunk.endswith((b"\n\n", b"\r\n\r\n")):
                yield chunk
                continue
            searched = max(0, len(events) - _MAX_BLANK_LINE_BYTES)
            events += chunk
            start = 0
            for end in [found.end() for found in _BLANK_LINE.finditer(events, searched)]:
                yield self._event(bytes(events[start:end]))
                start = end
            del events[:start]
            if len(events) > self._max_event_bytes:
                raise ResponseTooLongError(
                    f"an event of its answer is longer than {self._max_event_bytes / 2**20:g} MiB"
                )
        yield bytes(events)

    def _event(self, event: bytes) -> bytes:
        if len(event) <= LARGE_BYTES:
            return event
        if event.count(b"\n") + event.count(b"\r") > MAX_EVENT_LINES:
            raise ResponseTooLongError(f"an event of its answer has more than {MAX_EVENT_LINES:,} lines")
        fields = fields_of(event)
        if b"data" in fields:
            fields[b"data"] = self._shortened(fields[b"data"])
        return b"\n".join((*(name + b": " + value for name, value in fields.items()), b"", b""))

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
