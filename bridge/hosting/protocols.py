"""Wrappers of uvicorn's protocols: limits, read timeouts, coalesced writes.

Bounds of connections: how many there are, how long the head of a request may be, and how long it is waited for.

httptools keeps a head that is not whole, and the trailers behind a body, without a bound of its own: they are counted
here. h11 counts what it keeps, but no head that comes whole (`bridge.hosting.h11_protocol`). Trailers are dropped; they
are no headers (RFC 9110, section 6.5.1).

Arrival: what a client has begun to send has to come, else its connection is closed.

    nothing yet ──> part of a head ──> part of a body ──> a whole request ──> uvicorn's own timer, once it is answered
    silence         the whole head     each further part  (whoever is at work on it takes what time it takes)

uvicorn has a timer for what comes after an answer alone, and ends it with the first byte. Here a connection has at most
one more: made when it is opened, and where a request does not come whole at once.

Joined writes: uvicorn's protocols, sending the head of an answer together with its body.

uvicorn writes the two one after the other, and each write is a system call: of a call that takes 45 µs, four.
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
"""The status of an answer to a head that is over its bounds."""

_RETRY_SECONDS = 5

_PATIENCE_SECONDS = 1.0
"""How long the request is waited for that a refused connection came with, so that its client reads the answer."""


_PROBES = tuple(f"{method} {path} HTTP/1".encode() for method in METHODS for path in (HEALTH_PATH, READY_PATH))
"""How requests begin that are answered though there are too many connections: who hears nothing ends the process."""


_END_OF_HEAD = b"\r\n\r\n"


_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"%b"%b}}'


class HeadTooLongError(Exception):
    """The head of a request is over its bounds; the parser ends at it."""


def with_connection_limits(protocol: type[Any], bounds: ConnectionLimits) -> type[asyncio.Protocol]:  # noqa: C901 - methods of a class
    """One of uvicorn's protocols, within bounds."""
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
        b"a request has to come whole; its head within %g seconds, its body without a pause of %g"
        % (bounds.max_head_seconds, bounds.max_body_pause_seconds),
    )
    is_counted = hasattr(protocol, "on_message_begin")  # not h11, which has no callbacks
    malformed = _refusal(b"400 Bad Request", b"this is no valid HTTP request")
    max_header_bytes, shares = bounds.max_header_bytes, ConnectionShares(bounds.max_connections)

    class BoundedProtocol(with_read_timeouts(reading(protocol, bounds), bounds, too_late)):  # type: ignore[misc]  # known only when it is called
        """A protocol within bounds."""

        headers: list[tuple[bytes, bytes]]
        _has_progressed = False
        """A whole head, or a part of a body, has come with the last data."""
        _unfinished_bytes = 0
        """Bytes since then; at least as many as the parser keeps of a head, of the size of a chunk, or of trailers."""
        _is_too_long = False
        _is_refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if not shares.add(self):
                self._is_refused = True
                self.connections.discard(self)
                self.loop.call_later(_PATIENCE_SECONDS, self.transport.close)

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
                self.shutdown()  # after its answer
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
            self.headers = []  # a list that nobody reads: the parser adds trailers to it

        def on_body(self, body: bytes) -> None:
            self._has_progressed = True
            super().on_body(body)

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
            if not self._is_being_answered():
                is_too_long = self._is_too_long or _is_h11_refusal(sys.exception())
                self.transport.write(too_long if is_too_long else malformed)
            self.transport.close()

        def _is_being_answered(self) -> bool:
            """Whether an answer has begun to a request that is not whole, or has not ended."""
            cycle = self.cycle
            return getattr(cycle, "response_started", False) and (cycle.more_body or not cycle.response_complete)

    return cast("type[asyncio.Protocol]", BoundedProtocol)


def _is_probe(data: bytes) -> bool:
    """Whether this is a request for a probe, whole, and nothing behind it."""
    return data.startswith(_PROBES) and data.find(_END_OF_HEAD) == len(data) - len(_END_OF_HEAD)


def _is_h11_refusal(error: BaseException | None) -> bool:
    """Whether h11 found a head too long."""
    return getattr(error, "error_status_hint", 0) == TOO_LONG


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
    """One of uvicorn's protocols, which waits for a client within bounds.

    Args:
        protocol: The protocol.
        bounds: How long it waits.
        too_late: What is answered where only a part of a request has come.
    """
    silence, head, body = bounds.max_silence_seconds, bounds.max_head_seconds, bounds.max_body_pause_seconds

    class ArrivingProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """A protocol that waits within bounds."""

        _timer: asyncio.TimerHandle | None = None
        _has_begun = False
        """Whether something has come of what is waited for."""
        _is_in_body = False
        _heard_at = 0.0
        """When a part of a body came last."""

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
            """Whether it is the client's turn, and no timer of uvicorn's runs."""
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                return self.timeout_keep_alive_task is None
            return getattr(cycle, "more_body", False)  # a call that is run without ASGI has come whole

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
            """Close the connection, unless something came meanwhile, or was not read."""
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
    """A transport that keeps what is written until more comes, or until the event loop goes on.

    Args:
        transport: Where it is written.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._schedule: Callable[[Callable[[], None]], object] = asyncio.get_running_loop().call_soon
        self._kept = b""

    def write(self, data: bytes) -> None:
        """Write now together with what was kept, or keep it for a moment."""
        if self._kept:
            self.write_whole(data)
        elif data:
            self._kept = data
            self._schedule(self._flush)

    def write_whole(self, data: bytes) -> None:
        """Write now what needs nothing more."""
        kept, self._kept = self._kept, b""
        if not self._transport.is_closing():  # uvloop raises where the client has gone
            self._transport.write(kept + data if kept else data)

    def close(self) -> None:
        """Write what was kept, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._kept:
            self.write_whole(b"")

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's own."""
        return getattr(self._transport, name)


def with_coalesced_writes(protocol: type[Any]) -> type[asyncio.Protocol]:
    """One of uvicorn's protocols, over a `CoalescingTransport`."""

    class JoiningProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """A protocol over joined writes."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            joining = CoalescingTransport(cast("asyncio.Transport", transport))
            super().connection_made(joining)

    return cast("type[asyncio.Protocol]", JoiningProtocol)
