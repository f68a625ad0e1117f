"""The transport streamable HTTP: one endpoint for both eras of the protocol, on the SDK's session manager."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers

from bridge.server.body import read_body, replaying
from bridge.server.refusal import message_problem, refuse, refuse_other_than_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server import Server
    from starlette.types import Receive, Scope, Send

    from bridge.server.streams import Streams


class StreamableEndpoint:
    """ASGI: the endpoint.

    Args:
        server: What is served.
        streams: Where a stream without a request is entered while it is open.
        max_request_bytes: How long a request's body may be.
    """

    def __init__(self, server: Server[Any], streams: Streams, max_request_bytes: int) -> None:
        self._server = server
        self._streams = streams
        self._max_request_bytes = max_request_bytes
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time during which the endpoint can be used. It can come again, with sessions of its own."""
        manager = StreamableHTTPSessionManager(self._server, max_request_body_size=self._max_request_bytes)
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        manager = self._manager
        assert manager is not None, "the edge lets nothing through before the app runs"
        if scope["method"] == "GET":
            await self._streams.run(manager.handle_request, _opening_anew(scope), receive, send)
            return
        if scope["method"] == "POST" and await refuse_other_than_json(scope, send):
            return
        if scope["method"] == "POST" and _opens_with_handshake(scope):
            body = await read_body(receive, self._max_request_bytes)
            if (problem := message_problem(body)) is not None:
                code, message = problem
                await refuse(send, 400, message, code)
                return
            receive = replaying(body, receive)
        await manager.handle_request(scope, receive, send)


def _opening_anew(scope: Scope) -> Scope:
    """A stream that is resumed opens anew, for events are not kept: asked to replay them, the SDK answers nothing."""
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != b"last-event-id"]}


def _opens_with_handshake(scope: Scope) -> bool:
    """Whether the SDK takes a request for one of the handshake era: it goes by the header alone."""
    version = Headers(scope=scope).get("mcp-protocol-version")
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
