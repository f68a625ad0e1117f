"""Known heads: a request whose head is, byte for byte, that of an earlier one on its connection is not parsed again.

A client repeats its headers with every call. Parsing them, and making ASGI's scope of them, takes as long as a plain
call. The parser gives the same for the same bytes, if it is between two requests. So its result is kept for a head that
came whole with its body, and that the fast path has answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.server.http.requests import Head

_END_OF_HEAD = b"\r\n\r\n"

_MAX_HEADS = 8
"""Maximum heads that a connection keeps; a client has one for each tool and length of body that it sends."""

_MAX_HEAD_BYTES = 2048


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head that was parsed before."""

    raw: bytes
    """The head, with the empty line at its end."""
    request_bytes: int
    """Length of the head and the body behind it."""
    head: Head
    """The parsed head."""


def with_known_heads(protocol: type[Any]) -> type[Any]:
    """Add known heads to a protocol, outside of the wrappers that count and time what has to be parsed.

    Args:
        protocol: A `FastHttptoolsProtocol`, wrapped.
    """

    class KnownHeadsProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """Protocol with known heads."""

        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self._known: dict[bytes, KnownHead] = {}
            self._last: KnownHead | None = None  # which the next request most probably has, too

        def data_received(self, data: bytes) -> None:
            known = self._last
            if known is None or not data.startswith(known.raw):
                known = self._last = self._known.get(data[: data.find(_END_OF_HEAD) + len(_END_OF_HEAD)])
            if (
                known is not None
                and self.is_between_requests
                and len(data) == known.request_bytes
                and self.answers(known.head, data[len(known.raw) :])
            ):
                return
            was_between_requests, self.answered = self.is_between_requests, None
            super().data_received(data)
            if was_between_requests:
                self._remember(data)

        def _remember(self, data: bytes) -> None:
            head: Head | None = self.answered
            if head is None:
                return
            raw = data[: data.find(_END_OF_HEAD) + len(_END_OF_HEAD)]
            # Of several requests in the data, the last one was answered: then the lengths differ.
            if len(raw) <= _MAX_HEAD_BYTES and head.headers.get(b"content-length") == b"%d" % (len(data) - len(raw)):
                if len(self._known) == _MAX_HEADS:
                    self._known.clear()
                self._known[raw] = KnownHead(raw, len(data), head)

    return KnownHeadsProtocol
