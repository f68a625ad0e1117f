"""Requests of the handshake era over streamable HTTP: in sessions, or without them.

    POST initialize ─> a session         POST ─> a message of it         GET ─> its notifications, or the rest of a call
                                                                         DELETE ─> its end

MCP 2025-11-25, "Transports", Streamable HTTP, "Session Management", "Resumability and Redelivery".
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio

from bridge.protocol.messages import ErrorAnswer, ProtocolError
from bridge.protocol.replay import position_of
from bridge.protocol.versions import LIMIT_EXCEEDED
from bridge.server.exchange import ServedExchange
from bridge.server.http.asgi_calls import serve_stream
from bridge.server.http.calls import HttpCall, SessionCall, answered
from bridge.server.http.event_store import MAX_STREAMS, EventBytes, MemoryEvents
from bridge.server.http.responses import JSON_HEADERS, RefusedError, Response, error_response, refused
from bridge.server.http.sessions import (
    MAX_KEPT_BYTES,
    HttpSession,
    client_data_problem,
    same_credential,
    too_many_sessions,
)
from bridge.server.http.streams import KEEP_ALIVE, event, stream_headers
from bridge.server.limits.accounts import caller_key
from bridge.server.limits.memory import kept_bytes
from bridge.server.notifications import SessionNotifications

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from bridge.protocol.replay import StreamPosition
    from bridge.server.cluster.sessions import ClusterSessions
    from bridge.server.core import ServerCore
    from bridge.server.dispatch import Dispatch
    from bridge.server.http.event_store import SessionEvents
    from bridge.server.http.requests import Request
    from bridge.server.http.routing import Routing
    from bridge.server.http.sessions import Sessions
    from bridge.server.http.streams import OpenStreams
    from bridge.types import Json

    Write = Callable[[bytes], Awaitable[None]]

KEPT_METHODS = frozenset({"initialize", "notifications/initialized"})
"""Messages that a session keeps for as long as it is open."""

_STREAM_SECONDS = 1
"""Seconds after which a client may try again if a session has too many open streams."""


class SessionRequests:
    """Answers the requests of the handshake era.

    Args:
        core: The server.
        dispatch: Its dispatch.
        sessions: The sessions.
        streams: Ends streams at shutdown.
        stateless: True if clients have no sessions.
        shared: The sessions that replicas share; None without replicas.
    """

    def __init__(
        self,
        core: ServerCore,
        dispatch: Dispatch,
        sessions: Sessions,
        streams: OpenStreams,
        *,
        stateless: bool = False,
        shared: ClusterSessions | None = None,
    ) -> None:
        self._core = core
        self._dispatch = dispatch
        self._sessions = sessions
        self._streams = streams
        self._stateless = stateless
        self._shared = shared
        self._event_bytes = EventBytes()
        self.allowed = "POST" if stateless else "GET, POST, DELETE"
        """The HTTP methods."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which sessions are served; may be entered again, with new ones."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sessions.end_unused)
            tasks.start_soon(self._event_bytes.drop_expired)
            try:
                yield
            finally:
                self._sessions.forget_all()
                tasks.cancel_scope.cancel()

    # --- messages -----------------------------------------------------------------------------------------------------

    def begin(self, request: Request, routing: Routing, message: Json) -> Response | HttpCall | None:
        """Answer a message, or prepare its call; None if `begin_shared` has to wait for what replicas share.

        Raises:
            RefusedError: It is refused.
        """
        if self._shared is not None and not self._shared.is_ready(routing.session_id, message):
            return None
        return self._begun(request, routing, message)

    async def begin_shared(self, request: Request, routing: Routing) -> Response | HttpCall:
        """Answer a POST or a DELETE, or prepare its call, once what replicas share has been read or stored.

        Raises:
            RefusedError: It is refused.
        """
        shared, session_id = self._shared, routing.session_id
        assert shared is not None, "only what replicas share has to wait"
        if session_id is None:
            opened = _new_session(request)
            response = self._open(opened, request, request.message)
            if not opened.is_over:
                await shared.store_opened(opened)
            return response
        if (refusal := await shared.prepare(request, session_id)) is not None:
            return refusal
        if request.scope["method"] == "DELETE":
            session = self._session_of(request, routing)
            return await shared.end_everywhere(session) or self._ended(session)
        session = self._session_of(request, routing)
        forwarded = await shared.forward(session, request.message)
        return self._begun(request, routing, request.message) if forwarded is None else forwarded

    def _begun(self, request: Request, routing: Routing, message: Json) -> Response | HttpCall:
        """Answer a message, or prepare its call."""
        method, has_id = message.get("method"), "id" in message
        if method == "initialize" and has_id and routing.session_id is None and not self._stateless:
            return self._open(_new_session(request), request, message)
        session = None if self._stateless else self._session_of(request, routing)
        if session is not None and method in KEPT_METHODS:
            self._keep(session, request)
        version = routing.version if session is None else session.version
        if method is None or not has_id:
            return self._noted(request, session, message, version)
        answer = self._dispatch.handshake(message, session, request, version)
        if not isinstance(answer, ServedExchange):
            return answered(answer, session)
        if session is None:
            return HttpCall(answer, request, self._core.running)
        return SessionCall(answer, request, self._core.running, session)

    def _session_of(self, request: Request, routing: Routing) -> HttpSession:
        """Return the session of a request.

        Raises:
            RefusedError: It names none, or none that its credential has opened.
        """
        if routing.session_id is None:
            raise refused("Bad Request: Missing session ID")
        session = self._sessions.find(routing.session_id)
        if session is None or not same_credential(request.scope, session):
            raise refused("Session not found", 404)
        return session

    def _noted(self, request: Request, session: HttpSession | None, message: Json, version: str) -> Response:
        """Handle a notification or response of a client."""
        method, params = message.get("method"), message.get("params") or {}
        if method is not None:
            self._dispatch.notified(message, request, version)
        if session is None:
            return Response(b"", 202, JSON_HEADERS)
        if method is None:
            session.answered(message)
        elif method == "notifications/cancelled":
            session.cancel(params.get("requestId"))
        elif method == "notifications/initialized":
            session.is_initialized = True
            self._notifications_of(session, request)
        session.use()
        return Response(b"", 202, session.json_headers)

    def _notifications_of(self, session: HttpSession, request: Request) -> SessionNotifications:
        if session.notifications is None:
            session.notifications = SessionNotifications(self._core, session, request.caller)
        return session.notifications

    def _keep(self, session: HttpSession, request: Request) -> None:
        """Count what a session keeps of a further message.

        Raises:
            RefusedError: It is over a limit.
        """
        kept = kept_bytes(request.body, request.scope["headers"])
        if kept > MAX_KEPT_BYTES or not self._sessions.keep(session, kept):
            raise refused(client_data_problem(session.kept + kept), 413)

    def _open(self, session: HttpSession, request: Request, message: Json) -> Response:
        """Open a session, unless it is refused."""
        kept = kept_bytes(request.body, request.scope["headers"])
        if kept > MAX_KEPT_BYTES:
            raise refused(client_data_problem(kept), 413)
        answer = self._dispatch.handshake(message, session, request, "")
        if isinstance(answer, ErrorAnswer):
            return Response(answer)
        assert isinstance(answer, bytes), "the handshake is answered at once"
        if not self._sessions.make_room(session.owner, kept):
            return too_many_sessions(self._sessions)
        session.kept = kept
        if self._shared is None:
            session.events = MemoryEvents(self._event_bytes)
        else:
            self._shared.share(session)
        self._sessions.open(session)
        return answered(answer, session)

    def end(self, request: Request, routing: Routing) -> Response | None:
        """End a session at its client's request; None if `begin_shared` has to, or if there are no sessions.

        Raises:
            RefusedError: There is no such session.
        """
        if self._stateless or self._shared is not None:
            return None
        return self._ended(self._session_of(request, routing))

    def _ended(self, session: HttpSession) -> Response:
        self._sessions.forget(session)
        return Response(b"", 200, session.json_headers)

    # --- streams ------------------------------------------------------------------------------------------------------

    async def stream(self, request: Request, routing: Routing) -> Response | None:
        """Resume the stream of a call, or open that of the session's notifications, whose events are not stored.

        Returns:
            A refusal; None once a stream has ended.

        Raises:
            RefusedError: The request is refused.
        """
        if not routing.accepts_events:
            raise refused("Not Acceptable: Client must accept text/event-stream", 406)
        if self._shared is not None and routing.session_id is not None:
            refusal = await self._shared.prepare(request, routing.session_id)
            if refusal is not None:
                return refusal
        session = self._session_of(request, routing)
        position = position_of(request.headers.get(b"last-event-id", b"").decode("latin-1"))
        if position is not None and session.events is not None:
            await self._resume(request, session, session.events, position)
        else:
            await self._notify(request, session)
        return None

    async def _resume(
        self, request: Request, session: HttpSession, events: SessionEvents, position: StreamPosition
    ) -> None:
        if session.streams >= MAX_STREAMS:
            problem = (
                f"too many open streams: a session has {MAX_STREAMS}; close one, or try again in {_STREAM_SECONDS} s"
            )
            error = ProtocolError(LIMIT_EXCEEDED, problem, {"retryAfterSeconds": _STREAM_SECONDS})
            retry = ((b"retry-after", b"%d" % _STREAM_SECONDS),)
            raise RefusedError(error_response(error, 429, headers=retry))

        async def resume(write: Write) -> None:
            async with aclosing(events.follow(position)) as found:
                async for each in found:
                    await write(KEEP_ALIVE if each is None else event(each[1], each[0]))

        # At shutdown, a client resumes the stream of a shared session on another replica.
        with self._open_stream(session, ends_at_shutdown=self._shared is not None) as ended:
            await serve_stream(request, stream_headers(session), resume, ended)

    async def _notify(self, request: Request, session: HttpSession) -> None:
        if session.has_stream:
            raise refused("Conflict: Only one SSE stream is allowed per session", 409)
        notifications = self._notifications_of(session, request)

        async def notify(write: Write) -> None:
            await notifications.deliver(lambda message: write(event(message)))

        session.has_stream = True
        try:
            with self._open_stream(session) as ended:
                await serve_stream(request, stream_headers(session), notify, ended)
        finally:
            session.has_stream = False

    @contextmanager
    def _open_stream(self, session: HttpSession, *, ends_at_shutdown: bool = True) -> Iterator[anyio.Event]:
        """Context in which a stream of a session is open; yields the event that is set when it is to end."""
        session.streams += 1
        try:
            profile = self._core.profile
            opened = self._streams.opened(session.ends, profile=profile, ends_at_shutdown=ends_at_shutdown)
            with session, opened as ended:
                yield ended
        finally:
            session.streams -= 1


def _new_session(request: Request) -> HttpSession:
    return HttpSession(uuid4().hex, request.scope.get("user"), caller_key(request.scope))
