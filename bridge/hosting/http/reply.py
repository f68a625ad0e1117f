"""Response to one request on a connection, whoever answers it.

    respond(status, headers, body)                                          at once
    begin(status, headers) ──> await write(part) ──> … ──> end(part)        in parts
                          ╰──> close()                                      broken off

A response in parts is sent in chunks (RFC 9112 section 7.1) unless its headers have a length. Its head is sent with the
first part, or in the next turn of the event loop: one write saves a system call.
"""

from __future__ import annotations

import http
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from bridge.hosting.scopes import log_access

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from starlette.types import Scope
    from uvicorn.server import ServerState

Header = tuple[bytes, bytes]
_WITHOUT_BODY = {204, 304}


class ReplyConnection(Protocol):
    """A connection, for its replies."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    heads: ResponseHeads
    logs_access: bool
    is_write_paused: bool
    writable: asyncio.Event

    @property
    def is_ending(self) -> bool:
        """True if the connection is closed behind the current response."""
        ...

    def send(self, data: bytes) -> None:
        """Write data, unless the connection is closed."""
        ...

    def respond(
        self, scope: Scope, status: int, headers: Sequence[Header], body: bytes, *, keeps_alive: bool = True
    ) -> None:
        """Send a whole response."""
        ...

    def complete(self, *, keeps_alive: bool) -> None:
        """Await the next request after a response."""
        ...

    def resume_reading(self) -> None:
        """Read on, if reading is paused."""
        ...


class Reply:
    """The response to one request.

    Args:
        connection: The connection.
        scope: ASGI scope of the request.
        keeps_alive: True if the request lets further ones follow.

    Attributes:
        scope: ASGI scope of the request.
        has_begun: True once the response has begun.
        is_open: True until the response is complete, or the connection is closed: what is sent later is dropped.
        on_close: Called once the connection is closed before the response is complete.
    """

    on_close: Callable[[], object] | None = None
    has_begun = False
    is_open = True
    is_complete = False
    """True once the whole response is sent."""
    _is_chunked = False
    _has_body = True
    _left_bytes: int | None = None
    """Bytes that the body still needs for its length; None if its length is not known."""
    _kept = b""
    """The head, until it is sent."""

    def __init__(self, connection: ReplyConnection, scope: Scope, *, keeps_alive: bool) -> None:
        self._connection = connection
        self.scope = scope
        self._keeps_alive = keeps_alive

    def respond(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a whole response, to which its length is added.

        Args:
            status: HTTP status.
            headers: The headers; the same object again saves time.
            body: The body.

        Raises:
            RuntimeError: The response has begun.
        """
        if self.has_begun:
            raise RuntimeError("the response has begun")
        if self.is_open:
            self.has_begun = True
            self._complete()
            self._connection.respond(self.scope, status, headers, body, keeps_alive=self._keeps_alive)

    def begin(self, status: int, headers: Iterable[Header]) -> None:
        """Begin a response that is sent in parts.

        Raises:
            RuntimeError: The response has begun.
        """
        if self.has_begun:
            raise RuntimeError("the response has begun")
        self.has_begun = True
        if not self.is_open:
            return
        connection = self._connection
        self._has_body = self.scope["method"] != "HEAD" and status not in _WITHOUT_BODY
        lines = self._header_lines(headers)
        if self._left_bytes is None and self._has_body:
            self._is_chunked = self.scope["http_version"] == "1.1"
            if self._is_chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self._keeps_alive = False
        self._keeps_alive &= not connection.is_ending
        if not self._keeps_alive:
            lines.append(b"connection: close\r\n")
        if connection.logs_access:
            log_access(self.scope, status)
        self._kept = b"%b%b\r\n" % (connection.heads.head(status, ()), b"".join(lines))
        connection.loop.call_soon(self.flush)

    def _header_lines(self, headers: Iterable[Header]) -> list[bytes]:
        """Write the headers but those of the connection, and read the length of the body."""
        lines = []
        for name, value in headers:
            lowered = name.lower()
            if lowered == b"connection" and b"close" in map(bytes.strip, value.lower().split(b",")):
                self._keeps_alive = False
            elif lowered != b"transfer-encoding":
                if lowered == b"content-length":
                    self._left_bytes = int(value)
                lines.append(b"%b: %b\r\n" % (lowered, value))
        return lines

    def send_continue(self) -> None:
        """Ask the client for the body that it holds back (RFC 9110 section 10.1.1)."""
        self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def resume_reading(self) -> None:
        """Receive more of the request."""
        self._connection.resume_reading()

    async def write(self, part: bytes) -> None:
        """Send a part, and wait while the client does not read.

        Raises:
            RuntimeError: The body is longer than its length.
        """
        if part and self.is_open:
            self._send(part, b"")
            if self._connection.is_write_paused:
                await self._connection.writable.wait()

    def end(self, part: bytes = b"") -> None:
        """Send the last part.

        Raises:
            RuntimeError: The body is longer or shorter than its length.
        """
        if not self.is_open:
            return
        self._send(part, b"0\r\n\r\n")
        if self._left_bytes and self._has_body:
            raise RuntimeError("the response is shorter than its length")
        self._complete()
        self._connection.complete(keeps_alive=self._keeps_alive and not self._connection.is_ending)

    def _send(self, part: bytes, last_chunk: bytes) -> None:
        if not self._has_body:
            part = b""
        elif self._is_chunked:
            part = b"%x\r\n%b\r\n%b" % (len(part), part, last_chunk) if part else last_chunk
        elif self._left_bytes is not None:
            if len(part) > self._left_bytes:
                raise RuntimeError("the response is longer than its length")
            self._left_bytes -= len(part)
        kept, self._kept = self._kept, b""
        if kept or part:
            self._connection.send(kept + part if kept else part)

    def flush(self) -> None:
        """Send the head, if it waits for the first part."""
        if self._kept:
            kept, self._kept = self._kept, b""
            self._connection.send(kept)

    def close(self) -> None:
        """Break the response off: close the connection, so that the client does not take it for a complete one."""
        if self.is_open:
            self.flush()
            self._connection.transport.close()

    def client_gone(self) -> None:
        """Note that the connection is closed."""
        self.is_open = False
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()

    def _complete(self) -> None:
        self.is_open, self.is_complete = False, True
        self.on_close = None  # it usually refers to this object


class ResponseHeads:
    """Beginnings of the responses on a connection.

    Args:
        server_state: Has the headers of all responses.
    """

    def __init__(self, server_state: ServerState) -> None:
        self._server_state = server_state
        self._status = 0
        self._default: object = None
        self._headers: object = None
        self._last = b""

    def head(self, status: int, headers: Iterable[Header]) -> bytes:
        """Return the beginning of a response; the same headers again save time."""
        default = self._server_state.default_headers  # another list every second
        if headers is not self._headers or default is not self._default or status != self._status:
            self._headers, self._default, self._status = headers, default, status
            lines = [b"%b: %b\r\n" % header for header in (*default, *headers)]
            self._last = _status_line(status) + b"".join(lines)
        return self._last


@lru_cache
def _status_line(status: int) -> bytes:
    """Return the first line of a response."""
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())
