"""HTTP+SSE transport of the first protocol version, which many clients still use.

The stream at ``/sse`` names the URL to which the client posts its messages. The modern era does not define this
transport, so a client that tries it falls back to the handshake era.

Responses are sent over the session's stream, and closing it too early would lose them. A session that is to end
therefore reads messages until every request is answered, and then sees the end of its input.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope, EndOfStream
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.runner import serve_loop
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic_core import to_json

from bridge.server.auth.identity import ending_with_credential
from bridge.server.http.requests import REQUEST, message_problem, require_json
from bridge.server.http.responses import send_error
from bridge.server.http.session import (
    KEPT_METHODS,
    MAX_KEPT_BYTES,
    SESSION,
    client_data_problem,
    kept_bytes,
    without_header,
)
from bridge.server.http.sessions import Session
from bridge.server.http.streamable import refuse_session
from bridge.server.limits.accounts import caller_key
from bridge.telemetry.switch import observed_session

if TYPE_CHECKING:
    from contextvars import Context

    from mcp.server import Server
    from mcp.server.sse import SseServerTransport
    from starlette.types import Message, Receive, Scope, Send

    from bridge.server.http.requests import Request
    from bridge.server.http.sessions import Sessions
    from bridge.server.http.streams import OpenStreams

_logger = logging.getLogger("bridge.server")


class SseStream:
    """ASGI app that opens a session and serves its stream."""

    def __init__(
        self, server: Server[Any], transport: SseServerTransport, streams: OpenStreams, sessions: Sessions
    ) -> None:
        self._server = server
        self._transport = transport
        self._streams = streams
        self._sessions = sessions
        self._pending: set[PendingResponses] = set()

    def end_when_answered(self) -> None:
        """End each session as soon as all of its requests are answered."""
        for pending in tuple(self._pending):
            pending.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one session."""
        owner = caller_key(scope)
        evicted = self._sessions.make_room(owner, 0)
        if evicted is None:
            await refuse_session(send, self._sessions)
            return
        for each in evicted:
            self._sessions.end(each)
        session = Session("", scope.get("user"), {}, owner)
        with observed_session("sse"), self._sessions.over_sse(session):
            await self._streams.run(partial(self._serve, session), scope, receive, send, session)

    async def _serve(self, session: Session, scope: Scope, receive: Receive, send: Send) -> None:
        async with (
            self._server.lifespan(self._server) as state,
            self._transport.connect_sse(scope, receive, send) as (reading, writing),
        ):
            pending = PendingResponses(reading, writing, session)
            self._pending.add(pending)
            try:
                with ending_with_credential(pending.end):
                    await serve_loop(self._server, pending, pending.writing, lifespan_state=state)
            finally:
                self._pending.discard(pending)


class SseMessages:
    """ASGI app that receives messages of sessions."""

    def __init__(self, transport: SseServerTransport) -> None:
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse an invalid message, which the SDK would log as its own failure; pass others to the SDK."""
        if scope["method"] != "POST":
            await self._transport.handle_post_message(scope, receive, send)
            return
        if (json_scope := await require_json(scope, send)) is None:
            return
        # The query names the session; the header is removed because nothing would verify it.
        scope = without_header(json_scope, b"mcp-session-id")
        request: Request = scope[REQUEST]
        if (problem := message_problem(request.message)) is not None:
            code, message = problem
            await send_error(send, 400, message, code)
            return
        if request.message.get("method") in KEPT_METHODS and (kept := kept_bytes(request.body)) > MAX_KEPT_BYTES:
            await send_error(send, 413, client_data_problem(kept))
            return
        is_answered = False

        async def watch(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._transport.handle_post_message(scope, receive, watch)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            if not is_answered:
                raise
            # The session ended after its message was accepted.
            _logger.debug("a message arrived after its session had ended")


class PendingResponses(ObjectReceiveStream[Any]):
    """The SDK's stream of a session's messages, which ends once it is to end, and each request has a response.

    Args:
        reading: The SDK's stream of the session's messages.
        writing: The SDK's stream of its responses; see `writing`.
        session: The session.
    """

    def __init__(self, reading: Any, writing: Any, session: Session) -> None:
        self._reading = reading
        self._session = session
        self.writing = _Writing(writing, self)
        """Stream of the responses, each of which settles its request."""
        self._unanswered: Counter[str] = Counter()
        """Number of unanswered requests by id, since a client may reuse an id."""
        self._is_ending = False
        self._waiting: CancelScope | None = None

    @property
    def last_context(self) -> Context | None:
        """Context of the POST of the latest message."""
        context: Context | None = self._reading.last_context
        return context

    def end(self) -> None:
        """End the session as soon as every request is answered."""
        self._is_ending = True
        self._end_if_done()

    async def receive(self) -> Any:
        """Receive the next message.

        Raises:
            EndOfStream: The input has ended, or the session is to end.
        """
        if self._is_ending and not self._unanswered:
            raise EndOfStream
        with CancelScope() as self._waiting:
            item = await self._reading.receive()
            if self._session.is_over:  # while its stream waits for a client that does not read
                raise EndOfStream
            self._note(item)
            return item
        raise EndOfStream

    async def aclose(self) -> None:
        """Close the SDK's stream."""
        await self._reading.aclose()

    def written(self, item: SessionMessage) -> None:
        """Note that a message no longer waits to be written."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._session.wrote(item.message.id)

    def answered(self, item: SessionMessage) -> None:
        """Note that a message was sent."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._settle(str(item.message.id))
            self._end_if_done()

    def _note(self, item: Any) -> None:
        message = getattr(item, "message", None)
        metadata = getattr(item, "metadata", None)
        if isinstance(metadata, ServerMessageMetadata) and metadata.request_context is not None:
            metadata.request_context.scope[SESSION] = self._session
        if isinstance(message, JSONRPCRequest | JSONRPCNotification) and message.method in KEPT_METHODS:
            self._keep(kept_bytes(to_json(message.params)))
        if isinstance(message, JSONRPCRequest):
            self._unanswered[str(message.id)] += 1
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle(str((message.params or {}).get("requestId")))  # it gets no response

    def _keep(self, kept: int) -> None:
        session = self._session
        if session.sessions is not None and not session.sessions.keep(session, kept) and session.end is not None:
            session.end()

    def _settle(self, request: str) -> None:
        self._unanswered[request] -= 1
        if self._unanswered[request] <= 0:
            del self._unanswered[request]

    def _end_if_done(self) -> None:
        if self._is_ending and not self._unanswered and self._waiting is not None:
            self._waiting.cancel()


class _Writing(ObjectSendStream[SessionMessage]):
    """Messages to the client."""

    def __init__(self, stream: Any, pending: PendingResponses) -> None:
        self._stream = stream
        self._pending = pending

    async def send(self, item: SessionMessage) -> None:
        try:
            await self._stream.send(item)
        finally:
            self._pending.written(item)
        self._pending.answered(item)

    async def aclose(self) -> None:
        await self._stream.aclose()
