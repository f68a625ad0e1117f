"""Known heads: a request whose head is, byte for byte, that of an earlier one on its connection is not parsed again.

A client repeats its headers with every call. Parsing them, and making ASGI's scope of them, takes a third of the time
of a plain call. The parser gives the same for the same bytes, if it is between two requests. So its result is kept for
a head that came whole with its body, and that the fast path has answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_END_OF_HEAD = b"\r\n\r\n"

_MAX_HEADS = 8
"""Maximum heads that a connection keeps; a client has one for each tool and length of body that it sends."""

_MAX_HEAD_BYTES = 2048


class KnownHead(NamedTuple):
    """A head that was parsed before."""

    scope: dict[str, Any]
    """The ASGI scope of its request; to be copied."""
    headers: Mapping[bytes, bytes]
    """Headers by name, without white space around their values."""
    body_bytes: int
    """Length of its body."""


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

        def data_received(self, data: bytes) -> None:
            if not self.is_between_requests:
                super().data_received(data)
                return
            end = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
            head = data[:end]
            known = self._known.get(head)
            if known is not None and len(data) == end + known.body_bytes and self.answers(known, data[end:]):
                return
            self.answered = None
            super().data_received(data)
            self._remember(head, data)

        def _remember(self, head: bytes, data: bytes) -> None:
            answered: KnownHead | None = self.answered
            if answered is None or len(head) > _MAX_HEAD_BYTES:
                return
            # Of several requests in the data, it is the last one that was answered: then the lengths differ.
            if len(data) == len(head) + answered.body_bytes:
                if len(self._known) == _MAX_HEADS:
                    self._known.clear()
                self._known[head] = answered

    return KnownHeadsProtocol
