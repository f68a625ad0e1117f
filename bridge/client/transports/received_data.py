"""Limits of received data, for all transports: bytes and values of a message, bytes of a response."""

from __future__ import annotations

import gc
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic_core import from_json

from bridge.types import ValueBounds

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Maximum bytes of one message of a server: 64 MiB."""
MAX_DOCUMENT_BYTES = 1024 * 1024
"""Maximum bytes of a response of an authorization server."""
AUTHORITY_SECONDS = 10.0
"""Maximum seconds to connect to an authorization server, and of each read and write."""

LARGE_BYTES = 256 * 1024
"""Messages that are longer take long enough to be handled apart."""
BOUNDS = ValueBounds(containers=500_000, entries=2_000_000, names=250_000)
"""Maximum values in one message. Parsing them blocks the event loop for half a second at most, as measured.

So many different names take 0.2 seconds, other values and a text of 64 MiB as well.
"""

SUCCESS = range(200, 300)
"""HTTP statuses of success."""
RESULT = frozenset(SUCCESS) - {202}
"""HTTP statuses of a response that has a result: of success, except for Accepted."""

_COLLECTED_BYTES = 16 * 1024
"""Maximum bytes that are parsed while the garbage collector may run; a longer text would start it many times."""
_PIECE_BYTES = 64 * 1024


class ResponseTooLongError(httpx2.SSEError):
    """A server's response exceeds the limits."""


@cache
def default_ssl_context() -> ssl.SSLContext:
    """TLS context with the trusted certificates; cached, since reading them is slow."""
    return httpx2.create_ssl_context()


def json_in(text: bytes, *, is_standard: bool = False) -> Any:
    """Parse JSON; ``NaN`` and ``Infinity`` are numbers unless it has to be standard JSON.

    Raises:
        ResponseTooLongError: It has too many values.
        ValueError: It is not JSON.
    """
    parse = from_json if len(text) <= _COLLECTED_BYTES else large_json
    return parse(text, allow_inf_nan=not is_standard)


def large_json(text: bytes, *, allow_inf_nan: bool = True) -> Any:
    """Parse large JSON; the garbage collector is disabled meanwhile.

    A thread would not help: the parser holds the interpreter lock. `BOUNDS` limit its time.

    Raises:
        ResponseTooLongError: It has too many values.
        ValueError: It is not JSON.
    """
    if (excess := BOUNDS.excess(text)) is not None:
        raise ResponseTooLongError(f"its answer has {excess}")
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return from_json(text, allow_inf_nan=allow_inf_nan)
    finally:
        if is_collecting:
            gc.enable()


def authority_client() -> httpx2.AsyncClient:
    """Create an HTTP client for authorization servers and identity providers, with limited responses."""
    return httpx2.AsyncClient(
        timeout=AUTHORITY_SECONDS,
        verify=default_ssl_context(),
        headers={"accept-encoding": "gzip"},
        event_hooks={"response": [limited(MAX_DOCUMENT_BYTES)]},
    )


def limited(max_bytes: int) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Create a response hook that limits the bytes of a body after decompression.

    Event streams of successful responses have no limit; their reader limits each event.
    """

    async def limit(response: httpx2.Response) -> None:
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        if encoding not in {"", "identity", "gzip", "x-gzip"}:
            raise httpx2.RemoteProtocolError(f"its answer has the encoding {encoding!r}, which was not asked for")
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")  # as it is read
        is_endless = is_stream and response.status_code in SUCCESS
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        is_compressed = encoding.endswith("gzip")
        response.stream = _LimitedStream(response.stream, None if is_endless else max_bytes, is_compressed)

    return limit


def media_type(content_type: str) -> str:
    """Media type of a ``Content-Type`` without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def decompressed(content: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decompress a whole body.

    Raises:
        ResponseTooLongError: The result is longer than `max_bytes`.
        httpx2.RemoteProtocolError: The encoding is not gzip.
    """
    encoding = encoding.strip().lower()
    if encoding == "identity":
        return content
    if encoding not in {"gzip", "x-gzip"}:
        raise httpx2.RemoteProtocolError(f"its answer has the encoding {encoding!r}, which was not asked for")
    try:
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise httpx2.RemoteProtocolError(f"its answer is not gzip: {error}") from error
    if len(text) > max_bytes:
        raise ResponseTooLongError(f"its answer is longer than {max_bytes / 2**20:g} MiB")
    return text


class _LimitedStream(httpx2.AsyncByteStream):
    """Decompressed body of limited length."""

    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int | None, is_compressed: bool) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16) if is_compressed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read_bytes, gathered = 0, bytearray()
        async for chunk in self._stream:
            for piece in (chunk,) if self._decompressor is None else self._decompressed(chunk):
                read_bytes += len(piece)
                if self._max_bytes is None:
                    yield piece
                    continue
                if read_bytes > self._max_bytes:
                    raise ResponseTooLongError(f"its answer is longer than {self._max_bytes / 2**20:g} MiB")
                gathered += piece  # pieces may be tiny, and are all kept until the end
                if len(gathered) >= _PIECE_BYTES:
                    yield bytes(gathered)
                    gathered.clear()
        if gathered:
            yield bytes(gathered)

    def _decompressed(self, chunk: bytes) -> Iterator[bytes]:
        assert self._decompressor is not None
        try:
            while chunk and not self._decompressor.eof:
                yield self._decompressor.decompress(chunk, _PIECE_BYTES)
                chunk = self._decompressor.unconsumed_tail
        except zlib.error as error:
            raise httpx2.RemoteProtocolError(f"its answer is not gzip: {error}") from error

    async def aclose(self) -> None:
        await self._stream.aclose()
