"""Responses to requests over `bridge.client.transports.http_connections`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import httpx2

from bridge.client.transports.received_data import ResponseTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_MAX_WAITING_BYTES = 256 * 1024
_MAX_LENGTH_DIGITS = 18


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

    @property
    def content_bytes(self) -> int | None:
        """Length of the body; None if it is unknown."""
        length = self.header(b"content-length")
        digits = length.lstrip(b"0") or b"0"  # Python refuses to read very many
        return int(digits) if length.isdigit() and len(digits) <= _MAX_LENGTH_DIGITS else None


class HttpResponse:
    """Response to one request.

    Attributes:
        head: Status and headers.
        content: The whole body of a result in JSON; otherwise empty.
        stream: The body of any other response, or of a long result, which may be read while it is received.
    """

    __slots__ = ("content", "head", "stream")

    def __init__(self, head: ResponseHead, content: bytes = b"") -> None:
        self.head = head
        self.content = content
        self.stream: ResponseStream | None = None


@dataclass(frozen=True, slots=True)
class KnownHead:
    """Head of a response that was parsed before, of a success in JSON that keeps its connection open."""

    head: ResponseHead
    content_bytes: int


class Answer(Protocol):
    """Receives the response to a request, as a future does."""

    def done(self) -> bool:
        """Return True if nothing waits for the response any more."""
        ...

    def set_result(self, response: HttpResponse, /) -> None:
        """Set the response."""
        ...

    def set_exception(self, error: Exception, /) -> None:
        """Set the error in its place."""
        ...


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
        self._first = b""
        self._waiting = bytearray()  # after the first bytes: chunks may be tiny
        self._error: Exception | None = None
        self._is_drained = False
        self.has_ended = False
        self._arrived: asyncio.Future[None] | None = None
        self._received: Callable[[bytes], None] | None = None
        self._ended: Callable[[Exception | None], None] | None = None

    def listen(
        self, received: Callable[[bytes], None] | None, ended: Callable[[Exception | None], None] | None
    ) -> None:
        """Call functions with the bytes as they are received, and at the end; None to wait for them by `next` again."""
        self._received, self._ended = received, ended
        if received is not None and self._first:
            chunk = self._first + self._waiting if self._waiting else self._first
            self._clear()
            received(chunk)
        if self._ended is not None and self.has_ended:
            self._ended(self._error)

    def pause(self) -> None:
        """Receive no more until `resume`."""
        self._connection.pause()

    def resume(self) -> None:
        """Receive more."""
        self._connection.resume()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self.next()) is not None:
            yield chunk

    async def next(self) -> bytes | None:
        """Return the next bytes; None at the end.

        Raises:
            httpx2.TransportError: The connection was lost.
        """
        while not self._first:
            if self._error is not None:
                raise self._error
            if self.has_ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        chunk = self._first + self._waiting if self._waiting else self._first
        self._clear()
        self._connection.resume()
        return chunk

    async def whole(self, first: bytes, max_bytes: int) -> bytes:
        """Return its first bytes with all that follow.

        Raises:
            httpx2.TransportError: The connection was lost.
            ResponseTooLongError: It is longer than `max_bytes`.
        """
        text = bytearray(first)
        async for part in self:
            text += part
            if len(text) > max_bytes:
                raise ResponseTooLongError(f"its answer is longer than {max_bytes / 2**20:g} MiB")
        return bytes(text)

    def drain(self, seconds: float) -> None:
        """Drop the rest of the body, and close the connection if it does not end in time."""
        self._is_drained, self._received, self._ended = True, None, None
        self._clear()
        self._connection.resume()
        if not self.has_ended:
            self._connection.close_later(seconds, self)

    async def aclose(self) -> None:
        """Close the connection, unless the body has ended or is drained."""
        self.close()

    def close(self) -> None:
        """Close the connection, unless the body has ended or is drained."""
        if not self.has_ended and not self._is_drained:
            self._connection.abort()

    def received(self, chunk: bytes) -> None:
        """Add bytes; reading stops while many are waiting."""
        if self._is_drained:
            return
        if self._received is not None:
            self._received(chunk)
            return
        if self._first:
            self._waiting += chunk
        else:
            self._first = chunk
        if len(self._first) + len(self._waiting) > _MAX_WAITING_BYTES:
            self._connection.pause()
        self._wake()

    def ended(self, error: Exception | None = None) -> None:
        """End the body."""
        self.has_ended, self._error = True, error
        if self._ended is not None:
            self._ended(error)
        self._wake()

    def _clear(self) -> None:
        self._first, self._waiting = b"", bytearray()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
