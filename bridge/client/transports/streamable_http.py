"""Streamable HTTP: each message is a POST, and what belongs to a request comes with the response to its POST.

    send ──> own connection ──> JSON, or events: progress, messages, response ──> session
      ├────> 401, 403 with a challenge, redirect: nothing ran ──> the HTTP client sends the request again
      ╰────> HTTP client (login, proxy, trio) ──> the same

The responses of both ways are read here. MCP 2025-11-25 and 2026-07-28, Transports, "Streamable HTTP".
"""

from __future__ import annotations

import logging
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import httpx2

from bridge.client.auth.errors import SignInError
from bridge.client.transports.event_stream import EventParser
from bridge.client.transports.http_client import UNAUTHORIZED, closed
from bridge.client.transports.http_exchange import EventFeed, HttpExchange, own_connections
from bridge.client.transports.http_link import HttpLink, unfollowed
from bridge.client.transports.received_data import (
    LARGE_BYTES,
    MAX_MESSAGE_BYTES,
    RESULT,
    ResponseTooLongError,
    decompressed,
    limited,
)
from bridge.client.transports.streamed_reads import DRAIN_SECONDS, result_in_long_json
from bridge.errors import WireError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.param_headers import header_value
from bridge.protocol.peer import PeerLostError
from bridge.protocol.versions import INVALID_REQUEST, MODERN_VERSIONS, PARSE_ERROR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bridge.client.auth.ready import ReadyAuth
    from bridge.client.transports.http_connections import HttpConnection, HttpConnections
    from bridge.client.transports.http_responses import HttpResponse, ResponseHead, ResponseStream
    from bridge.client.transports.link import LinkOptions
    from bridge.protocol.peer import PendingRequest

_NO_STREAMABLE_HTTP = frozenset({400, 404, 405, 406, 410, 415, 501})
"""Responses to a POST after which the older transport is tried (MCP, Transports, "Backwards Compatibility")."""
_ACCEPTED, _BAD_REQUEST, _FORBIDDEN, _NOT_FOUND = 202, 400, 403, 404
_REDIRECTS = range(300, 400)
_MAX_HEADS = 1000
_MAX_RESUMPTIONS = 2
"""Maximum attempts to resume a stream, without one that succeeds."""
_RESUME_SECONDS = 1.0
"""Seconds before a stream is resumed, if the server has not told them."""
_SESSION_HEADER, _VERSION_HEADER = "mcp-session-id", "mcp-protocol-version"
_logger = logging.getLogger("bridge.client")


