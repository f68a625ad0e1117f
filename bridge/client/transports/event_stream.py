"""Streams of server-sent events over HTTP: notification of their end, and replacement of messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx2

from bridge.client.transports.limits import LARGE_BYTES, ResponseTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MAX_EVENT_LINES = 2_000_000
"""Maximum lines of one event; a line takes up to ten times its bytes in memory."""

BLANK_LINE = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
"""End of an event. After one that ends with a carriage return, a line feed may follow."""
MAX_BLANK_LINE_BYTES = 4
_MESSAGES = {None, b"", b"message"}


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
    """Event stream that reports its end, with the error if any; a broken connection ends it without an error.

    An event beyond the limit is raised as well.
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


class CheckedEvents(httpx2.AsyncByteStream):
    """Event stream in which `checked` may replace the data of messages. Events pass when they are complete."""

    def __init__(self, stream: httpx2.AsyncByteStream, checked: Callable[[bytes], bytes], max_event_bytes: int) -> None:
        self._stream = stream
        self._checked = checked
        self._max_event_bytes = max_event_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        events = bytearray()
        async for chunk in self._stream:
            searched = max(0, len(events) - MAX_BLANK_LINE_BYTES)
            events += chunk
            start = 0
            for end in [found.end() for found in BLANK_LINE.finditer(events, searched)]:
                yield self._event(bytes(events[start:end]))
                start = end
            del events[:start]
            if len(events) > self._max_event_bytes:
                raise ResponseTooLongError(
                    f"an event of its answer is longer than {self._max_event_bytes / 2**20:g} MiB"
                )
        yield bytes(events).removesuffix(b"\r")  # the SDK would take it for the end of an event

    def _event(self, event: bytes) -> bytes:
        if len(event) > LARGE_BYTES and event.count(b"\n") + event.count(b"\r") > MAX_EVENT_LINES:
            raise ResponseTooLongError(f"an event of its answer has more than {MAX_EVENT_LINES:,} lines")
        fields = fields_of(event)
        if not (data := fields.get(b"data")) or fields.get(b"event") not in _MESSAGES:
            return event
        if (checked := self._checked(data)) == data:
            return event
        fields[b"data"] = checked
        return b"\n".join((*(name + b": " + value for name, value in fields.items()), b"", b""))

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
