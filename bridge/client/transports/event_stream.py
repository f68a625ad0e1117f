"""Streams of server-sent events (HTML Living Standard, 9.2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.client.transports.received_data import LARGE_BYTES, ResponseTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MAX_EVENT_LINES = 500_000
"""Maximum lines of one event; a line takes up to ten times its bytes in memory."""

BLANK_LINE = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
"""End of an event. After one that ends with a carriage return, a line feed may follow."""
MAX_BLANK_LINE_BYTES = 4
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MESSAGES = {None, b"", b"message"}
_MAX_RETRY_DIGITS = 9
_LINE_END = re.compile(rb"\r\n|\r|\n")
_DATA = b"data:"


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


async def rest_of_data(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the rest of an event's data, after the beginning of a line of data, without what follows the event.

    Args:
        parts: The rest of the event stream.
    """
    beginning: bytes | None = None  # of a line whose field is not known yet
    is_data, ends_with_return = True, False
    async for part in parts:
        data = bytearray()
        lines = _LINE_END.split(part[1:] if ends_with_return and part.startswith(b"\n") else part)
        ends_with_return = part.endswith(b"\r")
        for index, line in enumerate(lines):
            text = line
            if index:
                if beginning == b"":
                    yield bytes(data)
                    return
                if beginning in {b"data", _DATA}:
                    data += b"\n"
                beginning = b""
            if beginning is not None:
                beginning += text
                if len(beginning) <= len(_DATA) and _DATA.startswith(beginning):
                    continue
                is_data = beginning.startswith(_DATA)
                text, beginning = b"\n" + beginning.removeprefix(_DATA).removeprefix(b" "), None
            if is_data:
                data += text
        yield bytes(data)


class EventParser:
    """Reads the events of one stream, in the pieces in which it is received.

    Args:
        max_event_bytes: Maximum bytes of an event.

    Attributes:
        last_id: ID of the last event; empty without one.
        retry_seconds: Seconds after which the stream may be resumed, if the server has told them.
        rest: Text after the last complete event.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self.last_id = b""
        self.retry_seconds: float | None = None
        self.rest = bytearray()
        self._is_at_start = True
        self._max_event_bytes = max_event_bytes

    def restart(self) -> None:
        """Begin another stream, after the last event of the one before."""
        self.rest.clear()
        self._is_at_start = True

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each message that is complete.

        Raises:
            ResponseTooLongError: An event is longer than the limit, or has too many lines.
        """
        for event in self.events(chunk):
            if event.get(b"event") in _MESSAGES and (data := event.get(b"data")):
                yield data

    def events(self, chunk: bytes) -> Iterator[dict[bytes, bytes]]:
        """Yield the fields of each event that is complete; raises as `feed`."""
        text = self.rest
        searched = max(0, len(text) - MAX_BLANK_LINE_BYTES)
        text += chunk
        if self._is_at_start:
            if len(text) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(text):
                return
            self._is_at_start = False
            if text.startswith(_BYTE_ORDER_MARK):
                del text[: len(_BYTE_ORDER_MARK)]
        while (blank := BLANK_LINE.search(text, searched)) is not None:
            event = bytes(text[: blank.start()])
            del text[: blank.end()]
            searched = 0
            yield self._fields(event)
        if len(text) > self._max_event_bytes:
            raise ResponseTooLongError(f"an event of its answer is longer than {self._max_event_bytes / 2**20:g} MiB")

    def _fields(self, event: bytes) -> dict[bytes, bytes]:
        if len(event) > LARGE_BYTES and event.count(b"\n") + event.count(b"\r") > MAX_EVENT_LINES:
            raise ResponseTooLongError(f"an event of its answer has more than {MAX_EVENT_LINES:,} lines")
        fields = fields_of(event)
        if b"id" in fields and b"\0" not in fields[b"id"]:
            self.last_id = fields[b"id"]
        if (retry := fields.get(b"retry", b"")).isdigit() and len(retry) <= _MAX_RETRY_DIGITS:
            self.retry_seconds = int(retry) / 1000
        return fields
