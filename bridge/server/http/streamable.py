"""Streamable HTTP transport: one endpoint for both eras of the protocol, on the SDK's session manager."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.responses import Response

from bridge.protocol.messages import client_name
from bridge.protocol.versions import HANDSHAKE_VERSIONS, LIMIT_EXCEEDED, PARSE_ERROR
from bridge.server.http.event_store import (
    MAX_STREAMS,
    RETRY_MILLISECONDS,
    CurrentEvents,
    EventBytes,
    MemoryEvents,
    position_of,
)
from bridge.server.http.requests import REQUEST, is_utf8, message_problem, require_json
from bridge.server.http.responses import send_error
from bridge.server.http.session import (
    KEPT_METHODS,
    MAX_KEPT_BYTES,
    SESSION,
    client_data_problem,
    kept_bytes,
    request_in_session,
    without_header,
)
from bridge.server.http.sessions import Session, same_credential
from bridge.server.limits.accounts import caller_key
from bridge.wire.tasks import without_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bridge.server.cluster.sessions import ClusterSessions
    from bridge.server.http.requests import Request
    from bridge.server.http.sessions import Sessions
    from bridge.server.http.streams import OpenStreams
    from bridge.server.sdk_server import SdkServer

_logger = logging.getLogger("bridge.server")

_RETRY_SECONDS = 10
"""Seconds after which a client may try again if too many sessions are open."""
_STREAM_SECONDS = 1
"""The same, if a session has too many open streams."""


class StreamableEndpoint:
    """ASGI app of the endpoint."""

    def __init__(
        self,
        server: SdkServer,
        streams: OpenStreams,
        sessions: Sessions,
        max_request_bytes: int,
        *,
        stateless: bool = False,
        shared: ClusterSessions | None = None,
    ) -> None:
        self._server = server
        self._stateless = server.is_stateless = stateless
        self._streams = streams
        self._sessions = sessions
        self._max_request_bytes = max_request_bytes
        self._manager: StreamableHTTPSessionManager | None = None
        self._shared = shared
        self._current_events, self._event_bytes = CurrentEvents(), EventBytes()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which the endpoint can be used; may be entered again, with new sessions."""
        # The manager's idle timer cannot be used: requests on the fast path do not reach the manager.
        manager = StreamableHTTPSessionManager(
            self._server,
            event_store=self._current_events,
            retry_interval=RETRY_MILLISECONDS,
            session_idle_timeout=None,
            max_request_body_size=self._max_request_bytes,
            max_sessions=None,  # `Sessions` limits them
            stateless=self._stateless,
        )
        async with manager.run(), anyio.create_task_group() as tasks:
            self._manager = manager
            tasks.start_soon(self._sessions.end_unused, self._delete)
            tasks.start_soon(self._event_bytes.drop_expired)
            sessions, end_over_sse = self._sessions, self._sessions.end
            sessions.end = lambda session: tasks.start_soon(self._end, session)
            try:
                yield
            finally:
                sessions.end = end_over_sse
                self._manager = None
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        manager = self._manager
        assert manager is not None, "the host and origin guard refuses requests before the app runs"
        if self._stateless and _opens_with_handshake(scope):
            if scope["method"] != "POST":
                await Response("this server keeps no sessions\n", 405, {"allow": "POST"})(scope, receive, send)
                return
            scope = without_header(scope, b"mcp-session-id")  # nothing would verify it
        shared = self._shared
        if shared is not None and _opens_with_handshake(scope) and not await shared.prepare(scope, send):
            return
        if scope["method"] == "POST":
            json_scope = await require_json(scope, send)
            if json_scope is None:
                return
            scope, request = json_scope, scope[REQUEST]
            if _opens_with_handshake(scope):
                if (problem := message_problem(request.message)) is not None:
                    code, message = problem
                    await send_error(send, 400, message, code)
                    return
                await self._handshake_post(scope, request, receive, send)
            elif is_utf8(request.body):
                await manager.handle_request(scope, receive, send)
            else:
                await send_error(send, 400, "the body is not JSON in UTF-8", PARSE_ERROR)
        elif scope["method"] == "GET":
            await self._in_session(self._open_stream, scope, receive, send)
        else:
            await self._in_session(self._handle, scope, receive, send)

    async def _open_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Resume the stream of a call, or open that of the session's notifications, whose events are not stored."""
        session = scope.get(SESSION)
        position = position_of(Headers(scope=scope).get("last-event-id", ""))
        if session is None or position is None:
            scope = without_header(scope, b"last-event-id")
            await self._streams.run(self._handle, scope, receive, send)
        elif session.streams > MAX_STREAMS:
            problem = (
                f"too many open streams: a session has {MAX_STREAMS}; close one, or try again in {_STREAM_SECONDS} s"
            )
            await send_error(send, 429, problem, LIMIT_EXCEEDED, retry_after_seconds=_STREAM_SECONDS)
        elif self._shared is not None:  # at shutdown, its client resumes it on another replica
            await self._streams.run(self._handle, scope, receive, send)
        else:
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the shared sessions or to the SDK's manager."""
        assert self._manager is not None
        manager = self._shared if self._shared is not None and _opens_with_handshake(scope) else self._manager
        await manager.handle_request(scope, receive, send)

    async def _handshake_post(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        message, body = request.message, request.body
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        session_id = Headers(scope=scope).get("mcp-session-id")
        kept = 0
        if method in KEPT_METHODS and not self._stateless:
            kept = kept_bytes(body, scope["headers"])
            if kept > MAX_KEPT_BYTES:
                await send_error(send, 413, client_data_problem(kept))
                return
        if session_id is None and not self._stateless:
            await self._open_session(scope, params, kept, receive, send)
            return
        session = self._sessions.find(session_id or "")
        if session is not None and same_credential(scope, session):
            # The SDK has one stream for each id: that of the earlier request would never end.
            if method is not None and (taken := _id_problem(request, session)) is not None:
                await send_error(send, 400, taken)
                return
            if kept and not self._sessions.keep(session, kept):
                await send_error(send, 413, client_data_problem(session.kept + kept))
                return
            if method == "initialize":
                # Clients do not initialize twice; if one does, leave the session to the SDK.
                session.version = None
            elif method == "notifications/cancelled":
                session.cancel(params.get("requestId"))
            if self._shared is not None and await self._shared.forward(session, message, body, send):
                return
        await self._in_session(self._handle, scope, receive, send, message.get("id") if method is not None else None)

    async def _open_session(
        self, scope: Scope, params: Mapping[str, Any], kept: int, receive: Receive, send: Send
    ) -> None:
        """Pass a request without a session to the SDK, which opens a session for each."""
        sessions, owner = self._sessions, caller_key(scope)
        evicted = sessions.make_room(owner, kept)
        if evicted is None:
            await refuse_session(send, sessions)
            return
        events = None if self._shared is not None else MemoryEvents(self._event_bytes)
        with sessions.opening(owner) as settle, self._current_events.of(events):
            for each in evicted:
                await self._end(each)

            def opened(new_id: str) -> Session:
                session = Session(new_id, scope.get("user"), without_tasks(params.get("capabilities")), owner)
                session.client, session.kept = client_name(params), kept
                if events is not None:
                    session.attach(events)
                sessions.open(session)
                settle()
                return session

            established = None if self._shared is None else partial(self._shared.opened, params=params)
            await self._handle(scope, receive, initialize_response(send, opened, established))

    async def _in_session(
        self, handle: ASGIApp, scope: Scope, receive: Receive, send: Send, request: object = None
    ) -> None:
        """Answer a request in its session, if it has one, and track the session's state."""
        session = self._sessions.find(Headers(scope=scope).get("mcp-session-id", ""))
        if session is None or not same_credential(scope, session):
            await handle(scope, receive, send)
            return

        is_sent = False
        begun: anyio.Event | None = None

        async def watch(message: Message) -> None:
            nonlocal is_sent
            status = message.get("status")
            if status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.OK and scope["method"] == "DELETE"):
                self._sessions.forget(session.id)
            await send(message)
            if begun is not None and message["type"] == "http.response.body":
                begun.set()
                is_sent = not message.get("more_body", False)

        # A call may outlive its HTTP request; its handler enters the session, too.
        is_stream = scope["method"] == "GET"
        session.streams += is_stream
        try:
            use = session if request is None else session.posting(request)
            with use as begun, self._current_events.of(session.events):
                await handle({**scope, SESSION: session}, receive, watch)
        finally:
            session.streams -= is_stream
        if is_sent and session.events is not None:
            await session.events.delivered(str(request))

    async def _end(self, session: Session) -> None:
        """End a forgotten session."""
        if session.end is not None:
            session.end()
        elif self._shared is not None:
            await self._shared.drop(session.id)
        else:
            await self._delete(session)

    async def _delete(self, session: Session) -> None:
        """End a session as its client would; of a shared session, only the part in this replica."""
        if self._shared is not None:
            await self._shared.end_here(session.id)
            return
        assert self._manager is not None
        await request_in_session(self._manager.handle_request, "DELETE", session.id, user=session.user)


