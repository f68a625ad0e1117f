"""Large results of ``resources/read`` that a gateway passes on to its caller while they are received.

    response longer than `LARGE_BYTES` ──> not passed on, unusual, or its caller is not sent parts: read whole
                                      ╰──> StreamedRead ──> parts of the contents ──> the caller

A part is only read once the caller has read enough of those before. What is wrong after the first part fails the read,
and its caller gets an incomplete response.
"""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Self

import httpx2

from bridge.client.transports.event_stream import fields_of, rest_of_data
from bridge.client.transports.received_data import BOUNDS, LARGE_BYTES, MAX_MESSAGE_BYTES
from bridge.errors import WireError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import result_in
from bridge.wire.contents_stream import ContentsRewriter, StreamedContents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bridge.client.transports.http_responses import ResponseStream
    from bridge.protocol.peer import PendingRequest
    from bridge.tools.channel import ContentsStream
    from bridge.types import Json

DRAIN_SECONDS = 1.0
"""Seconds that a server may take to end an event stream after its response; then the connection is closed."""

_PART_BYTES = 64 * 1024
_DATA = b"data:"
_FIELDS_BEFORE_DATA = frozenset({b"id", b"retry", b"event"})


class StreamedRead:
    """One result that is passed on; made by `begin`."""

    def __init__(self, request: PendingRequest, stream: ContentsStream, local: Callable[[str], str]) -> None:
        self._request = request
        self._stream = stream
        self._rewriter = ContentsRewriter(local, BOUNDS)
        self._received_bytes = 0
        self._first = b""

    @classmethod
    def begin(cls, first: bytes, length_bytes: int | None, request: PendingRequest) -> Self | None:
        """Begin to pass a result on; None if it has to be read whole.

        Args:
            first: Beginning of the response.
            length_bytes: Length of the response; None if it is unknown.
            request: The request.

        Raises:
            Exception: The caller may not have a result of this length.
        """
        stream: ContentsStream | None = request.stream
        if stream is None or stream.local is None:
            return None
        read = cls(request, stream, stream.local)
        return read if read._has_contents(first) and stream.begin(length_bytes) else None

    def _has_contents(self, first: bytes) -> bool:
        """Return True if a response begins with what is known of a result with contents."""
        try:
            self._first = self._feed(first)
        except WireError:
            return False  # whoever reads it whole says so
        if not self._rewriter.has_begun:
            return False
        message = self._rewriter.begun()
        known = {"jsonrpc": "2.0", "id": self._request.id, **message}
        is_response = known["jsonrpc"] == "2.0" and str(known["id"]) == str(self._request.id) and "error" not in known
        return is_response and known["result"].get("resultType", "complete") == "complete"

    async def run(self, parts: AsyncIterator[bytes]) -> StreamedContents:
        """Pass the contents on; return the result without them.

        Args:
            parts: The rest of the response.

        Raises:
            WireError: The connection to the server was lost, or the response is malformed or too long.
            ValidationError: The result is not valid MCP.
        """
        first, self._first = self._first, b""
        await self._pass_on(first)
        try:
            async for part in parts:
                for start in range(0, len(part), _PART_BYTES):
                    await self._pass_on(self._feed(part[start : start + _PART_BYTES]))
                    await sleep(0)  # others run in between: small values take long, and all may be there already
        except httpx2.TransportError as error:
            raise WireError(f"it broke off after {self._received_bytes:,} bytes: {error}") from error
        try:
            result = result_in(self._rewriter.finish(), self._request)
        except ProtocolError as error:  # another one might repeat the request
            raise WireError(f"it has contents and an error: {error}") from error
        if result is None:
            raise WireError("it is not the response to its request")
        if result.get("resultType", "complete") != "complete":
            raise WireError("it has contents and another type of result")
        return StreamedContents.of(result)

    async def settle(self, parts: AsyncIterator[bytes]) -> None:
        """Pass the contents on, and settle the request; see `run`."""
        try:
            self._request.settle(await self.run(parts))
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for the result
            self._request.fail(error)

    async def _pass_on(self, text: bytes) -> None:
        with self._request.owner.asking():  # the limit without progress is for the server
            if text:
                await self._stream.write(text)

    def _feed(self, part: bytes) -> bytes:
        self._received_bytes += len(part)
        if self._received_bytes > MAX_MESSAGE_BYTES:
            raise WireError(f"it is longer than {MAX_MESSAGE_BYTES / 2**20:g} MiB")
        return self._rewriter.feed(part)


async def result_in_long_json(
    stream: ResponseStream, length_bytes: int | None, request: PendingRequest
) -> Json | bytes:
    """Pass a long response on while it is received, and return its result; or return its whole text.

    Raises:
        httpx2.TransportError: The connection was lost.
        ResponseTooLongError: The whole text is too long.
        Exception: As by `StreamedRead`.
    """
    try:
        first = await stream.next() or b""
        read = StreamedRead.begin(first, length_bytes, request)
        return await (stream.whole(first, MAX_MESSAGE_BYTES) if read is None else read.run(aiter(stream)))
    except BaseException:
        stream.close()
        raise


async def result_in_long_event(text: bytes, stream: ResponseStream, request: PendingRequest) -> Json | None:
    """Pass the response in a long event on while it is received, and return its result.

    Args:
        text: Beginning of the event.
        stream: The rest of its stream.
        request: The request.

    Returns:
        None, before anything of the stream is read, if the event is short or not passed on.

    Raises:
        Exception: As by `StreamedRead`.
    """
    *lines, last = text.split(b"\n")
    fields = fields_of(b"\n".join(lines))
    is_plain = not fields.keys() - _FIELDS_BEFORE_DATA and fields.get(b"event", b"message") == b"message"
    if len(text) <= LARGE_BYTES or not is_plain or not last.startswith(_DATA) or b"\r" in last:
        return None
    try:
        read = StreamedRead.begin(last.removeprefix(_DATA).removeprefix(b" "), None, request)
        if read is None:
            return None
        result = await read.run(rest_of_data(aiter(stream)))
    except BaseException:
        stream.close()
        raise
    stream.drain(DRAIN_SECONDS)
    return result
