"""The official SDK's server as a reference: it reads requests and writes responses; what they are for is done by ours.

Its HTTP, sessions, parsing of messages, checks of envelopes and headers, and writing of results are all the SDK's.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import MCPError
from mcp.server import NotificationOptions
from mcp.server import Server as McpServer
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.caching import CacheHint
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from bridge.protocol.session import Session
from bridge.protocol.versions import MODERN_VERSIONS
from bridge.server.auth.access import EVERYTHING
from bridge.server.core import DISCOVERY_TTL_MS
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.server.http.guards import GuardMiddleware
from bridge.server.http.requests import REQUEST
from bridge.server.lists.listing import CACHE_SCOPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.http.app import BridgeApp
    from bridge.server.server import Server

    Asked = ServerRequestContext[Any, Any]

PARAMS: dict[str, type[types.RequestParams]] = {
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "completion/complete": types.CompleteRequestParams,
    "logging/setLevel": types.SetLevelRequestParams,
    "subscriptions/listen": types.SubscriptionsListenRequestParams,
}


class _Announcing(McpServer[Any]):
    """The SDK's server, which announces changes of its lists."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any
    ) -> InitializationOptions:
        return super().create_initialization_options(notification_options or NotificationOptions(True, True, True))


class _Outlet:
    """Sends what a function says by the SDK."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def send(self, message: bytes, *, is_notification: bool = True) -> None:
        """Send a notification; the calls of the test ask nobody in the handshake era."""
        assert is_notification
        said = json.loads(message)
        params = said["params"]
        if said["method"] == "notifications/progress":
            await self._asked.session.report_progress(params["progress"], params.get("total"), params.get("message"))
        else:
            note = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams(**params))
            await self._asked.session.send_notification(note, related_request_id=self._asked.request_id)

    async def close_stream(self) -> None:
        """Do nothing."""

    def stream_contents(self, _: object) -> None:
        """Do nothing: results are whole."""


class ReferenceServer:
    """The SDK's server, whose methods are those of ours.

    Args:
        server: What it serves.
    """

    def __init__(self, server: Server) -> None:
        self._running = server.running
        self._dispatch = Dispatch(server)
        self._levels: dict[int, Session] = {}

        def header_schema(name: str) -> Mapping[str, Any] | None:
            listed = server.catalog.find(name)
            return None if listed is None or not listed.headers else listed.tool.specification.parameters

        self.server: McpServer[Any] = _Announcing(
            server.name,
            version=server.version,
            instructions=server.own_instructions,
            cache_hints={"server/discover": CacheHint(ttl_ms=DISCOVERY_TTL_MS, scope=CACHE_SCOPE)},
            get_tool_input_schema=header_schema,
        )
        for name, type_ in PARAMS.items():
            self.server.add_request_handler(name, type_, self._answer)

    async def _answer(self, asked: Asked, _: types.RequestParams) -> Any:
        message = {"jsonrpc": "2.0", "id": asked.request_id, "method": asked.method, "params": asked.params or {}}
        origin = LocalOrigin(EVERYTHING) if asked.request is None else asked.request.scope[REQUEST]
        if asked.protocol_version in MODERN_VERSIONS:
            answer = self._dispatch.modern(message, origin)
        else:
            answer = self._dispatch.handshake(message, self._session_of(asked), origin, asked.protocol_version)
        if isinstance(answer, ServedExchange):
            answer.outlet = _Outlet(asked)
            with self._running.entered(origin.account):
                written, _code = await answer.responder.run(answer)
            answer.end()
        else:
            written = answer
        found = json.loads(written)
        if "error" in found:
            raise MCPError(found["error"]["code"], found["error"]["message"], found["error"].get("data"))
        return found["result"]

    def _session_of(self, asked: Asked) -> Session:
        client = asked.session.client_params
        assert client is not None
        session = self._levels.get(id(client))
        if session is None:
            session = self._levels[id(client)] = Session()
            session.restore(client.model_dump(by_alias=True, mode="json", exclude_none=True), asked.protocol_version)
            session.client_params = client  # type: ignore[attr-defined]  # keeps its id its own
        return session


class Reference(ReferenceServer):
    """An ASGI app: the guards of an app of ours, and the SDK's server behind them.

    Args:
        app: The app.
        server: What it serves.
    """

    def __init__(self, app: BridgeApp, server: Server) -> None:
        super().__init__(server)
        self._app = app
        self._manager = StreamableHTTPSessionManager(self.server)
        self._guarded = GuardMiddleware(self._handle, guards=app.guards)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await _Lifespan(self._app, self._manager)(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = scope[REQUEST]
        if request.user is not None:
            scope = {**scope, "user": AuthenticatedUser(request.user.access_token)}
        if scope["path"] in {"/mcp", "/mcp/"}:
            # It has no store of events: what a client would resume is opened anew.
            scope = {**scope, "headers": [each for each in scope["headers"] if each[0] != b"last-event-id"]}
            await self._manager.handle_request(scope, receive, send)
        else:
            await self._app.router(scope, receive, send)


class _Lifespan:
    """Runs the lifespan of an app, and the SDK's sessions in it."""

    def __init__(self, app: BridgeApp, manager: StreamableHTTPSessionManager) -> None:
        self._app = app
        self._manager = manager

    @asynccontextmanager
    async def running(self, _: ASGIApp) -> AsyncIterator[None]:
        async with self._app.router.lifespan_context(self._app), self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the messages of the server."""
        await receive()
        async with self.running(self._app):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
