"""HTTP with SSE: messages are POSTs, and one event stream carries all messages of the server. The handshake era only.

MCP 2024-11-05, Transports, "HTTP with SSE".
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2

from bridge.client.auth.errors import SignInError
from bridge.client.transports.event_stream import EventParser
from bridge.client.transports.http_client import UNAUTHORIZED, closed
from bridge.client.transports.http_link import HttpLink, NoEventStreamError
from bridge.client.transports.received_data import MAX_MESSAGE_BYTES, SUCCESS, media_type
from bridge.client.transports.refusals import refusal_of
from bridge.protocol.peer import PeerLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.protocol.peer import PendingRequest

_HEADERS = {"content-type": "application/json"}


class SseLink(HttpLink):
    """HTTP with SSE."""

    kind = "sse"
    is_legacy = True
    _endpoint = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the event stream.

        Raises:
            httpx2.HTTPError: The server cannot be reached, or its response is not an event stream.
            httpx2.RemoteProtocolError: The stream does not begin with an endpoint of the same origin.
        """
        self._client = self._new_client()
        try:
            response = await self._opened()
            try:
                reader, chunks = EventParser(MAX_MESSAGE_BYTES), aiter(response.aiter_bytes())
                waiting = await self._begin(reader, chunks)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, reader, chunks, waiting)
                    yield
                    tasks.cancel_scope.cancel()
            finally:
                await closed(response)
        finally:
            await self._close()

    async def _opened(self) -> httpx2.Response:
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        try:
            response = await self._client.send(self._client.request("GET", headers))
        except SignInError as error:
            self._record_status(UNAUTHORIZED)
            self._events.unauthorized(UNAUTHORIZED, error)
            raise
        if response.status_code not in SUCCESS:
            response = await refusal_of(response)
            if response.status_code == UNAUTHORIZED:
                self._events.unauthorized(UNAUTHORIZED)
            raise httpx2.HTTPStatusError(f"HTTP {response.status_code}", request=response.request, response=response)
        if media_type(response.headers.get("content-type", "")) != "text/event-stream":
            await closed(response)
            raise NoEventStreamError("its answer is not an event stream")
        return response

    async def _begin(self, reader: EventParser, chunks: AsyncIterator[bytes]) -> list[dict[bytes, bytes]]:
        """Read the endpoint for messages, the first event of the stream; return the events received with it."""
        async for chunk in chunks:
            events = list(reader.events(chunk))
            for place, event in enumerate(events):
                if event.get(b"event") == b"endpoint":
                    endpoint = urljoin(self._url, event.get(b"data", b"").decode(errors="replace"))
                    if urlsplit(endpoint)[:2] != urlsplit(self._url)[:2]:
                        raise httpx2.RemoteProtocolError(f"its endpoint for messages has another origin: {endpoint}")
                    self._endpoint = endpoint
                    return events[place + 1 :]
                if event.get(b"data"):
                    raise httpx2.RemoteProtocolError("its event stream does not begin with an endpoint for messages")
        raise httpx2.RemoteProtocolError("its event stream does not begin with an endpoint for messages")

    async def _read(self, reader: EventParser, chunks: AsyncIterator[bytes], waiting: list[dict[bytes, bytes]]) -> None:
        error: Exception = httpx2.RemoteProtocolError("the server ended its stream")
        try:
            for event in waiting:
                self._receive_event(event)
            async for chunk in chunks:
                for event in reader.events(chunk):
                    self._receive_event(event)
                    await self._events.delivered()
        except httpx2.TransportError as lost:
            error = lost
        self._events.stream_lost(error)
        lost_error = PeerLostError("the server ended its stream")
        lost_error.__cause__ = error
        self._events.fail_pending(lost_error)

    def _receive_event(self, event: dict[bytes, bytes]) -> None:
        if event.get(b"event") in {None, b"", b"message"} and (data := event.get(b"data")):
            self._receive(data)

    async def send(self, request: PendingRequest) -> None:
        """Send a request by a POST; its response comes by the event stream."""
        request.is_sent = True
        try:
            response = await self._client.send(self._client.request("POST", _HEADERS, request.text, self._endpoint))
            try:
                if response.status_code in SUCCESS:
                    self._record_status(response.status_code)
                    request.status = response.status_code
                else:
                    await self._refused(request, response)
            finally:
                await closed(response)
        except httpx2.TransportError as error:
            self.lost(request, error)
        except SignInError as error:
            self._not_signed(request, error)

    async def post(self, text: bytes) -> None:
        """Send a message that has no response by a POST."""
        await self._send_in_background(self._client.request("POST", _HEADERS, text, self._endpoint))
