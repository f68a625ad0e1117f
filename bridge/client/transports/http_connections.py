"""HTTP/1.1 connections to one origin over asyncio, kept alive and reused.

A general HTTP client builds a request, a pool entry and a response object for each call, which costs more processor
time than the call itself. These connections send prepared bytes and parse the response with httptools.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import httptools
import httpx2

from bridge.client.transports.limits import MAX_MESSAGE_BYTES, SUCCESS, ResponseTooLongError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

MAX_IDLE_CONNECTIONS = 100
"""Maximum idle connections; further ones are closed after their response."""
MAX_IDLE_SECONDS = 30.0
"""Seconds after which an idle connection is not used again."""

_MAX_HEADER_BYTES = 64 * 1024
_MAX_WAITING_BYTES = 256 * 1024
_SWITCHING_PROTOCOLS = 101
_TRANSFER_ENCODINGS = {b"", b"chunked"}


class HttpConnections:
    """Connections to one origin.

    Args:
        host: Name or address of the server.
        port: Its port.
        tls: TLS settings; None for plain HTTP.
        connect_seconds: Maximum seconds to open a connection.

    Attributes:
        address: Address and port that `host` was reached at; None to resolve it. A host may have addresses that do not
            respond, and asyncio tries one after the other.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, connect_seconds: float) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._is_closed = False
        self.address: tuple[str, int] | None = None

    async def send(self, request: bytes) -> HttpResponse:
        """Send one request and return its response; a success in JSON is read to its end.

        Cancelling closes the connection.

        Raises:
            httpx2.ConnectError: No connection could be opened; nothing was sent.
            httpx2.ConnectTimeout: The same, for a timeout.
            httpx2.TransportError: The connection was lost, or the response is not HTTP.
            ResponseTooLongError: The body is longer than `MAX_MESSAGE_BYTES`.
        """
        connection = self._reusable() or await self._opened()
        try:
            return await connection.sent(request)
        except BaseException:
            connection.abort()
            raise

    def close(self) -> None:
        """Close all connections; running requests fail."""
        self._is_closed = True
        for connection in tuple(self._open):
            connection.abort()

    def _reusable(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the most recently used, so that the others expire
            if connection.is_open and monotonic() - connection.idle_since < MAX_IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _opened(self) -> _Connection:
        if self._is_closed:
            raise httpx2.ConnectError("the connection is closed")
        loop = asyncio.get_running_loop()
        host, port = (self._host, self._port) if self.address is None else self.address[:2]
        address, self.address = self.address, None
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self, loop),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls is not None else None,
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("connecting takes too long") from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        self.address = address
        return connection

    def opened(self, connection: _Connection) -> None:
        """Register an open connection."""
        self._open.add(connection)
        if self._is_closed:
            connection.abort()

    def released(self, connection: _Connection) -> None:
        """Keep a connection whose response is complete."""
        if len(self._idle) < MAX_IDLE_CONNECTIONS and not self._is_closed:
            connection.idle_since = monotonic()
            self._idle.append(connection)
        else:
            connection.abort()

    def lost(self, connection: _Connection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class HttpResponse:
    """Response to one request.

    Attributes:
        status: HTTP status.
        headers: Names, in lower case, and values.
        content_type: Type of the body, in lower case; empty without one.
        content: The whole body of a success in JSON; otherwise empty.
        stream: The body of any other response, which may be read while it is received.
    """

    __slots__ = ("content", "content_type", "headers", "status", "stream")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = headers
        self.content_type = self.header(b"content-type").lower()
        self.content = b""
        self.stream: ResponseStream | None = None

    def header(self, name: bytes) -> bytes:
        """Value of a header, joined if there are several; empty without it."""
        return b", ".join([value for each, value in self.headers if each == name])


class ResponseStream(httpx2.AsyncByteStream):
    """Body of a response that is read while it is received.

    Attributes:
        has_ended: True after its end, or the loss of its connection.
    """

    def __init__(self, connection: _Connection) -> None:
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
        chunk = self._chunks.popleft()
        self._waiting_bytes -= len(chunk)
        if self._waiting_bytes <= _MAX_WAITING_BYTES:
            self._connection.resume()
        return chunk

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


class _Connection(asyncio.Protocol):
    """One connection, with at most one request at a time."""

    def __init__(self, pool: HttpConnections, loop: asyncio.AbstractEventLoop) -> None:
        self.idle_since = 0.0
        self._pool = pool
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._response: HttpResponse | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_paused = False

    # --- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
            if self._response is None and self._answer is not None:
                self._header_bytes += len(data)
                if self._header_bytes > _MAX_HEADER_BYTES:
                    self._fail(httpx2.RemoteProtocolError("the headers of the response are too long"))
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._fail(cause if isinstance(cause, httpx2.TransportError) else httpx2.RemoteProtocolError(str(error)))
        except httptools.HttpParserError as error:
            self._fail(httpx2.RemoteProtocolError(f"the response is not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.lost(self)
        if self._response is not None and exc is None and self._ends_with_connection():
            self.on_message_complete()
        else:
            lost = httpx2.RemoteProtocolError("the server closed the connection before the end of its response")
            self._fail(lost if exc is None else httpx2.ReadError(str(exc)), exc)

    # --- requests ----------------------------------------------------------------------------------------------------

    def sent(self, request: bytes) -> asyncio.Future[HttpResponse]:
        """Send a request; return its future response."""
        assert self._transport is not None
        self._answer = answer = self._loop.create_future()
        self._transport.write(request)
        return answer

    @property
    def is_open(self) -> bool:
        """False once either side closes the connection."""
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def close_later(self, seconds: float, body: ResponseStream) -> None:
        """Close the connection if a body does not end in time."""
        self._loop.call_later(seconds, lambda: None if body.has_ended else self.abort())

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading."""
        if self._transport is not None and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _ends_with_connection(self) -> bool:
        assert self._response is not None
        return not self._response.header(b"content-length") and not self._response.header(b"transfer-encoding")

    def _fail(self, error: Exception, cause: BaseException | None = None) -> None:
        error.__cause__ = cause
        answer, response = self._answer, self._response
        self._answer = self._response = None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        elif response is not None and response.stream is not None:
            response.stream.ended(error)
        self.abort()

    # --- httptools ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Refuse a response to no request."""
        if self._answer is None:
            raise httpx2.RemoteProtocolError("the server sent a response to no request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Begin the response; it is returned at once unless it is a success in JSON."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, []
        if status < SUCCESS.start:
            if status == _SWITCHING_PROTOCOLS:
                raise httpx2.RemoteProtocolError("the server switched to another protocol, unasked")
            return
        self._header_bytes = 0
        response = self._response = HttpResponse(status, headers)
        if (encoding := response.header(b"transfer-encoding").lower()) not in _TRANSFER_ENCODINGS:
            raise httpx2.RemoteProtocolError(f"its transfer encoding {encoding.decode('latin-1')!r} is not supported")
        if status not in SUCCESS or not response.content_type.startswith(b"application/json"):  # as in the SDK
            response.stream = ResponseStream(self)
            self._answered(response)

    def on_body(self, body: bytes) -> None:
        """Add bytes of the body."""
        response = self._response
        if response is None:
            return
        if response.stream is not None:
            response.stream.received(body)
            return
        self._body_bytes += len(body)
        if self._body_bytes > MAX_MESSAGE_BYTES:
            raise ResponseTooLongError(f"its answer is longer than {MAX_MESSAGE_BYTES / 2**20:g} MiB")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """End the response."""
        response, self._response = self._response, None
        if response is None:
            return  # an interim response
        if response.stream is not None:
            response.stream.ended()
        else:
            response.content = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._body, self._body_bytes = [], 0
            self._answered(response)
        self.resume()
        if self._parser.should_keep_alive() and self.is_open:
            self._pool.released(self)
        else:
            self.abort()

    def _answered(self, response: HttpResponse) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(response)
