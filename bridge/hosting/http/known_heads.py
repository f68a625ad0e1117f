"""Known heads: a request whose head is, byte for byte, that of an earlier one on its connection is not parsed again.

A client repeats its headers with every call. Parsing them, and making ASGI's scope of them, takes as long as a plain
call. The parser gives the same for the same bytes, if it is between two requests. So its result is kept for a head that
came whole with its body, and that the handler has answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bridge.server.http.requests import Head

_END_OF_HEAD = b"\r\n\r\n"
_MAX_HEADS = 16
"""Maximum heads that a connection keeps; a client has one for each tool and length of body that it sends."""
_MAX_HEAD_BYTES = 2048


class KnownHead(NamedTuple):
    """A head that was parsed before."""

    raw: bytes
    """The head, with the empty line at its end."""
    request_bytes: int
    """Length of the head and the body behind it."""
    head: Head
    """The parsed head."""


class KnownHeads:
    """The known heads of a connection."""

    def __init__(self) -> None:
        self.last: KnownHead | None = None
        """The head that the next request most probably has, too."""
        self._heads: dict[bytes, KnownHead] = {}

    def find(self, data: bytes) -> KnownHead | None:
        """Return the head with which data begins."""
        self.last = self._heads.get(data[: data.find(_END_OF_HEAD) + len(_END_OF_HEAD)])
        return self.last

    def add(self, data: bytes, head: Head) -> None:
        """Add the head of a request, unless the data is something else than that request."""
        raw = data[: data.find(_END_OF_HEAD) + len(_END_OF_HEAD)]
        # Behind other requests, the lengths differ.
        if len(raw) <= _MAX_HEAD_BYTES and head.headers.get(b"content-length") == b"%d" % (len(data) - len(raw)):
            if len(self._heads) == _MAX_HEADS:
                del self._heads[next(iter(self._heads))]  # the oldest
            self._heads[raw] = KnownHead(raw, len(data), head)
