"""HTTP+SSE transport of the first protocol version, which many clients still use.

The stream at ``/sse`` names the URL to which the client posts its messages. The modern era does not define this
transport, so a client that tries it falls back to the handshake era.

Responses are sent over the session's stream, and closing it too early would lose them. A session that is to end
therefore ends once every request is answered.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING
from urllib.parse import parse_qs
from uuid import uuid4

import anyio

from bridge.server.connection import StreamConnection
from bridge.server.http.asgi_calls import serve_stream
from bridge.server.http.requests import MESSAGES_PATH, REQUEST, RequestContext, message_problem
from bridge.server.http.responses import RefusedError, Response, error_response, refused, send_response
from bridge.server.http.routing import Routing
from bridge.server.http.session_requests import KEPT_METHODS
from bridge.server.http.sessions import (
    MAX_KEPT_BYTES,
    HttpSession,
    client_data_problem,
    same_credential,
    too_many_sessions,
)
from bridge.server.http.streams import OpenStreams, event, stream_headers
from bridge.server.limits.accounts import caller_key
from bridge.server.limits.memory import kept_bytes
from bridge.telemetry.current import observed_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Receive, Scope, Send

    from bridge.server.auth.access import Restricted
    from bridge.server.core import ServerCore
    from bridge.server.dispatch import Dispatch
    from bridge.server.http.requests import Request
    from bridge.server.http.sessions import Sessions

_ID = re.compile("[0-9a-f]{32}")
_ACCEPTED = Response(b"Accepted", 202, ((b"content-type", b"text/plain; charset=utf-8"),))
_NOTHING = nullcontext()
_FULL_BYTES = 64 * 1024
"""Length of the messages that wait to be sent from which on notifications and questions wait."""


class SseSessions:
    """The open sessions of one app."""

    def __init__(self) -> None:
        self._open: dict[str, _SseSession] = {}
        self._streams = OpenStreams()

    def end_when_answered(self) -> None:
        """End each session as soon as all of its requests are answered."""
        for each in tuple(self._open.values()):
            each.end_when_answered()

    def end(self) -> None:
        """End all sessions."""
        self._streams.end()

    def find(self, session_id: str) -> _SseSession | None:
        """Return the session with an id; None if there is none."""
        return self._open.get(session_id)

    async def serve(self, opened: _SseSession, request: Request, profile: Restricted | None) -> None:
        """Serve the stream of a session of a profile, until it ends."""
        self._open[opened.session.id] = opened
        try:
            with self._streams.opened(opened.session.ends, opened.end_when_answered, profile=profile) as ended:
                opened.ended = ended
                await serve_stream(request, stream_headers(None), opened.produce, ended)
        finally:
            del self._open[opened.session.id]


class SseStream:
    """ASGI app that opens a session and serves its stream."""

    def __init__(self, core: ServerCore, dispatch: Dispatch, sessions: Sessions, opened: SseSessions) -> None:
        self._core = core
        self._dispatch = dispatch
        self._sessions = sessions
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one session."""
        request: Request = scope[REQUEST]
        request.receive, request.send = receive, send
        owner = caller_key(scope)
        if not self._sessions.make_room(owner, 0):
            await send_response(send, too_many_sessions(self._sessions))
            return
        session = HttpSession(uuid4().hex, scope.get("user"), owner)
        path = f"{scope.get('root_path', '')}{MESSAGES_PATH}?session_id={session.id}"
        with observed_session("sse"), self._sessions.over_sse(session):
            served = _SseSession(self._core, self._dispatch, session, request, path)
            await self._opened.serve(served, request, self._core.profile)