def initialize_response(
    send: Send, opened: Callable[[str], Session], established: Callable[[Session], Awaitable[None]] | None
) -> Send:
    """Return an ASGI ``send`` that reads the session's id and version from the response to ``initialize``.

    Args:
        send: Sends the response.
        opened: Called with the session's id; returns the session, whose version is set.
        established: Awaited once the version is set, before it is sent.
    """
    session: Session | None = None
    body = b""

    async def read_and_send(message: Message) -> None:
        nonlocal session, body
        if message["type"] == "http.response.start":
            session_id = Headers(raw=message["headers"]).get("mcp-session-id")
            if message["status"] == HTTPStatus.OK and session_id is not None:
                session = opened(session_id)
        elif session is not None and session.version is None:
            body += message.get("body", b"")
            session.version = _version_in(body)
            if session.version is not None and established is not None:
                await established(session)
        await send(message)

    return read_and_send


def _version_in(body: bytes) -> str | None:
    # The response is one message, as JSON or as the only data line of a server-sent event.
    for line in body.splitlines():
        try:
            version = from_json(line.removeprefix(b"data: "))["result"]["protocolVersion"]
        except (ValueError, KeyError, TypeError):
            continue
        return version if version in HANDSHAKE_VERSIONS else None
    return None


def _id_problem(request: Request, session: Session) -> str | None:
    """Return the error message for an id that is in use; None for others, and for a request that was handed over."""
    has_id = "id" in request.message and request.channel is None
    return session.id_problem(request.message["id"]) if has_id else None


async def refuse_session(send: Send, sessions: Sessions) -> None:
    """Refuse a session with 503, because too many are open."""
    problem = f"too many open sessions: the server has {sessions.max_sessions}; try again later"
    await send_error(send, 503, problem, LIMIT_EXCEEDED, retry_after_seconds=_RETRY_SECONDS, limit="--max-sessions")


def _opens_with_handshake(scope: Scope) -> bool:
    """True if the SDK treats a request as one of the handshake era, which it judges by the header alone."""
    version = Headers(scope=scope).get("mcp-protocol-version")
    return version is None or version in HANDSHAKE_VERSIONS
