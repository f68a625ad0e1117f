"""Large contents of another server's resource, sent to the client while they are received.

    {"jsonrpc":"2.0","id":7,"result":{"contents":[…],"ttlMs":0}}
    ╰────── begin ──────────────────╯╰── write ─╯╰── `ServedExchange.response`

Until `begin`, the call may end in any other way. Afterwards it ends with the rest of this response, or the response is
broken off: its client must not take it for a complete one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL_BYTES = 256 * 1024
"""Maximum bytes for results up to which a longer one is read whole, so that its exact length is in the error."""
_MEMBERS_BYTES = 64 * 1024
"""Bytes that an answer may have beside the contents that are passed on."""


class ResponseBody(Protocol):
    """Body of a response that is sent in parts."""

    def begin(self) -> bool:
        """Begin the response; return False if another has begun."""
        ...

    async def write(self, part: bytes) -> None:
        """Send a part, once the client has read enough of those before."""
        ...


class ResponseContents:
    """The contents in one response: a `bridge.tools.channel.ContentsStream`.

    Args:
        name: Name of the resource, for errors.
        beginning: The response up to its result.
        max_bytes: Maximum length of the result; None for no limit.
        count: Counts the bytes of each part for the caller.

    Attributes:
        has_begun: True once the response has begun.
        body: Body of the response; None where results are sent whole.
    """

    __slots__ = ("_beginning", "_count", "_max_bytes", "_name", "_written_bytes", "body", "has_begun", "local")

    def __init__(self, name: str, beginning: bytes, max_bytes: int | None, count: Callable[[bytes], object]) -> None:
        self._name = name
        self._count = count
        self._beginning = beginning
        self._max_bytes = max_bytes
        self._written_bytes = 0
        self.body: ResponseBody | None = None
        self.local: Callable[[str], str] | None = None
        self.has_begun = False

    def begin(self, length_bytes: int | None) -> bool:
        """Begin the response.

        Raises:
            ProtocolError: The result is longer than its limit.
        """
        limit, body = self._max_bytes, self.body
        if limit is not None:
            if length_bytes is not None and length_bytes > limit + _MEMBERS_BYTES:
                raise self._too_long(length_bytes, limit)
            # The exact length decides, unless it is unknown and may be any.
            if limit <= SMALL_BYTES or (length_bytes is not None and length_bytes > limit):
                return False
        self.has_begun = body is not None and body.begin()
        return self.has_begun

    async def write(self, text: bytes) -> None:
        """Send a part of the result.

        Raises:
            ProtocolError: The result is longer than its limit.
        """
        self._written_bytes += len(text)
        if self._max_bytes is not None and self._written_bytes > self._max_bytes:
            raise self._too_long(self._written_bytes, self._max_bytes)
        self._count(text)
        beginning, self._beginning = self._beginning, b""
        if self.body is not None:
            await self.body.write(beginning + text if beginning else text)

    def end(self) -> None:
        """Forget the response, which refers to this: only the garbage collector would free it."""
        self.body = None

    def _too_long(self, length_bytes: int, max_bytes: int) -> ProtocolError:
        message = f"the result of {self._name!r} has {length_bytes} bytes, and may have {max_bytes}: ask for less"
        return ProtocolError(INTERNAL_ERROR, message)