class _SseSession:
    """One session: its connection, and the messages that wait to be sent."""

    def __init__(self, core: ServerCore, dispatch: Dispatch, session: HttpSession, request: Request, path: str) -> None:
        self.session = session
        self.ended = anyio.Event()
        request.transport = "sse"
        self.connection = StreamConnection(
            core, dispatch, request, self._put, self._drained, is_modern_served=False, session=session
        )
        self._path = path
        self._waiting: deque[tuple[bytes, object]] = deque()
        self._waiting_bytes = 0
        self._changed: anyio.Event | None = None
        self._is_ending = False

    def end_when_answered(self) -> None:
        """End the session as soon as every request is answered."""
        self._is_ending = True
        self._note_change()

    def receive(self, request: Request) -> None:
        """Handle a message that was posted."""
        sessions = self.session.sessions
        assert sessions is not None, "it is open"
        request.transport = "sse"
        counted = request.counted_bytes
        body = sessions.bodies.taking(request.account, counted) if counted else _NOTHING  # the guard has found room
        self.connection.receive(request.message, request, body)
        if self._is_ending:
            self._note_change()

    async def produce(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write the URL for messages, then the messages of the server."""
        try:
            await self._produce(write)
        finally:
            self._waiting.clear()  # the last part of the response may wait for the client

    async def _produce(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        await write(b"event: endpoint\ndata: %b\n\n" % self._path.encode())
        async with self.connection.running():
            while True:
                while self._waiting:
                    message, key = self._waiting.popleft()
                    try:
                        await write(event(message))
                    finally:
                        self._waiting_bytes -= len(message)
                        if self.session.sessions is not None:
                            self.session.sessions.sent(self.session, key)
                    self._note_change()
                if self._is_ending and not self.connection.unanswered:
                    break
                await self._change()
            self.ended.set()

    def _put(self, message: bytes) -> None:
        if self.ended.is_set():
            return
        key = object()
        self._waiting.append((message, key))
        self._waiting_bytes += len(message)
        if self.session.sessions is not None:
            self.session.sessions.answered(self.session, key, len(message))
        self._note_change()

    async def _drained(self) -> None:
        while self._waiting_bytes > _FULL_BYTES:
            await self._change()

    async def _change(self) -> None:
        self._changed = self._changed or anyio.Event()
        await self._changed.wait()

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


class SseMessages:
    """Receives the messages of sessions: an ASGI app, and a `bridge.server.http.guards.MessageEndpoint`."""

    def __init__(self, opened: SseSessions, paths: Iterable[str]) -> None:
        self._opened = opened
        self._paths = frozenset(paths)

    def serves(self, scope: Scope) -> bool:
        """Return True if the path of a request is that of messages."""
        path: str = scope["path"]
        return path.removeprefix(scope.get("root_path", "")) in self._paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive a message."""
        request: Request = scope[REQUEST]
        request.receive, request.send = receive, send
        await self.answer(request)

    async def answer(self, request: Request) -> None:
        """Receive a message."""
        await send_response(request.send, self._received(request))

    def begin(self, request: Request) -> Response:
        """Receive a message, whose call starts at once."""
        with RequestContext(request):
            return self._received(request)

    def _received(self, request: Request) -> Response:
        try:
            opened = self._session_of(request)
            if request.message.get("method") in KEPT_METHODS:
                _keep(opened.session, request)
        except RefusedError as refusal:
            return refusal.response
        opened.receive(request)
        return _ACCEPTED

    def _session_of(self, request: Request) -> _SseSession:
        """Check a request, and return its session.

        Raises:
            RefusedError: It is not valid, or its session is not open.
        """
        scope, head = request.scope, request.head
        if scope["method"] != "POST":
            raise refused("Method Not Allowed", 405, headers=((b"allow", b"POST"),))
        head.routing = head.routing or Routing.of(head.headers, scope["headers"])
        if not head.routing.has_json:
            raise refused("the content type of a message is application/json", 415)
        # The query names the session; nothing would verify the header.
        named = parse_qs(scope["query_string"].decode("latin-1")).get("session_id", [""])[0].replace("-", "")
        if not named:
            raise refused("session_id is required")
        if _ID.fullmatch(named) is None:
            raise refused("Invalid session ID")
        if (problem := message_problem(request.message)) is not None:
            raise RefusedError(error_response(problem))
        opened = self._opened.find(named)
        if opened is None or opened.session.is_over or not same_credential(scope, opened.session):
            raise refused("Could not find session", 404)
        return opened


def _keep(session: HttpSession, request: Request) -> None:
    """Count what a session keeps of a message.

    Raises:
        RefusedError: It is over a limit.
    """
    kept = kept_bytes(request.body)
    assert session.sessions is not None, "it is not over"
    if kept > MAX_KEPT_BYTES or not session.sessions.keep(session, kept):
        raise refused(client_data_problem(session.kept + kept), 413)
