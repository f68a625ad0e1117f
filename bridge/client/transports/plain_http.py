"""Plain requests over streamable HTTP, without a general HTTP client.

    send ──> JSON, or events: progress, response ──────────────> result, or the server's error
      ├────> 401, 403 with a challenge, redirect: nothing ran ─> the SDK sends the request again
      ╰────> anything else ────────────────────────────────────> the SDK reads this response

A response in any other form is handed over to the SDK's transport as if that had sent the request, so errors, other
events, resumption and server requests are handled in one place.
"""

from __future__ import annotations

from asyncio import CancelledError, Future
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, NAME_BEARING_METHODS, encode_header_value
from mcp_types import CancelledNotification, CancelledNotificationParams
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json

from bridge.client.transports.channel import CONNECTION_CLOSED
from bridge.client.transports.event_stream import BLANK_LINE, MAX_BLANK_LINE_BYTES, fields_of
from bridge.client.transports.http_client import NEVER_SENT, UNAUTHORIZED
from bridge.client.transports.http_connections import HttpConnections
from bridge.client.transports.limits import (
    LARGE_BYTES,
    MAX_MESSAGE_BYTES,
    SUCCESS,
    decompressed,
    default_ssl_context,
    media_type,
)
from bridge.client.transports.plain_requests import PlainRequests
from bridge.client.transports.plain_responses import (
    BegunRequest,
    is_response,
    no_progress,
    progress_in,
    result_in,
    result_of,
)
from bridge.client.transports.streamed_reads import DRAIN_SECONDS, result_in_long_event, result_in_long_json, stream_of
from bridge.wire.tasks import TASK_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from bridge.client.auth.sign_in import SignIn
    from bridge.client.transports.channel import (
        Channel,
        ChannelEvents,
        ChannelOptions,
        OutgoingRequest,
        RequestSender,
    )
    from bridge.client.transports.http_connections import HttpConnection
    from bridge.client.transports.http_responses import HttpResponse, ResponseStream
    from bridge.client.transports.plain_requests import PlainRequest
    from bridge.types import Json

_MAX_HEADS = 1000
_NAME_KEYS = {**NAME_BEARING_METHODS, **dict.fromkeys(TASK_METHODS, "taskId")}
_OWN_HEADERS = frozenset({"content-length", "transfer-encoding", MCP_METHOD_HEADER.lower(), MCP_NAME_HEADER.lower()})
_SIGNATURE_HEADERS = frozenset({"authorization", "dpop"})
_PARAM_PREFIX = "mcp-param-"
_KEPT_FIELDS = frozenset({b"id", b"retry"})
"""Fields of events from which a broken stream is resumed: the last one of each."""
_PLAIN_FIELDS = _KEPT_FIELDS | {b"data", b"event"}
_NOTHING = object()
_FORBIDDEN = 403
_ACCEPTED = 202
_REDIRECTS = range(300, 400)


