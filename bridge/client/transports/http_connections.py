"""HTTP/1.1 connections to one origin over asyncio, kept alive and reused.

A general HTTP client builds a request, a pool entry and a response object for each call, which costs more processor
time than the call itself. These connections send prepared bytes and parse the response with httptools.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import httptools
import httpx2

from bridge.client.transports.fair_reading import FairReading
from bridge.client.transports.http_responses import HttpResponse, KnownHead, ResponseHead, ResponseStream
from bridge.client.transports.received_data import MAX_MESSAGE_BYTES, RESULT, SUCCESS, ResponseTooLongError
from bridge.portal import callback_context

if TYPE_CHECKING:
    import ssl

    from bridge.client.transports.http_responses import Answer

_logger = logging.getLogger("bridge.client")

MAX_IDLE_CONNECTIONS = 100
"""Maximum idle connections; further ones are closed after their response."""
MAX_IDLE_SECONDS = 30.0
"""Seconds after which an idle connection is not used again."""
_CHECKED_SECONDS = 0.005
"""Seconds after which an idle connection is checked for its end, which may not be received yet."""

_MAX_FRAMING_BYTES = 64 * 1024
"""Maximum bytes of heads, trailers and chunk sizes, with their extensions, without a byte of a body between them."""
_MAX_HEADERS = 1000
_MAX_WHOLE_FRAMING_BYTES = 4 * MAX_MESSAGE_BYTES
"""Maximum bytes between those of a body that is read whole, such as the sizes of its chunks."""
_END_OF_HEAD = b"\r\n\r\n"
_MAX_KNOWN_HEADS = 16
_MAX_KNOWN_HEAD_BYTES = 2048
_TRANSFER_ENCODINGS = {b"", b"chunked"}


class HttpConnections:
    """Connections to one origin.

    A response whose head is, byte for byte, that of an earlier one is not parsed again; a server's heads differ in the
    date and in the length of the body.

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
        self._idle: deque[HttpConnection] = deque()
        self._open: set[HttpConnection] = set()
        self._is_closed = False
        self._known_heads: dict[bytes, KnownHead] = {}
        self.address: tuple[str, int] | None = None

    def close(self) -> None:
        """Close all connections; running requests fail."""
        self._is_closed = True
        for connection in tuple(self._open):
            connection.abort()

    def idle(self) -> HttpConnection | None:
        """Take a connection that can be used again; None if there is none."""
        while self._idle:
            connection = self._idle.pop()  # the most recently used, so that the others expire
            idle_seconds = monotonic() - connection.idle_since
            is_fresh = idle_seconds < _CHECKED_SECONDS
            if connection.is_open and idle_seconds < MAX_IDLE_SECONDS and (is_fresh or not connection.has_input):
                return connection
            connection.abort()
        return None

    async def open(self) -> HttpConnection:
        """Open a connection.

        Raises:
            httpx2.ConnectError: It could not be opened.
            httpx2.ConnectTimeout: The same, for a timeout.
        """
        if self._is_closed:
            raise httpx2.ConnectError("the connection is closed")
        loop = asyncio.get_running_loop()
        host, port = (self._host, self._port) if self.address is None else self.address[:2]
        address, self.address = self.address, None
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(self, loop),
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

    def opened(self, connection: HttpConnection) -> None:
        """Register an open connection."""
        self._open.add(connection)
        if self._is_closed:
            connection.abort()

    def released(self, connection: HttpConnection) -> None:
        """Keep a connection whose response is complete."""
        if len(self._idle) < MAX_IDLE_CONNECTIONS and not self._is_closed:
            connection.idle_since = monotonic()
            self._idle.append(connection)
        else:
            connection.abort()

    def known_response(self, data: bytes) -> HttpResponse | None:
        """Return the response in some data if it is whole, and has a known head."""
        end = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        known = self._known_heads.get(data[:end])
        if known is None or len(data) - end != known.content_bytes:
            return None
        return HttpResponse(known.head, data[end:])

    def remember(self, data: bytes, head: ResponseHead) -> None:
        """Remember the head of the last response in some data, which began with a response."""
        end = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        # With several responses in the data, such as interim ones, the lengths differ.
        if end <= _MAX_KNOWN_HEAD_BYTES and head.header(b"content-length") == b"%d" % (len(data) - end):
            if len(self._known_heads) >= _MAX_KNOWN_HEADS:
                self._known_heads.clear()
            self._known_heads[data[:end]] = KnownHead(head, len(data) - end)

    def lost(self, connection: HttpConnection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class HttpConnection(asyncio.Protocol):
    """One connection, with at most one request at a time; taken from `HttpConnections`."""

    def __init__(self, pool: HttpConnections, loop: asyncio.AbstractEventLoop) -> None:
        self.idle_since = 0.0
        self._pool = pool
        self._loop = loop
        self._context = callback_context()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._response: HttpResponse | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._framing_bytes = 0  # since the last byte of a body
        self._whole_framing_bytes = 0
        self._parsed_body_bytes = 0  # of the data that is parsed
        self._body = bytearray()  # after the first bytes: chunks may be tiny
        self._first = b""
        self._max_whole_bytes = MAX_MESSAGE_BYTES
        self._reading: FairReading | None = None
        self._is_between_responses = True
        self._completed: ResponseHead | None = None  # of the data that is parsed

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._reading = FairReading(self._transport, self._loop)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        """Receive a response with a known head, or parse data."""
        self._context.run(self._received, data)

    def _received(self, data: bytes) -> None:
        is_first = self._is_between_responses
        if is_first and self._answer is None:
            self._fail(httpx2.RemoteProtocolError("the server sent a response to no request"))
            return
        if is_first and (response := self._pool.known_response(data)) is not None:
            self._answered(response)
            self._pool.released(self)
            return
        completed = self._parse(data)
        if is_first and completed is not None:
            self._pool.remember(data, completed)

    def _parse(self, data: bytes) -> ResponseHead | None:
        """Parse data; return the head of a response in JSON that it completes, if its connection stays open."""
        self._completed = None
        self._parsed_body_bytes, began = 0, self._loop.time()
        try:
            self._parser.feed_data(data)
            if self._answer is not None or self._response is not None:
                self._count_framing(len(data) - self._parsed_body_bytes)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, httpx2.TransportError):
                _logger.exception("a response could not be handled", exc_info=cause)
            self._fail(cause if isinstance(cause, httpx2.TransportError) else httpx2.RemoteProtocolError(str(error)))
        except httptools.HttpParserError as error:
            self._fail(httpx2.RemoteProtocolError(f"the response is not HTTP: {error}"))
        if self._reading is not None:
            self._reading.rest_after(self._loop.time() - began)
        return self._completed

    def _count_framing(self, framing_bytes: int) -> None:
        """Count the bytes of some data that belong to no body; fail beyond the limits."""
        self._framing_bytes = 0 if self._parsed_body_bytes else self._framing_bytes + framing_bytes
        if self._response is not None and self._response.stream is None:
            self._whole_framing_bytes += framing_bytes
        if self._framing_bytes > _MAX_FRAMING_BYTES or self._whole_framing_bytes > _MAX_WHOLE_FRAMING_BYTES:
            self._fail(httpx2.RemoteProtocolError("the headers, chunk sizes or trailers of its response are too long"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End or fail the response."""
        self._context.run(self._lost, exc)

    def _lost(self, exc: Exception | None) -> None:
        self._pool.lost(self)
        if self._response is not None and exc is None and self._ends_with_connection():
            self.on_message_complete()
        else:
            lost = httpx2.RemoteProtocolError("the server closed the connection before the end of its response")
            self._fail(lost if exc is None else httpx2.ReadError(str(exc)), exc)

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, request: bytes, answer: Answer, max_whole_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """Send a request; if nothing waits for its response any more, the connection has to be closed: `abort`.

        Args:
            request: The request.
            answer: Receives the response, which for a success in JSON is read to its end; or, as
                `httpx2.TransportError`, the loss of the connection, a response that is not HTTP, or one whose body is
                longer than `MAX_MESSAGE_BYTES`.
            max_whole_bytes: Length from which on a success in JSON is returned while it is received, unless it is
                compressed.
        """
        assert self._transport is not None
        self._answer, self._max_whole_bytes = answer, max_whole_bytes
        self._transport.write(request)

    @property
    def is_open(self) -> bool:
        """False once either side closes the connection."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def has_input(self) -> bool:
        """True if an idle connection has something to read: its end, or what was not asked for."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is None:
            return False
        if not hasattr(select, "poll"):  # pragma: no cover - on Windows
            return bool(select.select([found], [], [], 0)[0])
        poll = select.poll()
        poll.register(found, select.POLLIN)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def close_later(self, seconds: float, body: ResponseStream) -> None:
        """Close the connection if a body does not end in time."""
        self._loop.call_later(seconds, lambda: None if body.has_ended else self.abort())

    def pause(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.pause()

    def resume(self) -> None:
        """Continue reading."""
        if self._reading is not None:
            self._reading.resume()

    def _ends_with_connection(self) -> bool:
        assert self._response is not None
        head = self._response.head
        return not head.header(b"content-length") and not head.header(b"transfer-encoding")

    def _fail(self, error: Exception, cause: BaseException | None = None) -> None:
        error.__cause__ = cause
        answer, response = self._answer, self._response
        self._answer = self._response = None
        self._headers, self._first, self._body = [], b"", bytearray()
        if answer is not None and not answer.done():
            answer.set_exception(error)
        elif response is not None and response.stream is not None:
            response.stream.ended(error)
        self.abort()

    # --- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Refuse a response to no request."""
        if self._answer is None:
            raise httpx2.RemoteProtocolError("the server sent a response to no request")
        self._is_between_responses = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers are dropped."""
        if self._response is None:
            if len(self._headers) >= _MAX_HEADERS:
                raise httpx2.RemoteProtocolError(f"its response has more than {_MAX_HEADERS:,} headers")
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Begin the response; it is returned at once unless it is a result in JSON."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, []
        if status < SUCCESS.start:
            if status == httpx2.codes.SWITCHING_PROTOCOLS:
                raise httpx2.RemoteProtocolError("the server switched to another protocol, unasked")
            return
        self._framing_bytes = self._whole_framing_bytes = 0
        head = ResponseHead(status, headers)
        response = self._response = HttpResponse(head)
        if head.content_encoding:
            self._max_whole_bytes = MAX_MESSAGE_BYTES
        if (encoding := head.header(b"transfer-encoding").lower()) not in _TRANSFER_ENCODINGS:
            raise httpx2.RemoteProtocolError(f"its transfer encoding {encoding.decode('latin-1')!r} is not supported")
        if status not in RESULT or not head.content_type.startswith(b"application/json"):  # as in the SDK
            response.stream = ResponseStream(self)
            self._answered(response)

    def on_body(self, body: bytes) -> None:
        """Add bytes of the body."""
        response = self._response
        self._parsed_body_bytes += len(body)
        if response is None:
            return
        if response.stream is not None:
            response.stream.received(body)
            return
        if self._first:
            self._body += body
        else:
            self._first = body
        if len(self._first) + len(self._body) > self._max_whole_bytes:
            if self._max_whole_bytes == MAX_MESSAGE_BYTES:
                raise ResponseTooLongError(f"its answer is longer than {MAX_MESSAGE_BYTES / 2**20:g} MiB")
            self._stream_body(response)

    def on_message_complete(self) -> None:
        """End the response."""
        self._is_between_responses = True
        response, self._response = self._response, None
        if response is None:
            return  # an interim response
        if response.stream is not None:
            response.stream.ended()
        else:
            response.content = self._take_body()
            self._answered(response)
        self.resume()
        if self._parser.should_keep_alive() and self.is_open:
            self._completed = response.head if response.stream is None else None
            self._pool.released(self)
        else:
            self.abort()

    def _stream_body(self, response: HttpResponse) -> None:
        """Return a response whose body is read while it is received."""
        response.stream = ResponseStream(self)
        response.stream.received(self._take_body())
        self._answered(response)

    def _take_body(self) -> bytes:
        body = self._first + self._body if self._body else self._first
        self._first, self._body = b"", bytearray()
        return body

    def _answered(self, response: HttpResponse) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(response)
