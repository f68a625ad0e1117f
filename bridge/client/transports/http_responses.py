"""Responses to requests over `bridge.client.transports.http_connections`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

import httpx2

from bridge.client.transports.limits import ResponseTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MAX_WAITING_BYTES = 256 * 1024


class ResponseHead:
    """Head of a response; several responses may have the same.

    Attributes:
        status: HTTP status.
        headers: Names, in lower case, and values.
        content_type: Type of the body, in lower case; empty without one.
        content_encoding: Compression of the body; empty without one.
    """

    __slots__ = ("content_encoding", "content_type", "headers", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = headers
        self.content_type = self.header(b"content-type").lower()
        self.content_encoding = self.header(b"content-encoding")

    def header(self, name: bytes) -> bytes:
        """Value of a header, joined if there are several; empty without it."""
        return b", ".join([value for each, value in self.headers if each == name])


class HttpResponse:
    """Response to one request.

    Attributes:
        head: Status and headers.
        content: The whole body of a success in JSON; otherwise empty.
        stream: The body of any other response, or of a long success, which may be read while it is received.
    """

    __slots__ = ("content", "head", "stream")

    def __init__(self, head: ResponseHead, content: bytes = b"") -> None:
        self.head = head
        self.content = content
        self.stream: ResponseStream | None = None


class BodySource(Protocol):
    """Connection that receives a body."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Continue reading."""

    def abort(self) -> None:
        """Close the connection at once."""

    def close_later(self, seconds: float, body: ResponseStream) -> None:
        """Close the connection if a body does not end in time."""


class ResponseStream(httpx2.AsyncByteStream):
    """Body of a response that is read while it is received.

    Attributes:
        has_ended: True after its end, or the loss of its connection.
    """

    def __init__(self, connection: BodySource) -> None:
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._error: Exception | None = None
        self._is_drained = False
        self.has_ended = False
        self._arrived: asyncio.Future[None] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self.next()) is not None:
            yield chunk

    async def next(self) -> bytes | None:
        """Return the next bytes; None at the end.

        Raises:
            httpx2.TransportError: The connection was lost.
        """
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.has_ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        chunk = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)  # many may be tiny
        self._chunks.clear()
        self._waiting_bytes = 0
        self._connection.resume()
        return chunk

    async def whole(self, first: bytes, max_bytes: int) -> bytes:
        """Return its first bytes with all that follow.

        Raises:
            httpx2.TransportError: The connection was lost.
            ResponseTooLongError: It is longer than `max_bytes`.
        """
        parts, whole_bytes = [first], len(first)
        async for part in self:
            parts.append(part)
            whole_bytes += len(part)
            if whole_bytes > max_bytes:
                raise ResponseTooLongError(f"its answer is longer than {max_bytes / 2**20:g} MiB")
        return b"".join(parts)

    def put_back(self, text: bytes) -> None:
        """Put bytes back that were read."""
        if text:
            self._chunks.appendleft(text)
            self._waiting_bytes += len(text)

    def drain(self, seconds: float) -> None:
        """Drop the rest of the body, and close the connection if it does not end in time."""
        self._is_drained = True
        self._chunks.clear()
        self._connection.resume()
        if not self.has_ended:
            self._connection.close_later(seconds, self)

    async def aclose(self) -> None:
        """Close the connection, unless the body has ended."""
        self.close()

    def close(self) -> None:
        """Close the connection, unless the body has ended."""
        if not self.has_ended:
            self._connection.abort()

    def received(self, chunk: bytes) -> None:
        """Add bytes; reading stops while many are waiting."""
        if self._is_drained:
            return
        self._chunks.append(chunk)
        self._waiting_bytes += len(chunk)
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            self._connection.pause()
        self._wake()

    def ended(self, error: Exception | None = None) -> None:
        """End the body."""
        self.has_ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