class PlainHttp:
    """Sends the plain requests of one session.

    Requests are built from a template: the headers and stamps of a request that the SDK has sent in the same session.

    Args:
        channel: The channel of the session.
        record_status: Called with the status of each response.
        options: The channel's settings.
        url: The server's URL.
        sign_in: Signs the requests; None if nothing has to.
    """

    def __init__(
        self,
        channel: Channel,
        record_status: Callable[[int], None],
        options: ChannelOptions,
        url: str,
        sign_in: SignIn | None,
    ) -> None:
        parts = httpx2.URL(url)
        tls = default_ssl_context() if parts.scheme == "https" else None
        port = parts.port or (80 if tls is None else 443)
        self._connections = HttpConnections(parts.host, port, tls, options.connect_seconds)
        self._channel = channel
        self._record_status = record_status
        self._events: ChannelEvents | None = options.events
        self._sign_in = sign_in
        self._requests = PlainRequests()
        self._common_head = b""  # of all requests; empty until there is a template
        self._client: Client | None = None
        self._heads: dict[tuple[str, str | None], bytes] = {}
        self._is_redirected = False

    def sender(self, client: Client) -> RequestSender:
        """Return the function that sends requests after the handshake."""
        self._client = client
        return self._sending

    def close(self) -> None:
        """Close all connections, and forget the credentials and whoever holds them."""
        self._connections.close()
        self._common_head = b""
        self._sign_in = self._client = self._events = None

    def learn(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Take a request that the SDK sends as the template: the last one of the handshake, or the first after it."""
        version = request.headers.get("mcp-protocol-version", "")
        is_ready = self._client is not None and bool(self._common_head)
        if is_ready or version not in KNOWN_PROTOCOL_VERSIONS:
            return
        if (network_stream := response.extensions.get("network_stream")) is not None:
            self._connections.address = network_stream.get_extra_info("server_addr")
        self._requests.learn(version, from_json(request.content).get("params"))
        left_out = _OWN_HEADERS if self._sign_in is None else _OWN_HEADERS | _SIGNATURE_HEADERS
        lines = [b"POST " + request.url.raw_path + b" HTTP/1.1"]
        for raw_name, value in request.headers.raw:
            name = raw_name.decode("latin-1").lower()
            if name not in left_out and not name.startswith(_PARAM_PREFIX):
                lines.append(raw_name + b": " + value)
        self._common_head = b"\r\n".join((*lines, b""))

    def _sending(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressFnT | None
    ) -> Coroutine[Any, Any, Json | None] | None:
        """Build a request and send it; None if the SDK must send it (`RequestSender`)."""
        begun, outgoing.begun = outgoing.begun, None
        if isinstance(begun, BegunRequest):
            return self._send(begun.request._replace(on_progress=on_progress), b"", outgoing, begun)
        written = self._written(method, params, outgoing, on_progress)
        return None if written is None else self._send(*written, outgoing)

    def begin(self, method: str, params: Json, begun: BegunRequest) -> bool:
        """Send a request without waiting, if a connection is idle (`RequestBeginner`)."""
        outgoing = begun.outgoing
        written = self._written(method, params, outgoing, no_progress)
        connection = None if written is None else self._connections.idle()
        if written is None or connection is None:
            return False
        assert self._events is not None
        begun.request, data = written
        begun.connection, begun.events, begun.read = connection, self._events, self._read
        outgoing.sent, outgoing.plain_id = True, begun.request.id
        connection.send(data, begun)
        return True

    def _read(self, response: HttpResponse, request: PlainRequest) -> Json | None:
        """Read the result in a success in JSON; None for any other response. Raises as `_result_in_json`."""
        status = response.head.status
        if status not in SUCCESS or response.stream is not None:
            return None
        self._record_status(status)
        return _result_in_json(response, request)

    def _written(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressFnT | None
    ) -> tuple[PlainRequest, bytes] | None:
        """Build a request, and its text with the headers; None if the SDK must send it."""
        if not self._common_head or self._is_redirected:
            return None
        signature = {} if self._sign_in is None else self._sign_in.ready_headers()
        name_key = _NAME_KEYS.get(method)
        name = params.get(name_key) if name_key is not None else None
        if signature is None or name in self._channel.mirrored_tools:
            return None
        request = self._requests.write(method, params, outgoing, on_progress)
        if request is None:
            return None
        head = self._heads.get((method, name)) or self._head(method, name)
        if signature:
            head += "".join([f"{key}: {value}\r\n" for key, value in signature.items()]).encode("latin-1")
        data = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(request.text), request.text)
        return request, data

    async def _send(
        self, request: PlainRequest, data: bytes, outgoing: OutgoingRequest, begun: BegunRequest | None = None
    ) -> Json | None:
        outgoing.sent = True
        outgoing.plain_id = request.id
        events, connection, answer = self._place_of(begun)
        try:
            connection = connection or await self._connections.open()
            is_streamed = stream_of(request, outgoing) is not None
            response = await (answer := answer or connection.sent(data, is_streamed=is_streamed))
            status = response.head.status
            if status in SUCCESS:
                outgoing.status = status
                self._record_status(status)
                if response.stream is None:
                    result = _result_in_json(response, request)
                else:
                    result = await _result_in_stream(response, response.stream, request, outgoing)
                if result is not None:
                    return result
        except httpx2.TransportError as error:
            outgoing.failure, outgoing.cut_off, outgoing.sent = error, True, not isinstance(error, NEVER_SENT)
            events.undelivered(error)
            raise MCPError(CONNECTION_CLOSED, "Connection closed") from error
        except CancelledError:
            outgoing.request_id = request.id
            if connection is not None and answer is not None:
                _abandon(connection, answer)
            if request.version not in MODERN_PROTOCOL_VERSIONS:  # there, the closed connection cancels it
                events.start_soon(self._cancel, request.id)
            raise
        outgoing.status = None
        self._is_redirected = response.head.status in _REDIRECTS
        if response.stream is not None and (self._is_redirected or _is_challenge(response)):
            outgoing.plain_id, outgoing.sent = None, False
            response.stream.drain(DRAIN_SECONDS)
        else:
            outgoing.received = _for_sdk(response)
        return None

    def _place_of(
        self, begun: BegunRequest | None
    ) -> tuple[ChannelEvents, HttpConnection | None, Future[HttpResponse] | None]:
        """Return what has the events of a request, its connection or an idle one, and its response if it was sent."""
        if begun is not None:
            return begun.events, begun.connection, begun.response
        assert self._events is not None
        return self._events, self._connections.idle(), None

    async def _cancel(self, request_id: int) -> None:
        """Cancel a request of the handshake era."""
        if self._client is None:
            return
        params = CancelledNotificationParams(request_id=request_id, reason="caller cancelled")
        await self._client.session.send_notification(CancelledNotification(params=params))

    def _head(self, method: str, name: str | None) -> bytes:
        """Request line and headers of a method's requests for one name."""
        lines = self._common_head
        if self._requests.version in MODERN_PROTOCOL_VERSIONS:
            lines += b"%b: %b\r\n" % (MCP_METHOD_HEADER.encode(), method.encode())
            if name is not None:
                lines += b"%b: %b\r\n" % (MCP_NAME_HEADER.encode(), encode_header_value(name).encode())
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        self._heads[method, name] = lines
        return lines


def _abandon(connection: HttpConnection, answer: Future[HttpResponse]) -> None:
    """Close the connection of a cancelled request, unless its response has ended, and another request may use it."""
    if answer.cancelled() or not answer.done():
        connection.abort()
    elif answer.exception() is None and (stream := answer.result().stream) is not None:
        stream.close()


def _result_in_json(response: HttpResponse, request: PlainRequest) -> Json | None:
    """Return the result in the JSON that answers a request; None if the SDK must read it.

    Raises:
        ResponseTooLongError: It is too long, or has too many values.
        httpx2.RemoteProtocolError: It cannot be decompressed.
        MCPError, ValidationError: As `result_in`.
    """
    head, content = response.head, response.content
    if head.status == _ACCEPTED:
        return None
    if encoding := head.content_encoding:
        content = decompressed(content, encoding.decode("latin-1"), MAX_MESSAGE_BYTES)
    return result_in(content, request)


async def _result_in_stream(
    response: HttpResponse, stream: ResponseStream, request: PlainRequest, outgoing: OutgoingRequest
) -> Json | None:
    """Return the result in a long response, or in events; None if the SDK must read it.

    Raises:
        httpx2.TransportError, MCPError, ValidationError: As `_result_in_json` and `_result_in_events`.
        WireError, Exception: As `bridge.client.transports.streamed_reads.StreamedRead`.
    """
    if not response.head.content_type.startswith(b"application/json"):
        return await _result_in_events(response, stream, request, outgoing)
    length = response.head.header(b"content-length")
    result = await result_in_long_json(stream, int(length) if length.isdigit() else None, request, outgoing)
    if not isinstance(result, bytes):
        return result
    response.stream, response.content = None, result
    return _result_in_json(response, request)


async def _result_in_events(
    response: HttpResponse, stream: ResponseStream, request: PlainRequest, outgoing: OutgoingRequest
) -> Json | None:
    """Read an event stream until its response, and return the result.

    Returns:
        None if the SDK must read the stream from the first event that is neither a progress notification nor the
        response.

    Raises:
        httpx2.TransportError: The connection was lost, and the stream cannot be resumed.
        MCPError, ValidationError: As `result_in`.
        WireError, Exception: As `bridge.client.transports.streamed_reads.StreamedRead`.
    """
    head = response.head
    is_stream = media_type(head.content_type.decode("latin-1")) == "text/event-stream"
    if not is_stream or head.status == _ACCEPTED or head.content_encoding:
        return None
    text, searched = bytearray(), 0
    kept: dict[bytes, bytes] = {}
    while len(text) <= LARGE_BYTES:
        try:
            chunk = await stream.next()
        except httpx2.TransportError:
            if b"id" not in kept:
                raise
            break  # the SDK resumes the stream
        if chunk is None:
            break
        text += chunk
        while (blank := BLANK_LINE.search(text, searched)) is not None:
            fields = fields_of(bytes(text[: blank.start()]))
            message: Any = _plain_message(fields)
            if is_response(message, request):
                stream.drain(DRAIN_SECONDS)
                return result_of(message, request)
            if message is not _NOTHING:
                if (progress := progress_in(message, request)) is None:
                    stream.put_back(_resumable(kept, text))
                    return None
                assert request.on_progress is not None
                await request.on_progress(*progress)
            kept |= {name: fields[name] for name in _KEPT_FIELDS & fields.keys()}
            del text[: blank.end()]
            searched = 0
        searched = max(0, len(text) - MAX_BLANK_LINE_BYTES)
    return await _result_in_rest(_resumable(kept, text), bytes(text), stream, request, outgoing)


async def _result_in_rest(
    rest: bytes, text: bytes, stream: ResponseStream, request: PlainRequest, outgoing: OutgoingRequest
) -> Json | None:
    """Return the result in an event that is not complete, if it is passed on; None if the SDK reads the rest."""
    result = await result_in_long_event(text, stream, request, outgoing)
    if result is None:
        stream.put_back(rest)
    return result


def _plain_message(fields: dict[bytes, bytes]) -> Any:
    """Message of an event; `_NOTHING` for an event without one, and None for an event that the SDK must read."""
    if fields.keys() - _PLAIN_FIELDS or fields.get(b"event", b"message") != b"message":
        return None
    if not (data := fields.get(b"data")):
        return _NOTHING
    try:
        return from_json(data)
    except ValueError:
        return None


def _resumable(kept: dict[bytes, bytes], text: bytearray) -> bytes:
    """Text of the rest of an event stream, after an event with what resuming it needs."""
    lines = [name + b": " + value + b"\n" for name, value in kept.items()]
    return b"".join((*lines, b"data:\n\n")) + text if lines else bytes(text)


def _is_challenge(response: HttpResponse) -> bool:
    """True for a request for credentials, or for others: the server ran nothing."""
    head = response.head
    return head.status == UNAUTHORIZED or (head.status == _FORBIDDEN and bool(head.header(b"www-authenticate")))


def _for_sdk(response: HttpResponse) -> httpx2.Response:
    """Response for the SDK's transport."""
    stream = response.stream or httpx2.ByteStream(response.content)
    return httpx2.Response(response.head.status, headers=response.head.headers, stream=stream)
