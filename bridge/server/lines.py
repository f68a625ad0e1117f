"""Lines out of a stream of bytes, however the bytes arrive. Pure: no I/O."""

from __future__ import annotations

from typing import NamedTuple

KEPT_BYTES = 1024
"""How much is kept of each end of a line over the limit."""


class LongLine(NamedTuple):
    """A line over the limit, of which only the ends are kept."""

    beginning: bytes
    end: bytes


class LineSplitter:
    """Cuts bytes into lines at newlines; of a line over the limit only the ends are kept.

    Args:
        max_line_bytes: How long a line may be, without its newline.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []
        self._length_bytes = 0
        self._ends = LongLine(b"", b"")

    def feed(self, data: bytes) -> list[bytes | LongLine]:
        """The lines that end within ``data``, without their newlines."""
        *ended, rest = data.split(b"\n")
        lines = [self._ended(part) for part in ended]
        if rest:
            self._keep(rest)
        return lines

    def end(self) -> list[bytes | LongLine]:
        """What came after the last newline, as a line, if anything did."""
        return [self._ended(b"")] if self._length_bytes else []

    def _ended(self, part: bytes) -> bytes | LongLine:
        if not self._length_bytes:
            return part if len(part) <= self._max_line_bytes else LongLine(part[:KEPT_BYTES], part[-KEPT_BYTES:])
        self._keep(part)
        line = b"".join(self._parts) if self._length_bytes <= self._max_line_bytes else self._ends
        self._parts, self._length_bytes = [], 0
        return line

    def _keep(self, part: bytes) -> None:
        was_long = self._length_bytes > self._max_line_bytes
        self._length_bytes += len(part)
        if self._length_bytes <= self._max_line_bytes:
            self._parts.append(part)
        elif was_long:
            beginning, end = self._ends
            self._ends = LongLine(
                (beginning + part[:KEPT_BYTES])[:KEPT_BYTES], (end + part[-KEPT_BYTES:])[-KEPT_BYTES:]
            )
        else:
            whole = b"".join([*self._parts, part])
            self._parts, self._ends = [], LongLine(whole[:KEPT_BYTES], whole[-KEPT_BYTES:])
