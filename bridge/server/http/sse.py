"""HTTP+SSE transport.

The transport HTTP+SSE of the protocol's first revision, still spoken by many hosts.

The stream at ``/sse`` names the address to which the client posts its messages. The later revision of the protocol
does not define this transport, so the handshake era is pinned: a client that tries the later one falls back.

Answering: one SSE session's requests until each has its answer, and the session's end only after that.

Over SSE a call is posted, and its answer comes over the session's stream: a stream that is closed too early takes
answers with it that were ready. So a session that is to end reads on until nothing is owed, and then sees the end of
its input; what it has written by then goes out in order.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope, EndOfStream
from anyio.abc import AsyncResource, ObjectReceiveStream, ObjectSendStream
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
    Session,
    kept_bytes,
    told_too_much,
)
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
    """ASGI: opens a session, and is its stream until one of both ends it.

    Args:
        server: What is served.
        transport: The sessions, common to streams and messages.
        streams: Where the stream is entered while it is open.
        sessions: Where the session is entered while it is open.
    """

    def __init__(
        self, server: Server[Any], transport: SseServerTransport, streams: OpenStreams, sessions: Sessions
    ) -> None:
        self._server = server
        self._transport = transport
        self._streams = streams
        self._sessions = sessions
        self._answering: set[PendingResponses] = set()

    def end_when_answered(self) -> None:
        """End each session as soon as all of its requests are answered."""
        for answering in tuple(self._answering):
            answering.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one session."""
        owner = caller_key(scope)
        giving_way = self._sessions.room_for(owner, 0)
        if giving_way is None:
            await refuse_session(send, self._sessions)
            return
        for each in giving_way:
            self._sessions.end(each)
        session = Session("", scope.get("user"), {}, owner)
        with observed_session("sse"), self._sessions.over_sse(session):
            await self._streams.run(partial(self._serve, session), scope, receive, send, session)

    async def _serve(self, session: Session, scope: Scope, receive: Receive, send: Send) -> None:
        async with (
            self._server.lifespan(self._server) as state,
            self._transport.connect_sse(scope, receive, send) as (reading, writing),
        ):
            answering = PendingResponses(reading, writing, session)
            self._answering.add(answering)
            try:
                with ending_with_credential(answering.end):
                    await serve_loop(self._server, answering.reading, answering.writing, lifespan_state=state)
            finally:
                self._answering.discard(answering)


class SseMessages:
    """ASGI: takes a message for a session.

    Args:
        transport: The sessions, common to streams and messages.
    """

    def __init__(self, transport: SseServerTransport) -> None:
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what is no message, which the SDK would log as its own failure, and hand on the rest."""
        if scope["method"] != "POST":
            await self._transport.handle_post_message(scope, receive, send)
            return
        if (said := await require_json(scope, send)) is None:
            return
        # The session is the one in the query: nobody here would look whether that of the header exists.
        scope = {**said, "headers": [header for header in said["headers"] if header[0] != b"mcp-session-id"]}
        request: Request = scope[REQUEST]
        if (problem := message_problem(request.message)) is not None:
            code, message = problem
            await send_error(send, 400, message, code)
            return
        if request.message.get("method") in KEPT_METHODS and (kept := kept_bytes(request.body)) > MAX_KEPT_BYTES:
            await send_error(send, 413, told_too_much(kept))
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
            _logger.debug("a message came too late for its session")


class PendingResponses:
    """What one session still owes.

    Args:
        reading: The SDK's stream of the session's messages.
        writing: The SDK's stream of its answers.
        session: The session.
    """

    def __init__(self, reading: Any, writing: Any, session: Session) -> None:
        self._session = session
        self.reading = _Reading(reading, self)
        self.writing = _Writing(writing, self)
        self._owed: Counter[str] = Counter()
        """Number of answers that are owed under each id, which a client may use again."""
        self._is_ending = False
        self._waiting: CancelScope | None = None

    def end(self) -> None:
        """Let the session end as soon as nothing is owed."""
        self._is_ending = True
        self._end_if_done()

    async def received(self, stream: Any) -> Any:
        """The next message.

        Raises:
            EndOfStream: There is none, or none is wanted.
        """
        if self._is_ending and not self._owed:
            raise EndOfStream
        with CancelScope() as self._waiting:
            item = await stream.receive()
            self._note(item)
            return item
        raise EndOfStream

    def answered(self, item: SessionMessage) -> None:
        """A message has been written."""
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
            self._owed[str(message.id)] += 1
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle(str((message.params or {}).get("requestId")))  # which is not answered

    def _keep(self, kept: int) -> None:
        session = self._session
        if session.sessions is not None and not session.sessions.keep(session, kept) and session.end is not None:
            session.end()

    def _settle(self, request: str) -> None:
        self._owed[request] -= 1
        if self._owed[request] <= 0:
            del self._owed[request]

    def _end_if_done(self) -> None:
        if self._is_ending and not self._owed and self._waiting is not None:
            self._waiting.cancel()


class _Ends(AsyncResource):
    """An end of a session that is closed with the SDK's."""

    def __init__(self, stream: Any, answering: PendingResponses) -> None:
        self._stream = stream
        self._answering = answering

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Reading(_Ends, ObjectReceiveStream[Any]):
    """Messages, with the context in which each was posted."""

    @property
    def last_context(self) -> Context | None:
        context: Context | None = self._stream.last_context
        return context

    async def receive(self) -> Any:
        return await self._answering.received(self._stream)


class _Writing(_Ends, ObjectSendStream[SessionMessage]):
    """Answers, each of which settles what is owed."""

    async def send(self, item: SessionMessage) -> None:
        await self._stream.send(item)
        self._answering.answered(item)
