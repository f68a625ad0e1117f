"""Event streams: responses in parts, of calls whose server has something to say, and of sessions.

    first message that is the last    JSON
    any other                         text/event-stream: message … answer

HTML Living Standard, "Server-sent events"; MCP 2025-11-25 and 2026-07-28, "Transports", Streamable HTTP; 2025-11-25,
"Resumability and Redelivery".
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from anyio import Event
from anyio.lowlevel import checkpoint

from bridge.server.auth.identity import ending_with_credential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.server.auth.access import Restricted
    from bridge.server.http.sessions import HttpSession
    from bridge.server.results.contents_stream import ResponseContents

Header = tuple[bytes, bytes]

SILENT_SECONDS = 15.0
"""Seconds without a message after which a stream gets a comment, so that proxies do not close it."""
RETRY_MILLISECONDS = 1_000
"""Time after which a client connects again when its stream was closed."""
KEEP_ALIVE = b": ping\n\n"

_MAX_IN_A_ROW = 16
"""Messages after which a call lets others run, and can be cancelled, though its client reads."""
_RESUMABLE_FROM = "2025-11-25"
_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # without it, nginx would delay events
)


class StreamBody(Protocol):
    """Body of a response in parts, as the HTTP server sends it."""

    @property
    def is_open(self) -> bool:
        """True until the response is complete, or the client has disconnected."""
        ...

    def begin(self, headers: tuple[Header, ...]) -> bool:
        """Begin the response; return False if it has begun."""
        ...

    async def write(self, part: bytes) -> None:
        """Send a part, and wait while the client does not read; dropped once the client has disconnected."""
        ...

    async def end(self) -> None:
        """End the response."""
        ...


def stream_headers(session: HttpSession | None) -> tuple[Header, ...]:
    """Return the headers of an event stream."""
    return _HEADERS if session is None else (*_HEADERS, session.header)


def event(message: bytes, event_id: str = "") -> bytes:
    """Return the event of a message; messages are written without line breaks."""
    if event_id:
        return b"id: %b\nevent: message\ndata: %b\n\n" % (event_id.encode(), message)
    return b"event: message\ndata: %b\n\n" % message


class EventStream:
    """The response of one exchange, if anything is sent before its answer: a `bridge.server.exchange.Outlet`.

    Args:
        body: The body of the response.
        session: The session; None in the modern era.
        stream_id: Id of the request, as text.
        json_headers: Headers of a result that is sent in parts; None to send results whole.
    """

    def __init__(
        self, body: StreamBody, session: HttpSession | None, stream_id: str, json_headers: tuple[Header, ...] | None
    ) -> None:
        self._body = body
        self._session = session
        self._events = None if session is None else session.events
        self._id = stream_id
        self._json_headers = json_headers
        self._contents: ResponseContents | None = None
        self._is_closed = False
        self._in_a_row = 0
        self.is_begun = False
        """True once the response is an event stream."""

    async def send(self, message: bytes, *, is_notification: bool = True) -> None:
        """Send a message."""
        if self._contents is not None and self._contents.has_begun:
            return  # the response is the result alone
        await self._begin()
        event_id = ""
        if self._events is not None:
            event_id = await self._events.store(self._id, message, is_notification=is_notification)
        await self._write(event(message, event_id))
        self._in_a_row += 1
        if self._in_a_row == _MAX_IN_A_ROW:  # code that only reports progress must not block others
            self._in_a_row = 0
            await checkpoint()

    async def keep_alive(self) -> None:
        """Send a comment, unless the response is a result in parts."""
        if self._contents is None or not self._contents.has_begun:
            await self._begin()
            await self._write(KEEP_ALIVE)

    async def last(self, answer: bytes) -> bytes:
        """Return the last part of the stream, with the answer; empty if the stream was closed."""
        event_id = ""
        if self._events is not None:
            event_id = await self._events.store(self._id, answer, is_answer=True)
            if self._body.is_open and not self._is_closed:
                await self._events.delivered(self._id)
        return b"" if self._is_closed else event(answer, event_id)

    async def close_stream(self) -> None:
        """End the response, if the client can resume the stream."""
        if self._events is None or self._session is None or self._session.version < _RESUMABLE_FROM:
            return
        if not self._is_closed:
            await self._begin()
            self._is_closed = True
            await self._body.end()
        await self._events.close_streams(self._id)

    def stream_contents(self, contents: ResponseContents) -> None:
        """Let the result be sent in parts."""
        if self._json_headers is not None:
            self._contents = contents
            contents.body = _ContentsBody(self._body, self._json_headers)

    async def _begin(self) -> None:
        if self.is_begun:
            return
        self.is_begun = True
        session, events = self._session, self._events
        self._body.begin(stream_headers(session))
        if events is not None and session is not None:
            event_id = await events.store(self._id, None)
            if session.version >= _RESUMABLE_FROM:  # older clients cannot read an event without data
                await self._write(b"id: %b\nretry: %d\ndata: \n\n" % (event_id.encode(), RETRY_MILLISECONDS))

    async def _write(self, part: bytes) -> None:
        if not self._is_closed:
            await self._body.write(part)


class _ContentsBody:
    """Body of a result that is sent in parts: a `bridge.server.results.contents_stream.ResponseBody`."""

    def __init__(self, body: StreamBody, headers: tuple[Header, ...]) -> None:
        self._body = body
        self._headers = headers

    def begin(self) -> bool:
        """Begin the response; return False if it has begun as an event stream."""
        return self._body.begin(self._headers)

    async def write(self, part: bytes) -> None:
        """Send a part."""
        await self._body.write(part)


class OpenStreams:
    """Streams of one app that stay open until the client or the server ends them, or their credentials expire."""

    def __init__(self) -> None:
        self._open: set[Event] = set()

    @contextmanager
    def opened(
        self,
        ends: list[Callable[[], object]] | None = None,
        on_expiry: Callable[[], object] | None = None,
        *,
        profile: Restricted | None = None,
        ends_at_shutdown: bool = True,
    ) -> Iterator[Event]:
        """Context in which a stream is open; yields the event that is set when it is to end.

        Args:
            ends: Functions that others call to end it, to which one is added; None if nobody else ends it.
            on_expiry: Called once its credential is no longer valid; None to end it.
            profile: The profile that it is of, to which its credential has to give access; None for none.
            ends_at_shutdown: True if `end` ends it.
        """
        ended = Event()
        if ends_at_shutdown:
            self._open.add(ended)
        if ends is not None:
            ends.append(ended.set)
        try:
            with ending_with_credential(on_expiry or ended.set, profile):
                yield ended
        finally:
            self._open.discard(ended)
            if ends is not None and ended.set in ends:
                ends.remove(ended.set)

    def end(self) -> None:
        """End all open streams."""
        for stream in tuple(self._open):
            stream.set()

    def __len__(self) -> int:
        return len(self._open)
