"""Responses whose body is sent in chunks, while it is made (RFC 9112 section 7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from bridge.server.http.responses import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn.protocols.http.flow_control import FlowControl

    from bridge.hosting.protocols import CoalescingTransport
    from bridge.server.http.responses import PlainResponse

Header = tuple[bytes, bytes]
_OK = 200


class ChunkedBody:
    """Body of one response: a `bridge.server.contents_stream.ResponseBody`.

    Args:
        transport: The connection.
        flow: Waits while the client does not read.
        default_headers: Headers of all responses.
        on_begin: Called once the response has begun.

    Attributes:
        session_id: Id of the session; None in the modern era.
    """

    __slots__ = ("_default_headers", "_flow", "_on_begin", "_transport", "session_id")

    def __init__(
        self,
        transport: CoalescingTransport,
        flow: FlowControl,
        default_headers: list[Header],
        on_begin: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._flow = flow
        self._default_headers = default_headers
        self._on_begin = on_begin
        self.session_id: str | None = None

    def begin(self) -> None:
        """Begin the response."""
        head = response_head(_OK, self._default_headers)
        if self.session_id is not None:
            head += b"mcp-session-id: %b\r\n" % self.session_id.encode()
        self._transport.write(head + b"transfer-encoding: chunked\r\n\r\n")
        self._on_begin()

    async def write(self, part: bytes) -> None:
        """Send a chunk, and wait while the client does not read."""
        self._transport.write_whole(_chunk(part))
        if self._flow.write_paused:
            await self._flow.drain()

    def end(self, answer: PlainResponse, *, keeps_alive: bool) -> None:
        """Send the last chunks, or close the connection of a response that is not complete."""
        if answer.is_rest:
            self._transport.write_whole(_chunk(answer.body) + b"0\r\n\r\n")
        if not (answer.is_rest and keeps_alive):
            self._transport.close()


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


def response_head(status: int, default: list[Header]) -> bytes:
    """Return the beginning of a response, with the headers of all responses."""
    return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % header for header in (*default, CONTENT_TYPE))
