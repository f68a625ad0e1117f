"""Sessions of the handshake era over HTTP: their calls, number, expiry and memory.

The SDK creates sessions and answers in them. `Sessions` tracks them, so that the fast path can answer calls in a
session, and so that these calls count as use of the session.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

from anyio import Event, sleep
from pydantic_core import to_json

from bridge.server.http.requests import DEFAULT_MAX_REQUEST_BYTES, no_room_for_body, shares_of_bodies
from bridge.server.http.session import BYTES_OF_A_RESPONSE, MAX_KEPT_BYTES, UnreadResponses
from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from starlette.types import Scope

    from bridge.server.http.event_store import SessionEvents
    from bridge.server.limits.shares import Shares

_logger = logging.getLogger("bridge.server")

IDLE_SECONDS = 30 * 60.0
"""Default seconds after which an unused session is ended: 30 minutes, as in the SDK."""
DEFAULT_MAX_SESSIONS = 10_000
"""Default maximum number of open sessions."""
MAX_KEPT_BYTES_OF_ALL = 128 * 1024 * 1024
"""Maximum memory of client data in all sessions together."""
MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Maximum length of the responses of one session that wait to be sent; a session over it is ended."""
MAX_UNREAD_BYTES_OF_ALL = 256 * 1024 * 1024
"""Maximum length of such responses of all sessions; over it, the session with most of them is ended."""

_MAX_CHECK_INTERVAL_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class Session:
    """One session. Enter it (``with session: …``) while a request of it is answered, or a call of it runs."""

    id: str
    """Value of ``Mcp-Session-Id``."""
    user: object
    """The user that authentication put into the scope of its first request; None without authentication."""
    capabilities: Mapping[str, Any]
    """Capabilities that the client declared, in MCP's JSON."""
    owner: str = ""
    """Key of the caller that opened it."""
    client: str | None = None
    """Name of the client program; None if it is unknown."""
    version: str | None = None
    """The negotiated protocol version; None before ``initialize`` has been answered, and if it failed."""
    running: dict[str, Callable[[], object]] = field(default_factory=dict)
    """Functions that cancel calls of the fast path until they end, by id as text, since 7 and "7" are the same id."""
    asked: dict[str, bool] = field(default_factory=dict)
    """Ids, as text, of the requests that the SDK has not handled yet; True once a handler has begun."""
    kept: int = 0
    """Bytes of data about its client, as `kept_bytes` estimates them."""
    streams: int = 0
    """Number of its open streams that belong to no call."""
    end: Callable[[], object] | None = None
    """Ends it at once; None for a session of streamable HTTP, which its endpoint ends."""
    sessions: Sessions | None = None
    """Counts its memory."""
    unread: dict[object, int] = field(default_factory=dict)
    """Length of each response that waits to be sent."""
    unread_bytes: int = 0
    posts: dict[str, Event] = field(default_factory=dict)
    """JSON-RPC requests whose POST is open, by their ids as text; set once the POST has sent an event, or is closed."""
    events: SessionEvents | None = None
    """Events of its calls, for streams that are resumed; None over SSE."""
    responses: UnreadResponses = field(default_factory=UnreadResponses)
    """Keys of `unread`."""
    requests: int = 0
    """Number of requests that are being answered, open streams included, and of calls that run in the SDK."""
    is_over: bool = False
    """True once it was ended."""
    opened_at: float = field(init=False)
    unused_since: float = field(init=False)

    def __post_init__(self) -> None:
        self.opened_at = self.unused_since = monotonic()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        self.unused_since = monotonic()

    def id_problem(self, request: object) -> str | None:
        """Return the error message for a further request with an id that is in use; None for another id."""
        if (key := str(request)) not in self.running and key not in self.asked:
            return None
        return f"a request of this session with the id {clip(repr(request))} still runs; give each request its own id"

    @contextmanager
    def posting(self, request: object) -> Iterator[Event]:
        """Context in which the SDK handles the POST of a request; the request's id is in use meanwhile.

        Yields:
            The event to set when the POST has sent an event.
        """
        key = str(request)
        self.asked[key] = False
        begun = self.posts[key] = Event()
        try:
            with self:
                yield begun
        finally:
            if self.posts.get(key) is begun:
                del self.posts[key]
            begun.set()
            if self.asked.get(key) is False:  # refused before a handler began
                del self.asked[key]
            self._sent(self.responses.closed(key))

    @contextmanager
    def handling(self, request: object, body_bytes: int = 0) -> Iterator[None]:
        """Context in which a handler runs, even after its client has disconnected, and its body counts.

        Raises:
            ProtocolError: The body exceeds the shared memory.
        """
        bodies = None if self.sessions is None else self.sessions.bodies
        if bodies is not None and not bodies.has_room(self.owner, body_bytes):
            raise no_room_for_body()
        key = str(request)
        self.asked[key] = True
        try:
            with nullcontext() if bodies is None else bodies.taking(self.owner, body_bytes):
                yield
        finally:
            self.asked.pop(key, None)

    def owe(self, request: object, answer: object) -> None:
        """Count a response, or None for an error, which its handler writes next.

        The response counts until it is written, and over streamable HTTP until its POST is closed.
        """
        if self.sessions is not None:
            self.sessions.answered(self, self.responses.add(str(request)), answer)

    def wrote(self, request: object) -> None:
        """Note that a handler of a request has written its response."""
        self._sent(self.responses.wrote(str(request), waits=str(request) in self.posts))

    def _sent(self, responses: Iterable[object]) -> None:
        for response in responses:
            if self.sessions is not None:
                self.sessions.sent(self, response)

    def attach(self, events: SessionEvents) -> None:
        """Set the events of its calls."""
        self.events, events.on_response = events, self.wrote

    async def close_stream(self, request: object, close_post: Callable[[], Awaitable[None]]) -> None:
        """Close the streams of a call that runs, which its client resumes.

        Args:
            request: The id of the request.
            close_post: Closes the stream of its POST.
        """
        key = str(request)
        if (begun := self.posts.get(key)) is not None:
            await begun.wait()  # before its first event, a stream has no id to resume it from
            await close_post()
        if self.events is not None:
            await self.events.close_streams(key)

    def use(self) -> None:
        """Note that a request of the session was answered."""
        self.unused_since = monotonic()

    def cancel(self, request: object) -> None:
        """Cancel the call of the fast path with an id, if there is one, once; it keeps its id until it has ended."""
        end = self.running.get(str(request)) if type(request) in {int, str} else None
        if end is not None:
            self.running[str(request)] = _ended
            end()