class StreamableHttpLink(HttpLink):
    """Streamable HTTP."""

    kind = "http"
    mirrors_arguments = True
    cancels_by_closing = True

    def __init__(self, url: str, headers: Mapping[str, str], auth: httpx2.Auth | None, options: LinkOptions) -> None:
        super().__init__(url, headers, auth, options)
        self._session_id: str | None = None
        self._connections: HttpConnections | None = None
        self._sign_in: ReadyAuth | None = None
        self._is_direct = False  # once the handshake is complete, until a redirect
        self._has_listened: anyio.Event | None = None
        self._heads: dict[tuple[str, str | None], bytes] = {}

    @property
    def _has_session(self) -> bool:
        return self._session_id is not None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the connections."""
        self._client = self._new_client()
        self._connections, self._sign_in = own_connections(self._url, self._auth, self._options)
        try:
            yield
            if self._session_id is not None and not self._events.is_lost:
                await self._end_session(self._headers_of())
        finally:
            self._is_direct, self._sign_in = False, None
            if self._connections is not None:
                self._connections.close()
            await self._close()

    def agreed(self) -> None:
        """Use the own connections from now on, and listen to what the server sends of itself."""
        self._is_direct = self._connections is not None
        if self._session_id is not None:
            self._has_listened = anyio.Event()
            self._events.start_soon(self._listen)

    async def listening(self) -> None:
        """Wait briefly for the server's answer to the stream that it sends by itself."""
        if self._has_listened is not None:
            with anyio.move_on_after(_RESUME_SECONDS):
                await self._has_listened.wait()

    def is_refused(self) -> bool:
        """True if the server does not seem to support streamable HTTP."""
        return self.status in _NO_STREAMABLE_HTTP

    # --- requests -----------------------------------------------------------------------------------------------------

    def send_now(self, request: PendingRequest) -> bool:
        """Send a request over an idle own connection; return False if there is none."""
        if not self._is_direct or (signature := self._signature()) is None:
            return False
        assert self._connections is not None
        if (connection := self._connections.idle()) is None:
            return False
        self._send_over(connection, request, signature)
        return True

    async def send(self, request: PendingRequest) -> None:
        """Send a request over a new own connection, or by the HTTP client, which lasts until its outcome."""
        if not self._is_direct or (signature := self._signature()) is None:
            await self._send_by_client(request)
            return
        assert self._connections is not None
        try:
            connection = self._connections.idle() or await self._connections.open()
        except httpx2.TransportError as error:
            self.lost(request, error)
        else:
            self._send_over(connection, request, signature)

    def _signature(self) -> bytes | None:
        """Return the headers that sign a request now; None if that has to be waited for."""
        headers = {} if self._sign_in is None else self._sign_in.ready_headers()
        if headers is None:
            return None
        return "".join([f"{key}: {value}\r\n" for key, value in headers.items()]).encode("latin-1")

    def _send_over(self, connection: HttpConnection, request: PendingRequest, signature: bytes) -> None:
        head = self._heads.get((request.method, request.name)) or self._head(request)
        if request.headers:
            head += "".join([f"{key}: {value}\r\n" for key, value in request.headers.items()]).encode("latin-1")
        text = request.text
        data = b"%b%bcontent-length: %d\r\n\r\n%b" % (head, signature, len(text), text)
        request.is_sent = True
        request.carrier = exchange = HttpExchange(self, request, connection)
        connection.send(data, exchange, MAX_MESSAGE_BYTES if request.stream is None else LARGE_BYTES)

    def _head(self, request: PendingRequest) -> bytes:
        """Request line and headers of a method's requests for one name."""
        built = self._client.request("POST", self._headers_of(request), b"")
        lines = [b"POST " + built.url.raw_path + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in built.headers.raw if name.lower() != b"content-length"]
        head = b"\r\n".join((*lines, b""))
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        self._heads[request.method, request.name] = head
        return head

    def _headers_of(self, request: PendingRequest | None = None) -> dict[str, str]:
        """Headers of a request, or of a message that is none."""
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self._session_id is not None:
            headers[_SESSION_HEADER] = self._session_id
        version = self._events.version if request is None else request.version
        if version and (request is None or request.method != "initialize"):
            headers[_VERSION_HEADER] = version
        if request is not None and version in MODERN_VERSIONS:
            headers["mcp-method"] = request.method
            if request.name is not None:
                headers["mcp-name"] = header_value(request.name)
        return headers

    async def _send_by_client(self, request: PendingRequest) -> None:
        request.is_sent = True
        try:
            headers = {**self._headers_of(request), **(request.headers or {})}
            sent = self._client.request("POST", headers, request.text)
            await self._read(request, await self._client.send(sent))
        except httpx2.TransportError as error:
            self.lost(request, error)
        except SignInError as error:
            self._not_signed(request, error)

    async def post(self, text: bytes) -> None:
        """Send a message that has no response."""
        await self._send_in_background(self._client.request("POST", self._headers_of(), text))

    def abandon(self, request: PendingRequest) -> None:
        """Close the connection of a request, unless its response has ended, and another request may use it."""
        if request.carrier is not None:
            request.carrier.abandon()

    # --- responses ----------------------------------------------------------------------------------------------------

    def received(self, request: PendingRequest, response: HttpResponse) -> None:
        """Handle a response over an own connection: what is usual at once, and the rest in the request's task."""
        head, stream = response.head, response.stream
        if stream is None:
            self._record(request, head.status)
            self._receive_json(request, response.content, head.content_encoding)
        elif head.status in RESULT and head.content_type.startswith(b"text/event-stream") and not head.content_encoding:
            self._record(request, head.status)
            EventFeed(self, request, stream).begin()
        else:
            request.defer(partial(self._read_unusual, request, head, stream))

    def _record(self, request: PendingRequest, status: int) -> None:
        request.status = status
        self._record_status(status)

    def _receive_json(self, request: PendingRequest, content: bytes, encoding: bytes = b"") -> None:
        try:
            if encoding:
                content = decompressed(content, encoding.decode("latin-1"), MAX_MESSAGE_BYTES)
            self._events.receive(content, request)
        except httpx2.TransportError as error:
            self.lost(request, error)
        except ValueError as error:
            request.fail(ProtocolError(PARSE_ERROR, f"Failed to parse JSON response: {error}"))
        request.fail(WireError("it is not the response to its request"))  # unless there is an outcome

    def receive_event(self, request: PendingRequest, data: bytes) -> None:
        """Handle the message in an event of a request's own stream."""
        try:
            self._events.receive(data, request)
        except ValueError as error:
            request.fail(ProtocolError(PARSE_ERROR, f"Failed to parse SSE message: {error}"))

    def stream_ended(self, request: PendingRequest, reader: EventParser, error: Exception | None) -> None:
        """Resume the stream of a request that has no outcome, if that is possible."""
        if request.is_over:
            return
        if reader.last_id and not isinstance(error, ResponseTooLongError):
            request.defer(partial(self._resume, request, reader))
        elif error is not None:
            self.lost(request, error)
        else:
            request.fail(PeerLostError("the stream of its response has ended"))

    async def _read_unusual(self, request: PendingRequest, head: ResponseHead, stream: ResponseStream) -> None:
        """Read any other response over an own connection."""
        is_denied = head.status == UNAUTHORIZED or (
            head.status == _FORBIDDEN and bool(head.header(b"www-authenticate"))
        )
        is_challenge = is_denied and self._sign_in is not None
        if head.status in _REDIRECTS or is_challenge:
            self._is_direct = self._is_direct and is_challenge
            stream.drain(DRAIN_SECONDS)
            request.is_sent = False
            await self._send_by_client(request)
            return
        try:
            if head.status in RESULT and head.content_type.startswith(b"application/json"):
                self._record(request, head.status)
                result = await result_in_long_json(stream, head.content_bytes, request)
                if isinstance(result, bytes):
                    self._receive_json(request, result)
                else:
                    request.settle(result)
                return
            sent = self._client.request("POST", {})
            whole = httpx2.Response(head.status, headers=head.headers, stream=stream, request=sent)
            await limited(MAX_MESSAGE_BYTES)(whole)
            await self._read(request, whole)
        except BaseException as error:
            stream.close()
            if not isinstance(error, Exception):
                raise
            self._fail(request, error)

    def _fail(self, request: PendingRequest, error: Exception) -> None:
        if isinstance(error, httpx2.TransportError):
            self.lost(request, error)
        else:
            request.fail(error)

    async def _read(self, request: PendingRequest, response: httpx2.Response) -> None:
        """Read a response; raises as `bridge.client.transports.http_client.MessageClient.send`."""
        status, kind = response.status_code, response.headers.get("content-type", "").lower()
        try:
            if status >= _BAD_REQUEST:
                await self._refused(request, response)
                return
            self._record(request, status)
            self._learn(request, response)
            if status == _ACCEPTED:
                request.fail(ProtocolError(INVALID_REQUEST, "server answered a request with 202 Accepted"))
            elif status in _REDIRECTS:
                request.fail(ProtocolError(INVALID_REQUEST, unfollowed(response)))
            elif kind.startswith("application/json"):
                self._receive_json(request, await response.aread())
            elif kind.startswith("text/event-stream"):
                await self._read_events(request, response, EventParser(MAX_MESSAGE_BYTES))
            else:
                request.fail(ProtocolError(INVALID_REQUEST, f"Unexpected content type: {kind}"))
        finally:
            await closed(response)

    def _learn(self, request: PendingRequest, response: httpx2.Response) -> None:
        """Take what a response tells of the session and the server's address."""
        if request.method == "initialize":
            self._session_id = response.headers.get(_SESSION_HEADER) or None
        if self._connections is not None and not self._is_direct:
            stream = response.extensions.get("network_stream")
            self._connections.address = None if stream is None else stream.get_extra_info("server_addr")

    async def _read_events(self, request: PendingRequest, response: httpx2.Response, reader: EventParser) -> None:
        """Read an event stream until the outcome of its request, which may be resumed after its end."""
        error: Exception | None = None
        try:
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    for data in reader.feed(chunk):
                        self.receive_event(request, data)
                        if request.is_over:
                            return
                    while request.work:
                        await request.work.popleft()()
        except httpx2.TransportError as lost:
            error = lost
        self.stream_ended(request, reader, error)

    # --- streams of the server ----------------------------------------------------------------------------------------

    async def _resume(self, request: PendingRequest, reader: EventParser) -> None:
        """Resume the stream of a request after its last event (MCP, Transports, "Resumability and Redelivery")."""
        for _ in range(_MAX_RESUMPTIONS):
            await anyio.sleep(_RESUME_SECONDS if reader.retry_seconds is None else reader.retry_seconds)
            reader.restart()
            response = await self._get(reader.last_id)
            if response is None:
                continue
            try:
                await self._read_events(request, response, reader)  # and again after its end
            finally:
                await closed(response)
            return
        request.fail(PeerLostError("the stream of its response has ended, and was not resumed"))

    async def _listen(self) -> None:
        """Receive what a server of the handshake era sends of itself, while the session lasts."""
        reader, failures = EventParser(MAX_MESSAGE_BYTES), 0
        while failures < _MAX_RESUMPTIONS:
            response = await self._get(reader.last_id)
            if self._has_listened is not None:
                self._has_listened.set()
            if response is None:
                failures += 1
            else:
                failures = 0
                try:
                    async for chunk in response.aiter_bytes():
                        for data in reader.feed(chunk):
                            self._receive(data)
                            await self._events.delivered()
                except httpx2.TransportError as error:
                    _logger.debug("server %r: its stream has ended: %r", self._options.server, error)
                finally:
                    await closed(response)
                self._events.suspect()
            await anyio.sleep(_RESUME_SECONDS if reader.retry_seconds is None else reader.retry_seconds)
            reader.restart()

    async def _get(self, last_id: bytes) -> httpx2.Response | None:
        """Open an event stream; return None if the server does not, or cannot be reached."""
        headers = self._headers_of() | {"accept": "text/event-stream", "cache-control": "no-store"}
        del headers["content-type"]
        if last_id:
            headers["last-event-id"] = last_id.decode("latin-1").strip(" \t")  # no part of a header's value
        return await self._event_stream(headers)
