"""Bounds of connections: how many there are, how long the head of a request may be, and how long it is waited for.

httptools keeps a head that is not whole, and the trailers behind a body, without a bound of its own: they are counted
here. h11 counts what it keeps, but no head that comes whole (`bridge.hosting.h11_protocol`). Trailers are dropped; they
are no headers (RFC 9110, section 6.5.1).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from bridge.cli.arrival import arriving
from bridge.hosting.unread_responses import reading
from bridge.server.http.probes import HEALTH_PATH, METHODS, READY_PATH

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

DEFAULT_MAX_HEADER_BYTES = 64 * 1024
"""How long the head of a request may be unless told otherwise."""
MAX_HEADERS = 200
"""How many headers a request may have."""
TOO_LONG = 431
"""The status of an answer to a head that is over its bounds."""

_RETRY_SECONDS = 5
_PATIENCE_SECONDS = 1.0
"""How long the request is waited for that a refused connection came with, so that its client reads the answer."""
_PROBES = tuple(f"{method} {path} HTTP/1".encode() for method in METHODS for path in (HEALTH_PATH, READY_PATH))
"""How requests begin that are answered though there are too many connections: who hears nothing ends the process."""
_END_OF_HEAD = b"\r\n\r\n"
_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"%b"%b}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """How many connections there may be, how long the head of a request, and how long it is waited for."""

    max_header_bytes: int = DEFAULT_MAX_HEADER_BYTES
    """Address and headers together."""
    max_connections: int | None = None
    """None for as many as come."""
    max_silence_seconds: float = 75.0
    """How long a new connection may say nothing: as long as one may between two requests."""
    max_head_seconds: float = 30.0
    """How long the head of a request may take from its first byte."""
    max_body_pause_seconds: float = 30.0
    """How long the next part of a body may take."""
    max_unread_seconds: float = 60.0
    """How long a client may read nothing of what is sent to it."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """What all clients together may leave unread in this process."""

    def are_exceeded_by(self, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether the head of a request is too long, or has too many headers."""
        head_bytes = len(url) + sum(len(name) + len(value) for name, value in headers)
        return len(headers) > MAX_HEADERS or head_bytes > self.max_header_bytes


class HeadTooLongError(Exception):
    """The head of a request is over its bounds; the parser ends at it."""


def bounded(protocol: type[Any], bounds: ConnectionBounds) -> type[asyncio.Protocol]:  # noqa: C901 - methods of a class
    """One of uvicorn's protocols, within bounds."""
    too_many = _refusal(
        b"503 Service Unavailable",
        b"too many connections; try again in %d seconds" % _RETRY_SECONDS,
        b"--max-connections",
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
    max_header_bytes, max_connections = bounds.max_header_bytes, bounds.max_connections or math.inf

    class BoundedProtocol(arriving(reading(protocol, bounds), bounds, too_late)):  # type: ignore[misc]  # known only when it is called
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
            if len(self.connections) > max_connections:
                self._is_refused = True
                self.connections.discard(self)
                self.loop.call_later(_PATIENCE_SECONDS, self.transport.close)

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


def _refusal(status: bytes, message: bytes, limit: bytes | None = None) -> bytes:
    body = _ERROR % (message, b"" if limit is None else b',"data":{"limit":"%b"}' % limit)
    retry = b"retry-after: %d\r\n" % _RETRY_SECONDS if status.startswith(b"503") else b""
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (status, retry, len(body)) + body
