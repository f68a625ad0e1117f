"""HTTP over a raw socket: requests are sent unchanged, and responses parsed by h11."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import h11

from tests.server.http_mutations import Draft, Sessions, handshake, initialize

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from anyio.abc import SocketStream


class Connection:
    """One request and its response, over a socket of their own."""

    def __init__(self, stream: SocketStream, method: str) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._http.send(h11.EndOfMessage())

    async def head(self) -> h11.Response | None:
        """Return the head of the response; None if the server closed the connection without one."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.ConnectionClosed):
                return None

    async def body(self) -> bytes:
        """Return the whole body of the response."""
        return b"".join([part async for part in self.parts()])

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body of the response as it arrives."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(await self._stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                if self._http.their_state is h11.SEND_RESPONSE:
                    return h11.ConnectionClosed()
                self._http.receive_data(b"")
        return event


@asynccontextmanager
async def sent(port: int, raw: bytes, method: str = "POST", *, is_whole: bool = True) -> AsyncIterator[Connection]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        try:
            await stream.send(raw)
            if not is_whole:
                await stream.send_eof()
        except (anyio.BrokenResourceError, OSError):
            pass  # the server may have responded and closed the connection before it read everything
        yield Connection(stream, method)


async def event_of(connection: Connection, pattern: bytes) -> bytes:
    """Search a pattern in the events of a stream, which stays open."""
    text = b""
    async for part in connection.parts():
        text += part
        if found := re.search(pattern, text):
            return found[1]
    raise AssertionError(f"the stream ended without {pattern!r}: {text[-500:]!r}")


async def open_session(port: int, headers: Iterable[tuple[str, bytes]] = ()) -> str:
    opening = initialize()
    opening.headers.extend(headers)
    async with sent(port, opening.raw) as connection:
        head = await connection.head()
        assert head is not None
        session_id = dict(head.headers)[b"mcp-session-id"].decode()
        await connection.body()
    opened = handshake(Sessions(session_id, "", ""), {"jsonrpc": "2.0", "method": "notifications/initialized"})
    opened.headers.extend(headers)
    await taken(port, opened)
    return session_id


async def taken(port: int, draft: Draft) -> bytes:
    """Send a valid request; return the body of the response."""
    async with sent(port, draft.raw, draft.method) as connection:
        head = await connection.head()
        assert head is not None
        assert 200 <= head.status_code < 300
        return await connection.body()
