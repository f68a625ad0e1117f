"""Lines out of a stream of bytes, however the bytes arrive. Pure: no I/O."""

from __future__ import annotations


class LineSplitter:
    """Cuts bytes into lines at newlines; of a line over the limit nothing is kept.

    Args:
        max_line_bytes: How long a line may be, without its newline.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []
        self._length_bytes = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that end within ``data``, without their newlines; None stands for one over the limit."""
        *ended, rest = data.split(b"\n")
        lines = [self._ended(part) for part in ended]
        if rest:
            self._keep(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """What came after the last newline, as a line, if anything did."""
        return [self._ended(b"")] if self._length_bytes else []

    def _ended(self, part: bytes) -> bytes | None:
        if not self._length_bytes:
            return part if len(part) <= self._max_line_bytes else None
        self._keep(part)
        line = b"".join(self._parts) if self._length_bytes <= self._max_line_bytes else None
        self._parts, self._length_bytes = [], 0
        return line

    def _keep(self, part: bytes) -> None:
        self._length_bytes += len(part)
        if self._length_bytes <= self._max_line_bytes:
            self._parts.append(part)
        else:
            self._parts = []
