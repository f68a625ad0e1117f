"""A server of this package for programs that are built on the official SDK's low-level ``Server``.

    the SDK's streams ─> `Server.run` ─> StreamConnection     both eras: stdio, SSE, memory
    one request ───────> middleware ───> Dispatch             2026-07-28: a client in this process, the SDK's HTTP

The handshake era over the SDK's streamable HTTP is not served: `bridge.http_app` serves it.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from contextvars import copy_context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio
from mcp import MCPError
from mcp.server import Server as McpServer
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import ServerCapabilities, jsonrpc_message_adapter
from pydantic import BaseModel

from bridge.protocol.versions import INVALID_REQUEST, MODERN_VERSIONS
from bridge.server.auth.identity import access_of_request, caller_of, caller_of_request
from bridge.server.connection import StreamConnection, answered
from bridge.server.lifespans import lifespans_open
from bridge.server.observed import dispatch_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server import NotificationOptions
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.models import InitializationOptions
    from mcp.shared._stream_protocols import ReadStream, WriteStream

    from bridge.server.auth.access import Access
    from bridge.server.results.contents_stream import ResponseContents
    from bridge.server.server import Server
    from bridge.tools.caller import Caller
    from bridge.types import Json

_logger = logging.getLogger("bridge.adapters")

_FLUSH_SECONDS = 1.0
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def sdk_server(server: Server) -> McpServer[Any]:
    """Return a server for `mcp.Client`, and for the streams of the SDK's transports.

    Args:
        server: The server.
    """
    return SdkServer(server)


class SdkServer(McpServer[Any]):
    """The SDK's server, whose requests are answered by a server of this package."""

    def __init__(self, server: Server) -> None:
        super().__init__(
            server.name,
            version=server.version,
            title=server.title,
            instructions=server.own_instructions,
        )
        self._server = server
        self._dispatch = dispatch_of(server)
        # The SDK's own middleware opens spans, which those of the server would repeat.
        self.middleware[:] = [self._answer]

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,  # noqa: ARG002 - the base's
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        extensions: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        """Return the capabilities of the server."""
        if protocol_version in MODERN_VERSIONS:
            return ServerCapabilities.model_validate(self._server.discovery()["capabilities"])
        return ServerCapabilities.model_validate(self._server.capabilities)

    async def run(
        self,
        read_stream: ReadStream[SessionMessage | Exception],
        write_stream: WriteStream[SessionMessage],
        initialization_options: InitializationOptions,  # noqa: ARG002 - the base's
        raise_exceptions: bool = False,  # noqa: ARG002
    ) -> None:
        """Serve one client over two streams, until the first ends; the last two arguments have no effect."""
        outbox = _Outbox(write_stream)
        connection = StreamConnection(self._server, self._dispatch, _Origin(None), outbox.put, outbox.drained)
        async with read_stream, write_stream, anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.deliver)
            try:
                opened = lifespans_open(self._server.features, self._server.lifespan)
                async with self.lifespan(self), opened, connection.running():
                    await _receive(read_stream, connection)
                with anyio.move_on_after(_FLUSH_SECONDS):
                    await outbox.drained()
            finally:
                tasks.cancel_scope.cancel()

    async def _answer(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:  # noqa: ARG002 - all are answered here
        """Answer a request that comes without a stream: a ``ServerMiddleware``."""
        if ctx.request_id is None:
            return None
        if ctx.protocol_version not in MODERN_VERSIONS:
            text = (
                "over the SDK's streamable HTTP, this server has version 2026-07-28 alone; serve it by bridge.http_app"
            )
            raise MCPError(INVALID_REQUEST, text)
        params = dict(ctx.params or {})
        if isinstance(meta := params.get("_meta"), dict):
            # `report_progress` knows whether the client wants it.
            params["_meta"] = {**meta, "progressToken": meta.get("progressToken", ctx.request_id)}
        message = {"jsonrpc": "2.0", "id": ctx.request_id, "method": ctx.method, "params": params}
        exchange = self._dispatch.modern(message, _Origin(ctx.request))
        if isinstance(exchange, bytes):
            return _result(exchange)
        exchange.outlet = _SessionOutlet(ctx)
        try:
            response, _ = await answered(exchange)
        finally:
            exchange.end()
        return _result(response)


def _result(text: bytes) -> Json:
    """Return the result of a response.

    Raises:
        MCPError: It is an error.
    """
    response = json.loads(text)
    if (error := response.get("error")) is not None:
        raise MCPError(error["code"], error["message"], error.get("data"))
    result: Json = response["result"]
    return result


class _Origin:
    """Origin of a request that the SDK's transport has received."""

    account = ""
    headers = in_context = None

    def __init__(self, request: Any) -> None:
        self.transport = "stdio" if request is None else "http"
        self.texts: Mapping[str, str] = _NO_HEADERS if request is None else request.headers
        user = auth_context_var.get()
        self.caller: Caller | None = caller_of_request() if user is None else caller_of(user.access_token)
        self.access: Access = access_of_request()


def _request_of(item: SessionMessage) -> Any:
    """Return the HTTP request of a message; None for other transports."""
    return item.metadata.request_context if isinstance(item.metadata, ServerMessageMetadata) else None


async def _receive(stream: ReadStream[SessionMessage | Exception], connection: StreamConnection) -> None:
    """Handle the messages of a stream until its end."""
    with suppress(anyio.ClosedResourceError):  # by the transport: the end, too
        async for item in stream:
            if isinstance(item, Exception):
                _logger.debug("the transport has received something other than a message: %r", item)
                continue
            message = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            # The sender's context has its credential.
            context = getattr(stream, "last_context", None) or copy_context()
            context.run(_handle, connection, message, _request_of(item))


def _handle(connection: StreamConnection, message: Json, request: Any) -> None:
    connection.receive(message, _Origin(request))


class _Outbox:
    """Messages to a client, in order; those to one that has gone are dropped."""

    def __init__(self, stream: WriteStream[SessionMessage]) -> None:
        self._stream = stream
        self._waiting: list[bytes] = []
        self._put = anyio.Event()
        self._sent = anyio.Event()
        self._is_broken = False

    def put(self, message: bytes) -> None:
        """Send a message later."""
        if not self._is_broken:
            self._waiting.append(message)
            self._put.set()

    async def drained(self) -> None:
        """Wait until all messages are sent."""
        while self._waiting:
            await self._sent.wait()

    async def deliver(self) -> None:
        """Send the messages as they come."""
        try:
            while True:
                while self._waiting:
                    await self._stream.send(SessionMessage(_typed(self._waiting[0])))
                    del self._waiting[0]
                    self._sent.set()
                    self._sent = anyio.Event()
                await self._put.wait()
                self._put = anyio.Event()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._is_broken = True
            self._waiting.clear()
            self._sent.set()


def _typed(message: bytes) -> Any:
    try:
        return jsonrpc_message_adapter.validate_json(message, by_name=False)
    except ValueError:  # a lone surrogate
        return jsonrpc_message_adapter.validate_python(json.loads(message), by_name=False)


class _Notification(BaseModel):
    method: str
    params: dict[str, Any] | None = None


class _SessionOutlet:
    """Messages of a request without a stream."""

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        self._session = ctx.session
        self._id = ctx.request_id

    async def send(self, message: bytes, *, is_notification: bool = True) -> None:  # noqa: ARG002 - all are in this era
        """Send a notification."""
        wire = json.loads(message)
        if wire["method"] == "notifications/progress":
            params = wire["params"]
            await self._session.report_progress(params["progress"], params.get("total"), params.get("message"))
        else:
            notification: Any = _Notification.model_validate(wire)
            await self._session.send_notification(notification, related_request_id=self._id)

    async def close_stream(self) -> None:
        """Do nothing: the stream is the SDK's."""

    def stream_contents(self, contents: ResponseContents) -> None:
        """Do nothing: the result is sent whole."""
