"""The transport HTTP+SSE of the protocol's first revision, still spoken by many hosts.

The stream at ``/sse`` names the address to which the client posts its messages. The later revision of the protocol
does not define this transport, so the handshake era is pinned: a client that tries the later one falls back.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.runner import serve_loop
from pydantic_core import from_json

from bridge.server.answering import Answering
from bridge.server.auth.identity import ending_with_credential
from bridge.server.http.requests import read_body, replaying
from bridge.server.http.responses import message_problem, refuse, saying_json
from bridge.server.http.sessions import KEPT_METHODS, MAX_KEPT_BYTES, Session, kept_bytes, told_too_much
from bridge.server.http.streamable import refuse_session
from bridge.server.limits.account import caller_key
from bridge.telemetry.switch import observed_session

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.sse import SseServerTransport
    from starlette.types import Message, Receive, Scope, Send

    from bridge.server.http.sessions import Sessions
    from bridge.server.streams import Streams

_logger = logging.getLogger("bridge.server")

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages/"


def is_message(scope: Scope) -> bool:
    """Whether a request brings a message of SSE."""
    path: str = scope["path"]
    return path.rstrip("/").endswith(MESSAGES_PATH.rstrip("/"))


class SseStream:
    """ASGI: opens a session, and is its stream until one of both ends it.

    Args:
        server: What is served.
        transport: The sessions, common to streams and messages.
        streams: Where the stream is entered while it is open.
        sessions: Where the session is entered while it is open.
    """

    def __init__(
        self, server: Server[Any], transport: SseServerTransport, streams: Streams, sessions: Sessions
    ) -> None:
        self._server = server
        self._transport = transport
        self._streams = streams
        self._sessions = sessions
        self._answering: set[Answering] = set()

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
            answering = Answering(reading, writing, session)
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
        max_request_bytes: How long a message may be.
    """

    def __init__(self, transport: SseServerTransport, max_request_bytes: int) -> None:
        self._transport = transport
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what is no message, which the SDK would log as its own failure, and hand on the rest."""
        if scope["method"] != "POST":
            await self._transport.handle_post_message(scope, receive, send)
            return
        if (said := await saying_json(scope, send)) is None:
            return
        # The session is the one in the query: nobody here would look whether that of the header exists.
        scope = {**said, "headers": [header for header in said["headers"] if header[0] != b"mcp-session-id"]}
        body = await read_body(receive, self._max_request_bytes)
        if (problem := message_problem(body)) is not None:
            code, message = problem
            await refuse(send, 400, message, code)
            return
        if from_json(body).get("method") in KEPT_METHODS and (kept := kept_bytes(body)) > MAX_KEPT_BYTES:
            await refuse(send, 413, told_too_much(kept))
            return
        is_answered = False

        async def watch(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._transport.handle_post_message(scope, replaying(body, receive), watch)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            if not is_answered:
                raise
            # The session ended after its message was accepted.
            _logger.debug("a message came too late for its session")
