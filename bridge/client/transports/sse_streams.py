"""Message streams of HTTP with SSE, as a transport of the SDK.

Messages are sent by POST, and one event stream carries all messages of the server. Unlike in the SDK's transport,
messages may be as long as elsewhere, and a refused POST fails only its own request.
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
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter
from pydantic_core import from_json

from bridge.client.transports.limits import LARGE_BYTES, MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

_Incoming = SessionMessage | Exception
HTTP_ERROR_MESSAGE = "Server returned an error response"
"""The SDK's message for an HTTP error without a protocol error."""

_logger = logging.getLogger("bridge.client")


class PostWriter(ObjectSendStream[SessionMessage]):
    """Stream that the SDK writes messages to; sends each as a POST.

    The stream that the SDK reads gets an error for each refused request.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str, incoming: MemoryObjectSendStream[_Incoming]) -> None:
        self._http = http
        self._url = url
        self._incoming = incoming

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        message = item.message
        content = message.model_dump_json(by_alias=True, exclude_unset=True)
        response = await self._http.post(self._url, content=content, headers={"content-type": "application/json"})
        if not response.is_success and isinstance(message, JSONRPCRequest):
            refusal = JSONRPCError(jsonrpc="2.0", id=message.id, error=_error_in(response))
            await self._incoming.send(SessionMessage(refusal))

    async def aclose(self) -> None:
        """Do nothing: the event stream stays open."""


@asynccontextmanager
async def sse_streams(
    url: str, http: httpx2.AsyncClient
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[_Incoming], PostWriter]]:
    """Open the message streams of a server.

    Raises:
        HTTPError: The server cannot be reached, or its response is not an event stream.
        RemoteProtocolError: The stream does not begin with an endpoint of the same origin.
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
    """Read the endpoint for messages, the first event of the stream."""
    async for event in events:
        if event.event == "endpoint":
            endpoint = urljoin(url, event.data)
            if urlsplit(endpoint)[:2] != urlsplit(url)[:2]:
                raise httpx2.RemoteProtocolError(f"its endpoint for messages has another origin: {endpoint}")
            return endpoint
        if event.event == "message":
            break
    raise httpx2.RemoteProtocolError("its event stream does not begin with an endpoint for messages")


async def _read(events: AsyncIterator[httpx2.ServerSentEvent], incoming: MemoryObjectSendStream[_Incoming]) -> None:
    async with incoming:
        try:
            async for event in events:
                if event.event == "message" and event.data:
                    await incoming.send(_message(event.data))
        except httpx2.TransportError as error:
            _logger.debug("the event stream ended: %r", error)


def _message(data: str) -> _Incoming:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValueError as error:
        return error


def _error_in(response: httpx2.Response) -> ErrorData:
    """Protocol error in a refused response, or a general one."""
    try:
        body: Any = from_json(response.content if len(response.content) <= LARGE_BYTES else b"")
        return ErrorData.model_validate(body["error"])
    except (ValueError, LookupError, TypeError):
        return ErrorData(code=INTERNAL_ERROR, message=HTTP_ERROR_MESSAGE)
