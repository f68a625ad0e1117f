"""Exchanges over own HTTP connections: a request, and the response to it in the turn in which it is received."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol
from urllib.request import getproxies

import httpx2

from bridge.client.auth.ready import ReadyAuth
from bridge.client.transports.event_stream import EventParser
from bridge.client.transports.received_data import (
    LARGE_BYTES,
    MAX_MESSAGE_BYTES,
    ResponseTooLongError,
    default_ssl_context,
)
from bridge.client.transports.streamed_reads import DRAIN_SECONDS, result_in_long_event
from bridge.portal import runs_on_asyncio

if TYPE_CHECKING:
    from bridge.client.transports.http_connections import HttpConnection, HttpConnections
    from bridge.client.transports.http_responses import HttpResponse, ResponseStream
    from bridge.client.transports.link import LinkOptions
    from bridge.protocol.peer import PendingRequest

_MAX_WAITING = 100
"""Notifications of a request that wait for its caller, from which on no more are received."""
_MAX_WAITING_BYTES = 1024 * 1024
"""The same, in bytes."""


def own_connections(
    url: str, auth: httpx2.Auth | None, options: LinkOptions
) -> tuple[HttpConnections | None, ReadyAuth | None]:
    """Create own connections to a server, and what signs their requests; None if the HTTP client has to send all.

    It does so on trio, without httptools, through a proxy, with a user in the URL, and with authentication of another
    library.
    """
    parts = httpx2.URL(url)
    has_proxy = not getproxies().keys().isdisjoint({parts.scheme, "all"})
    is_possible = runs_on_asyncio() and find_spec("httptools") is not None
    if not is_possible or has_proxy or not isinstance(auth, ReadyAuth | None) or parts.userinfo:
        return None, None
    from bridge.client.transports.http_connections import HttpConnections  # noqa: PLC0415 - needs httptools

    tls = default_ssl_context() if parts.scheme == "https" else None
    port = parts.port or (80 if tls is None else 443)
    return HttpConnections(parts.host, port, tls, options.connect_seconds), auth


class ResponseHandler(Protocol):
    """Handles responses; the link."""

    def received(self, request: PendingRequest, response: HttpResponse) -> None:
        """Handle a response."""

    def lost(self, request: PendingRequest, error: Exception) -> None:
        """Fail a request without a response."""

    def receive_event(self, request: PendingRequest, data: bytes) -> None:
        """Handle the message in an event of a request's own stream."""

    def stream_ended(self, request: PendingRequest, reader: EventParser, error: Exception | None) -> None:
        """Handle the end of a request's own stream."""


class HttpExchange:
    """Request over an own connection; receives its response."""

    __slots__ = ("_connection", "_is_abandoned", "_link", "_request", "stream")

    def __init__(self, link: ResponseHandler, request: PendingRequest, connection: HttpConnection) -> None:
        self._link = link
        self._request = request
        self._connection: HttpConnection | None = connection
        self._is_abandoned = False
        self.stream: ResponseStream | None = None

    def abandon(self) -> None:
        """Close the connection, unless the response has ended, and another request may use it."""
        self._is_abandoned = True
        if self._connection is not None:
            self._connection.abort()
        elif self.stream is not None:
            self.stream.close()

    def done(self) -> bool:
        """Return True if nothing waits for the response any more."""
        return self._is_abandoned

    def set_result(self, response: HttpResponse) -> None:
        """Receive the response, or its beginning."""
        self._connection, self.stream = None, response.stream
        if self.stream is None:
            self._request.carrier = None
        self._link.received(self._request, response)

    def set_exception(self, error: Exception) -> None:
        """Fail the request."""
        self._connection = None
        self._link.lost(self._request, error)


class EventFeed:
    """Gives the events of a request's own stream to the session, in the turn in which they are received."""

    __slots__ = ("_has_tried", "_link", "_reader", "_request", "_stream", "_waiting_bytes")

    def __init__(self, link: ResponseHandler, request: PendingRequest, stream: ResponseStream) -> None:
        self._link = link
        self._request = request
        self._stream = stream
        self._reader = EventParser(MAX_MESSAGE_BYTES)
        self._waiting_bytes = 0
        self._has_tried = False  # to pass a long event on

    def begin(self) -> None:
        """Receive the events from now on."""
        self._stream.listen(self._received, self._ended)

    def _received(self, chunk: bytes) -> None:
        request = self._request
        try:
            for data in self._reader.feed(chunk):
                self._link.receive_event(request, data)
                if request.is_over:
                    self._stream.drain(DRAIN_SECONDS)
                    return
        except ResponseTooLongError as error:
            self._stream.close()
            self._link.stream_ended(request, self._reader, error)
            return
        self._waiting_bytes = self._waiting_bytes + len(chunk) if request.work else 0
        if len(request.work) >= _MAX_WAITING or self._waiting_bytes >= _MAX_WAITING_BYTES:
            self._waiting_bytes = 0
            self._stream.pause()
            request.defer(self._resume)
        if request.stream is not None and len(self._reader.rest) > LARGE_BYTES and not self._has_tried:
            self._has_tried = True
            self._stream.listen(None, None)
            request.defer(self._pass_on)

    def _ended(self, error: Exception | None) -> None:
        self._link.stream_ended(self._request, self._reader, error)

    async def _resume(self) -> None:
        self._stream.resume()

    async def _pass_on(self) -> None:
        """Pass a long event on while it is received, or read on as before."""
        try:
            result = await result_in_long_event(bytes(self._reader.rest), self._stream, self._request)
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for the result
            self._request.fail(error)
            return
        if result is None:
            self.begin()
        else:
            self._request.settle(result)
