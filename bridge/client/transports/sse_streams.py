"""SSE: the older transport over HTTP, as the pair of streams that the SDK's client wants.

Messages go out by POST, and what the server says comes on one stream of events. Beside what the SDK's own does: a
message may be as long as in the other transports, and a request whose POST fails is answered by an error of its own,
while the requests before it go on.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic_core import from_json

from bridge.client.transports.limits import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

_Incoming = SessionMessage | Exception
NO_WORDS = "Server returned an error response"
"""The SDK's message for a refusal without an error of the protocol."""

_logger = logging.getLogger("bridge.client")


class PostWriter(ObjectSendStream[SessionMessage]):
    """The stream that the SDK writes its messages to: each is a POST.

    Args:
        http: Sends them.
        url: Where to.
        incoming: What the SDK reads from; gets an error for each request that is refused.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str, incoming: MemoryObjectSendStream[_Incoming]) -> None:
        self._http = http
        self._url = url
        self._incoming = incoming

    async def send(self, item: SessionMessage) -> None:
        """Send one message."""
        message = item.message
        content = message.model_dump_json(by_alias=True, exclude_unset=True)
        response = await self._http.post(self._url, content=content, headers={"content-type": "application/json"})
        if not response.is_success and isinstance(message, JSONRPCRequest):
            refusal = JSONRPCError(jsonrpc="2.0", id=message.id, error=_error_in(response))
            await self._incoming.send(SessionMessage(refusal))

    async def aclose(self) -> None:
        """Send no more; the stream of events goes on."""


@asynccontextmanager
async def sse_streams(
    url: str, http: httpx2.AsyncClient
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[_Incoming], PostWriter]]:
    """The streams to and from a server over SSE, as a transport of the SDK.

    Args:
        url: The server's stream of events.
        http: Sends the requests; closed with the context.

    Raises:
        HTTPError: The server cannot be reached, or answers no stream of events.
        RemoteProtocolError: Its stream begins with something else than the place to send to, or names another origin.
    """
    incoming, received = anyio.create_memory_object_stream[_Incoming](0)
    async with (
        http,
        incoming,
        received,
        http.sse(url, max_event_size=MAX_MESSAGE_BYTES) as source,
        anyio.create_task_group() as tasks,
    ):
        source.response.raise_for_status()
        events = aiter(source)
        endpoint = await _endpoint(url, events)
        tasks.start_soon(_read, events, incoming)
        yield received, PostWriter(http, endpoint, incoming)
        tasks.cancel_scope.cancel()


async def _endpoint(url: str, events: AsyncIterator[httpx2.ServerSentEvent]) -> str:
    """Where messages are to be sent, which is what a stream begins with."""
    async for event in events:
        if event.event == "endpoint":
            endpoint = urljoin(url, event.data)
            if urlsplit(endpoint)[:2] != urlsplit(url)[:2]:
                raise httpx2.RemoteProtocolError(f"it wants messages sent to another origin: {endpoint}")
            return endpoint
        if event.event == "message":
            break
    raise httpx2.RemoteProtocolError("its stream does not begin with the place to send messages to")


async def _read(events: AsyncIterator[httpx2.ServerSentEvent], incoming: MemoryObjectSendStream[_Incoming]) -> None:
    async with incoming:
        try:
            async for event in events:
                if event.event == "message" and event.data:
                    await incoming.send(_message(event.data))
        except httpx2.TransportError as error:
            _logger.debug("the stream of events ended: %r", error)


def _message(data: str) -> _Incoming:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValueError as error:
        return error


def _error_in(response: httpx2.Response) -> ErrorData:
    """The error of the protocol that a refusal carries, or a general one."""
    try:
        said: Any = from_json(response.content)
        return ErrorData.model_validate(said["error"])
    except (ValueError, LookupError, TypeError):
        return ErrorData(code=INTERNAL_ERROR, message=NO_WORDS)
