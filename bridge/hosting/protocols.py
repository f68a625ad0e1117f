"""Wrappers of uvicorn's protocols: connection limits, read timeouts, coalesced writes.

Limits: httptools buffers incomplete heads and trailers without a limit, so they are counted here. h11 limits only
incomplete heads (`bridge.hosting.h11_protocol`). Trailers are dropped; they are not headers (RFC 9110 section 6.5.1).

Read timeouts: a connection is closed if a started request does not arrive in time.

    nothing yet ──> part of a head ──> part of a body ──> complete request ──> uvicorn's keep-alive timer
    silence         the whole head     each further part  (no limit while the request is processed)

uvicorn has a timer only between two requests.

Coalesced writes: uvicorn writes head and body of a response separately; one write saves a system call.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, cast

from bridge.hosting.connection_limits import MAX_HEADERS, ConnectionShares
from bridge.hosting.unread_responses import reading
from bridge.server.http.probes import HEALTH_PATH, METHODS, READY_PATH
from bridge.server.protocol import INVALID_REQUEST, LIMIT_EXCEEDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.hosting.connection_limits import ConnectionLimits

TOO_LONG = 431
"""Status code for a request head that exceeds its limits."""

_RETRY_SECONDS = 5

_REFUSAL_SECONDS = 1.0
"""Seconds to wait for the request of a refused connection, so that the client reads the response."""
_PROBES = tuple(f"{method} {path} HTTP/1".encode() for method in METHODS for path in (HEALTH_PATH, READY_PATH))
"""Beginnings of probe requests, which are answered on refused connections: an unanswered probe restarts the process."""


_END_OF_HEAD = b"\r\n\r\n"
_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"%b"%b}}'


class HeadTooLongError(Exception):
    """The request head exceeds its limits; stops the parser."""


def with_connection_limits(protocol: type[Any], bounds: ConnectionLimits) -> type[asyncio.Protocol]:  # noqa: C901 - methods of a class
    """Add connection limits to one of uvicorn's protocols."""
    too_many = _refusal(
        b"503 Service Unavailable",
        b"too many connections; try again in %d seconds" % _RETRY_SECONDS,
        b"--max-connections",
        retry_seconds=_RETRY_SECONDS,
    )
    too_long = _refusal(
        b"431 Request Header Fields Too Large",
        b"the head of a request has at most %d bytes and %d headers, trailers have at most as many"
        % (bounds.max_header_bytes, MAX_HEADERS),
        b"--max-header-bytes",
    )
    too_late = _refusal(
        b"408 Request Timeout",
        b"the request is incomplete: its head must arrive within %g seconds, its body without a pause of %g"
        % (bounds.max_head_seconds, bounds.max_body_pause_seconds),
    )
    is_counted = hasattr(protocol, "on_message_begin")  # not h11, which has no callbacks
    malformed = _refusal(b"400 Bad Request", b"this is not a valid HTTP request")
    max_header_bytes, shares = bounds.max_header_bytes, ConnectionShares(bounds.max_connections)

    class BoundedProtocol(with_read_timeouts(reading(protocol, bounds), bounds, too_late)):  # type: ignore[misc]  # known only when it is called
        """Protocol with connection limits."""

        headers: list[tuple[bytes, bytes]]
        _has_progressed = False
        """True if the last data completed a head or was part of a body."""
        _unfinished_bytes = 0
        """Bytes since then; at least what the parser has buffered."""
        _is_too_long = False
        _is_refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if not shares.add(self):
                self._is_refused = True
                self.connections.discard(self)
                self.loop.call_later(_REFUSAL_SECONDS, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            shares.discard(self)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._is_refused and not _is_probe(data):
                self.transport.write(too_many)
                self.transport.close()
                return
            self._unfinished_bytes += len(data)
            self._has_progressed = False
            super().data_received(data)
            if self._is_refused:
                self.shutdown()  # after the response
            if self._has_progressed or not is_counted:
                self._unfinished_bytes = 0
            elif self._unfinished_bytes > max_header_bytes and not self.transport.is_closing():
                self._is_too_long = True
                self.send_400_response("")

        def on_message_begin(self) -> None:
            self._has_progressed = False
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            if len(self.headers) > MAX_HEADERS or (
                self._unfinished_bytes > max_header_bytes and bounds.are_exceeded_by(self.url, self.headers)
            ):
                self._is_too_long = True
                raise HeadTooLongError
            self._has_progressed = True
            super().on_headers_complete()
            self.headers = []  # a fresh list, since the parser appends trailers

        def on_body(self, body: bytes) -> None:
            self._has_progressed = True
            super().on_body(body)

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
            if not self._is_being_answered():
                is_too_long = self._is_too_long or getattr(sys.exception(), "error_status_hint", 0) == TOO_LONG  # h11's
                self.transport.write(too_long if is_too_long else malformed)
            self.transport.close()

        def _is_being_answered(self) -> bool:
            """True if a response has started and is not complete, or its request is not."""
            cycle = self.cycle
            return getattr(cycle, "response_started", False) and (cycle.more_body or not cycle.response_complete)

    return cast("type[asyncio.Protocol]", BoundedProtocol)


def _is_probe(data: bytes) -> bool:
    """True for a complete probe request without further data."""
    return data.startswith(_PROBES) and data.find(_END_OF_HEAD) == len(data) - len(_END_OF_HEAD)


def _refusal(status: bytes, message: bytes, limit: bytes | None = None, *, retry_seconds: int | None = None) -> bytes:
    data = [] if limit is None else [b'"limit":"%b"' % limit]
    code, retry = INVALID_REQUEST, b""
    if retry_seconds is not None:
        data.append(b'"retryAfterSeconds":%d' % retry_seconds)
        code, retry = LIMIT_EXCEEDED, b"retry-after: %d\r\n" % retry_seconds
    body = _ERROR % (code, message, b',"data":{%b}' % b",".join(data) if data else b"")
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (status, retry, len(body)) + body


def with_read_timeouts(protocol: type[Any], bounds: ConnectionLimits, too_late: bytes) -> type[Any]:  # noqa: C901 - methods of a class
    """Add read timeouts to one of uvicorn's protocols."""
    silence, head, body = bounds.max_silence_seconds, bounds.max_head_seconds, bounds.max_body_pause_seconds

    class ArrivingProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """Protocol with read timeouts."""

        _timer: asyncio.TimerHandle | None = None
        _has_begun = False
        """True if a part of the awaited data has arrived."""
        _is_in_body = False
        _heard_at = 0.0
        """Time of the last part of a body."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(silence, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_waited_for():
                self._wait(is_in_body=self.cycle is not None and not self.cycle.response_complete)
            elif self._timer is not None:
                self._wait_no_more()

        def _is_waited_for(self) -> bool:
            """True if the server waits for the client and uvicorn's timer is not running."""
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                return self.timeout_keep_alive_task is None
            return getattr(cycle, "more_body", False)  # requests of the fast path are complete

        def _wait(self, *, is_in_body: bool) -> None:
            if is_in_body:
                self._heard_at = self.loop.time()
            if self._timer is None or not self._has_begun or is_in_body is not self._is_in_body:
                self._wait_no_more()
                self._has_begun, self._is_in_body = True, is_in_body
                self._timer = self.loop.call_later(body if is_in_body else head, self._look)

        def _wait_no_more(self) -> None:
            timer, self._timer, self._has_begun = self._timer, None, False
            if timer is not None:
                timer.cancel()

        def _look(self) -> None:
            """Close the connection, unless data arrived meanwhile or reading is paused."""
            self._timer = None
            if self.transport.is_closing() or not self._is_waited_for():
                return
            if self._is_in_body and (left := self._seconds_left()) > 0:
                self._timer = self.loop.call_later(left, self._look)
                return
            if self._has_begun and not (self._is_in_body and self.cycle.response_started):
                self.transport.write(too_late)
            self.transport.close()

        def _seconds_left(self) -> float:
            return body if self.flow.read_paused else self._heard_at + body - self.loop.time()

    return ArrivingProtocol


class CoalescingTransport:
    """Transport that delays a write until the next one, or until the next turn of the event loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._schedule: Callable[[Callable[[], None]], object] = asyncio.get_running_loop().call_soon
        self._kept = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write with delayed data, or delay this data."""
        if self._kept:
            self.write_whole(data)
        elif data:
            self._kept = data
            self._schedule(self._flush)

    def write_whole(self, data: bytes) -> None:
        """Write immediately, with delayed data."""
        kept, self._kept = self._kept, b""
        if not self.is_closing():  # uvloop raises after a disconnect
            self._transport.write(kept + data if kept else data)

    def close(self) -> None:
        """Write delayed data, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._kept:
            self.write_whole(b"")

    def __getattr__(self, name: str) -> Any:
        """Delegate other attributes to the transport."""
        return getattr(self._transport, name)


def with_coalesced_writes(protocol: type[Any]) -> type[asyncio.Protocol]:
    """Wrap a protocol's transport with `CoalescingTransport`."""

    class JoiningProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """Protocol with coalesced writes."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            joining = CoalescingTransport(cast("asyncio.Transport", transport))
            super().connection_made(joining)

    return cast("type[asyncio.Protocol]", JoiningProtocol)
