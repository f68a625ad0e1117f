"""Answering: one SSE session's requests until each has its answer, and the session's end only after that.

Over SSE a call is posted, and its answer comes over the session's stream: a stream that is closed too early takes
answers with it that were ready. So a session that is to end reads on until nothing is owed, and then sees the end of
its input; what it has written by then goes out in order.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, EndOfStream
from anyio.abc import AsyncResource, ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic_core import to_json

from bridge.server.http.sessions import KEPT_METHODS, SESSION, kept_bytes

if TYPE_CHECKING:
    from contextvars import Context

    from bridge.server.http.sessions import Session


class Answering:
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
            if self._session.sessions is not None:
                self._session.sessions.sent(self._session, str(item.message.id))
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

    def __init__(self, stream: Any, answering: Answering) -> None:
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
