"""Requests of an open HTTP session without the SDK's session and without a general HTTP client.

    template? ──> no: the SDK sends the request
       ╰──> send ──> JSON, or events: progress, response ──────────────> result, or the server's error
              ├──> 401, 403 with a challenge, redirect: nothing ran ───> the SDK sends the request again
              ╰──> anything else ──────────────────────────────────────> the SDK reads this response

It is decided before anything is sent. A response in any other form is handed over to the SDK's transport as if that
had sent the request, so errors, other events, resumption and server requests are handled in one place.
"""

from __future__ import annotations

from asyncio import CancelledError
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
from mcp import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, NAME_BEARING_METHODS, encode_header_value
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    CancelledNotification,
    CancelledNotificationParams,
)
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from opentelemetry.propagate import inject
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider
from pydantic_core import from_json, to_json

from bridge.client.transports.channel import CONNECTION_CLOSED
from bridge.client.transports.http_client import NEVER_SENT
from bridge.client.transports.http_connections import HttpConnections
from bridge.client.transports.limits import (
    default_ssl_context,
)
from bridge.client.transports.plain_responses import (
    DRAIN_SECONDS,
    PlainRequest,
    for_sdk,
    is_challenge,
    parsed_json,
    read_events,
    result_of,
)
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from mcp import Client

    from bridge.client.auth.sign_in import SignIn
    from bridge.client.transports.channel import (
        Channel,
        ChannelEvents,
        ChannelOptions,
        OutgoingRequest,
        ProgressListener,
        RequestSender,
    )
    from bridge.types import Json

_FIRST_ID = 2**30
"""First request ID, above those of the SDK's session, which counts from 1."""
_MAX_HEADS = 1000
_STAMPS = (PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY)
_OWN_HEADERS = frozenset({"content-length", "transfer-encoding", MCP_METHOD_HEADER.lower(), MCP_NAME_HEADER.lower()})
_SIGNATURE_HEADERS = frozenset({"authorization", "dpop"})
_PARAM_PREFIX = "mcp-param-"
_BY_SDK = frozenset({"initialize", "server/discover", "tools/list", "subscriptions/listen"})
_REDIRECTS = range(300, 400)


class _Template(NamedTuple):
    """Common part of a session's requests."""

    head: bytes
    """Request line and headers."""
    stamps: Json
    """Entries of ``_meta`` that each request of the modern era has."""
    version: str
    """Protocol version."""


class PlainRequests:
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
        self._ids = count(_FIRST_ID)
        self._template: _Template | None = None
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
        self._template = self._sign_in = self._client = self._events = None

    def learn(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Take a request that the SDK sends as the template: the last one of the handshake, or the first after it."""
        version = request.headers.get("mcp-protocol-version", "")
        is_ready = self._client is not None and self._template is not None
        if is_ready or version not in KNOWN_PROTOCOL_VERSIONS:
            return
        if (network_stream := response.extensions.get("network_stream")) is not None:
            self._connections.address = network_stream.get_extra_info("server_addr")
        meta = from_json(request.content).get("params", {}).get("_meta", {})
        left_out = _OWN_HEADERS if self._sign_in is None else _OWN_HEADERS | _SIGNATURE_HEADERS
        lines = [b"POST " + request.url.raw_path + b" HTTP/1.1"]
        for raw_name, value in request.headers.raw:
            name = raw_name.decode("latin-1").lower()
            if name not in left_out and not name.startswith(_PARAM_PREFIX):
                lines.append(raw_name + b": " + value)
        stamps = {key: meta[key] for key in _STAMPS if key in meta}
        self._template = _Template(b"\r\n".join((*lines, b"")), stamps, version)

    def _sending(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressListener | None
    ) -> Coroutine[Any, Any, Json | None] | None:
        """Build a request and send it; None if the SDK must send it (`RequestSender`)."""
        template = self._template
        if template is None or method in _BY_SDK or self._is_redirected:
            return None
        signature = {} if self._sign_in is None else self._sign_in.ready_headers()
        if signature is None or _is_traced_by_sdk():
            return None
        name_key = NAME_BEARING_METHODS.get(method)
        name = params.get(name_key) if name_key is not None else None
        if name in self._channel.mirrored_tools:
            return None
        id_ = next(self._ids)
        meta = {**params.get("_meta", {}), **template.stamps}
        if on_progress is not None:
            meta["progressToken"] = id_
        inject(meta)
        if meta:
            params = {**params, "_meta": meta}
        message: Json = {"jsonrpc": "2.0", "id": id_, "method": method}
        if params:
            message["params"] = params
        body = to_json(message)
        signed = "".join([f"{key}: {value}\r\n" for key, value in signature.items()]).encode("latin-1")
        head = self._heads.get((method, name)) or self._head(template, method, name)
        data = b"%b%bcontent-length: %d\r\n\r\n%b" % (head, signed, len(body), body)
        return self._send(PlainRequest(id_, method, template.version, on_progress), data, outgoing)

    async def _send(self, request: PlainRequest, data: bytes, outgoing: OutgoingRequest) -> Json | None:
        events = self._events
        assert events is not None
        outgoing.sent = True
        outgoing.plain_id = request.id
        try:
            response = await self._connections.send(data)
            if response.stream is None:
                message = parsed_json(response, request)
            else:
                message = await read_events(response, response.stream, request)
        except httpx2.TransportError as error:
            outgoing.failure, outgoing.cut_off, outgoing.sent = error, True, not isinstance(error, NEVER_SENT)
            events.undelivered(error)
            raise MCPError(CONNECTION_CLOSED, "Connection closed") from error
        except CancelledError:
            outgoing.request_id = request.id
            if request.version not in MODERN_PROTOCOL_VERSIONS:  # there, the closed connection cancels it
                events.start_soon(self._cancel, request.id)
            raise
        if message is not None:
            outgoing.status = response.status
            self._record_status(response.status)
            return result_of(message, request)
        self._is_redirected = response.status in _REDIRECTS
        if response.stream is not None and (self._is_redirected or is_challenge(response)):
            outgoing.plain_id, outgoing.sent = None, False
            response.stream.drain(DRAIN_SECONDS)
        else:
            outgoing.received = for_sdk(response)
        return None

    async def _cancel(self, request_id: int) -> None:
        """Cancel a request of the handshake era."""
        if self._client is None:
            return
        params = CancelledNotificationParams(request_id=request_id, reason="caller cancelled")
        await self._client.session.send_notification(CancelledNotification(params=params))

    def _head(self, template: _Template, method: str, name: str | None) -> bytes:
        """Request line and headers of a method's requests for one name."""
        lines = template.head
        if template.version in MODERN_PROTOCOL_VERSIONS:
            lines += b"%b: %b\r\n" % (MCP_METHOD_HEADER.encode(), method.encode())
            if name is not None:
                lines += b"%b: %b\r\n" % (MCP_NAME_HEADER.encode(), encode_header_value(name).encode())
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        self._heads[method, name] = lines
        return lines


def _is_traced_by_sdk() -> bool:
    """True if a program traces its requests, and this library does not: the SDK makes the spans."""
    return switch.observer() is None and not isinstance(get_tracer_provider(), ProxyTracerProvider | NoOpTracerProvider)