def _ended() -> None:
    """Cancel a call that was cancelled before."""


def same_credential(scope: Scope, session: Session) -> bool:
    """True if a request carries the credential that opened a session, as the SDK compares them."""
    user = scope.get("user")
    if user is session.user or user is None or session.user is None:
        return user is session.user
    from mcp.server.auth.middleware.bearer_auth import (  # noqa: PLC0415 - needed only with credentials
        AuthenticatedUser,
        authorization_context,
    )

    contexts = [
        authorization_context(each) if isinstance(each, AuthenticatedUser) else None for each in (user, session.user)
    ]
    return contexts[0] == contexts[1]


def _end_over_sse(session: Session) -> None:
    if session.end is not None:
        session.end()


class Sessions:
    """The open sessions."""

    def __init__(
        self,
        idle_seconds: float | None = IDLE_SECONDS,
        max_sessions: int = DEFAULT_MAX_SESSIONS,
        bodies: Shares | None = None,
    ) -> None:
        self.max_sessions = max_sessions
        self.bodies = bodies or shares_of_bodies(DEFAULT_MAX_REQUEST_BYTES)
        self._idle_seconds = idle_seconds
        self._open: dict[str, Session] = {}
        self._over_sse: list[Session] = []
        self._kept = self._unread = 0
        self._repetitions = Repetitions()
        self.end: Callable[[Session], object] = _end_over_sse
        """Ends a forgotten session at once."""
        self._opening: Counter[str] = Counter()

    @contextmanager
    def opening(self, owner: str) -> Iterator[Callable[[], None]]:
        """Context in which a session is being opened; yields a function to call once it is open."""
        self._opening[owner] += 1
        is_counted = True

        def settle() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                self._opening -= Counter([owner])

        try:
            yield settle
        finally:
            settle()

    @property
    def _all(self) -> Iterator[Session]:
        return chain(self._open.values(), self._over_sse)

    def _count(self) -> int:
        return len(self._open) + len(self._over_sse)

    def make_room(self, owner: str, kept: int) -> list[Session] | None:
        """Make room for one more session of a caller, which will keep bytes of client data.

        At a limit (sessions or memory), idle sessions of the caller that uses most of it are evicted, if that caller
        uses more than this one would. The longest unused sessions are evicted first, then those with only a stream
        open; never one in which a call runs. So a caller that opens many sessions cannot displace others.

        Returns:
            The evicted sessions, already forgotten, which the caller of this method ends; None to refuse the session.
        """
        ending: list[Session] = []
        places, memory = self.max_sessions - self._count() - self._opening.total(), MAX_KEPT_BYTES_OF_ALL - self._kept
        while places < 1 or memory < kept:
            left = [each for each in self._all if each not in ending]
            held: Counter[str] = Counter() if places >= 1 else Counter(self._opening)
            for each in left:
                held[each.owner] += each.kept if places >= 1 else 1
            most, count = held.most_common(1)[0] if held else ("", 0)
            idle = (each for each in left if each.owner == most and each.requests == each.streams)
            found = min(idle, key=lambda each: (each.streams, each.unused_since), default=None)
            if found is None or count <= held[owner] + (kept if places >= 1 else 1):
                self._log("refused", owner, "refused a session to %r: %d are open%s", self._count())
                return None
            places, memory = places + 1, memory + found.kept
            ending.append(found)
        for each in ending:
            message = "ended an idle session of %r, which has most sessions, in favour of one of %r%s"
            self._log("ended", each.owner, message, clip(owner))
            self.forget(each)
        return ending

    def keep(self, session: Session, kept: int) -> bool:
        """Count client data that a session keeps; return False if it exceeds a limit."""
        if session.kept + kept > MAX_KEPT_BYTES or self._kept + kept > MAX_KEPT_BYTES_OF_ALL:
            return False
        session.kept += kept
        self._kept += kept
        return True

    def answered(self, session: Session, response: object, answer: object) -> None:
        """Count a response that waits to be sent; end the session with most of them if they exceed a limit."""
        # The length of a single waiting response is not measured, since it is usually sent at once.
        text_bytes = len(to_json(answer, serialize_unknown=True)) if session.unread and answer is not None else 0
        length = session.unread[response] = text_bytes + BYTES_OF_A_RESPONSE
        session.unread_bytes += length
        self._unread += length
        if session.unread_bytes > MAX_UNREAD_BYTES:
            self._cut_off(session)
        elif self._unread > MAX_UNREAD_BYTES_OF_ALL:
            self._cut_off(max(self._all, key=lambda each: each.unread_bytes))

    def sent(self, session: Session, response: object) -> None:
        """Stop counting a response that was sent, or whose client has disconnected."""
        length = session.unread.pop(response, 0)
        session.unread_bytes -= length
        self._unread -= length

    def _cut_off(self, session: Session) -> None:
        message = "ended a session of %r: its client did not read %d bytes of responses%s"
        self._log("cut off", session.owner, message, session.unread_bytes)
        self.forget(session)
        self.end(session)

    def _log(self, kind: str, owner: str, message: str, more: object) -> None:
        if (addition := self._repetitions.addition(kind, owner)) is not None:
            _logger.warning(message, clip(owner), more, addition)

    @contextmanager
    def over_sse(self, session: Session) -> Iterator[None]:
        """Context in which a session of SSE is open, with its one stream."""
        session.sessions, session.streams = self, 1
        self._over_sse.append(session)
        self._kept += session.kept
        try:
            with session:
                yield
        finally:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        """Remove a session, unless it was removed before."""
        if self._open.pop(session.id, None) is None:
            if session not in self._over_sse:
                return
            self._over_sse.remove(session)
        elif (observer := switch.observer()) is not None:
            observer.session_closed(Peer("http", session.version or ""), monotonic() - session.opened_at)
        self._kept -= session.kept
        self._unread -= session.unread_bytes
        session.unread_bytes, session.sessions, session.is_over = 0, None, True
        if session.events is not None:
            session.events.forget()
        session.unread.clear()
        for request in tuple(session.running):
            session.cancel(request)

    def open(self, session: Session) -> None:
        """Add a session, which ``initialize`` has opened."""
        self._open[session.id] = session
        session.sessions = self
        self._kept += session.kept
        if (observer := switch.observer()) is not None:
            observer.session_opened()

    def find(self, session_id: str) -> Session | None:
        """Return the open session with an id; None if there is none."""
        return self._open.get(session_id)

    def forget(self, session: str | Session) -> None:
        """Remove a session that has ended, given it or the id of one of streamable HTTP, and cancel its calls."""
        found = self._open.get(session) if isinstance(session, str) else session
        if found is not None:
            self._forget(found)

    async def end_unused(self, end: Callable[[Session], Awaitable[Any]]) -> None:
        """End sessions that are unused for too long; runs until cancelled."""
        if self._idle_seconds is None:
            return
        while True:
            latest = monotonic() - self._idle_seconds
            for session in tuple(self._open.values()):
                if session.id in self._open and not session.requests and session.unused_since <= latest:
                    self.forget(session.id)
                    await end(session)
            waiting = (each.unused_since for each in self._open.values() if not each.requests)
            next_seconds = min(waiting, default=math.inf) + self._idle_seconds - monotonic()
            # No session opened meanwhile can expire within the idle time.
            await sleep(min(max(next_seconds, 0.0), self._idle_seconds, _MAX_CHECK_INTERVAL_SECONDS))

    def __len__(self) -> int:
        return len(self._open)
