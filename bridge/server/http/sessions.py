"""Sessions of the handshake era over HTTP: their calls, number, expiry and memory."""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import contextmanager
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from anyio import sleep

from bridge.protocol.messages import ProtocolError
from bridge.protocol.session import Session
from bridge.protocol.versions import LIMIT_EXCEEDED
from bridge.server.auth.identity import principal_of
from bridge.server.http.requests import DEFAULT_MAX_REQUEST_BYTES, shares_of_bodies
from bridge.server.http.responses import CONTENT_TYPE, error_response
from bridge.telemetry import current
from bridge.telemetry.instruments import Peer
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Scope

    from bridge.server.http.event_store import SessionEvents
    from bridge.server.http.responses import Header, Response
    from bridge.server.limits.shares import Shares
    from bridge.server.notifications import SessionNotifications

_logger = logging.getLogger("bridge.server")

IDLE_SECONDS = 30 * 60.0
"""Default seconds after which an unused session is ended: 30 minutes, as in the SDK."""
DEFAULT_MAX_SESSIONS = 10_000
"""Default maximum number of open sessions."""
MAX_KEPT_BYTES = 256 * 1024
"""Maximum memory of the client's own data in a session, as `kept_bytes` estimates it."""
MAX_KEPT_BYTES_OF_ALL = 128 * 1024 * 1024
"""Maximum memory of client data in all sessions together."""
MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Maximum length of the responses of one session that wait to be sent; a session over it is ended."""
MAX_UNREAD_BYTES_OF_ALL = 256 * 1024 * 1024
"""Maximum length of such responses of all sessions; over it, the session with most of them is ended."""

_RETRY_SECONDS = 10
"""Seconds after which a client may try again if too many sessions are open."""
_BYTES_OF_A_RESPONSE = 2 * 1024
"""Memory of a response that waits to be sent, beside its text."""
_MAX_CHECK_INTERVAL_SECONDS = 60.0


class HttpSession(Session):
    """One session. Enter it (``with session: …``) while a request of it is answered, or a call of it runs.

    Args:
        session_id: Value of ``Mcp-Session-Id``.
        user: The user that authentication put into the scope of its first request; None without authentication.
        owner: Key of the caller that opened it.
    """

    def __init__(self, session_id: str, user: object, owner: str = "") -> None:
        super().__init__()
        self.id: str = session_id
        """Value of ``Mcp-Session-Id``."""
        self.user = user
        """The user that authentication put into the scope of its first request; None without authentication."""
        self.owner = owner
        """Key of the caller that opened it."""
        self.header: Header = (b"mcp-session-id", session_id.encode())
        """The header that names it."""
        self.json_headers: tuple[Header, ...] = (CONTENT_TYPE, self.header)
        """Headers of its responses that are JSON."""
        self.kept = 0
        """Bytes of data about its client, as `kept_bytes` estimates them."""
        self.streams = 0
        """Number of its open streams that belong to no call."""
        self.has_stream = False
        """True while the stream of its notifications is open."""
        self.ends: list[Callable[[], object]] = []
        """Functions that end its open streams."""
        self.sessions: Sessions | None = None
        """Counts its memory; None before it is open, and after."""
        self.unread: dict[object, int] = {}
        """Length of each response that waits to be sent."""
        self.unread_bytes = 0
        self.events: SessionEvents | None = None
        """Events of its calls, for streams that are resumed; None over SSE."""
        self.notifications: SessionNotifications | None = None
        """Changes of which it is told; None before ``notifications/initialized``."""
        self.requests = 0
        """Number of requests that are being answered, open streams included, and of calls that run."""
        self.opened_at = self.unused_since = monotonic()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        self.unused_since = monotonic()

    @property
    def is_over(self) -> bool:
        """True before it is open, and once it was ended."""
        return self.sessions is None

    def keep(self, count: int) -> bool:
        """Count further bytes that are kept for the client; return False if they are too many, or it has ended."""
        return self.sessions is not None and self.sessions.keep(self, count)

    def use(self) -> None:
        """Note that a request of the session was answered."""
        self.unused_since = monotonic()

    @contextmanager
    def sending(self, body: bytes) -> Iterator[None]:
        """Context in which a response waits to be sent, and counts in the session's memory."""
        response = object()
        if self.sessions is not None:
            self.sessions.answered(self, response, len(body))
        try:
            yield
        finally:
            if self.sessions is not None:
                self.sessions.sent(self, response)

    def close(self) -> None:
        """Cancel what runs, end its streams, and forget its events."""
        super().close()
        for end in tuple(self.ends):
            end()
        if self.notifications is not None:
            self.notifications.close()
        if self.events is not None:
            self.events.forget()


def client_data_problem(kept: int) -> str:
    """Return the error message for a client whose own data exceeds `MAX_KEPT_BYTES`."""
    return (
        f"the session would keep {kept} bytes of data about its client, and may keep {MAX_KEPT_BYTES}: "
        "send less in 'capabilities' and 'clientInfo'"
    )


def same_credential(scope: Scope, session: HttpSession) -> bool:
    """True if a request carries the credential that opened a session."""
    user = scope.get("user")
    if user is session.user or user is None or session.user is None:
        return user is session.user
    return principal_of(user) == principal_of(session.user)


def too_many_sessions(sessions: Sessions) -> Response:
    """Return the refusal of a session, because too many are open."""
    problem = f"too many open sessions: the server has {sessions.max_sessions}; try again later"
    error = ProtocolError(LIMIT_EXCEEDED, problem, {"limit": "--max-sessions", "retryAfterSeconds": _RETRY_SECONDS})
    return error_response(error, 503, headers=((b"retry-after", b"%d" % _RETRY_SECONDS),))


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
        self._open: dict[str, HttpSession] = {}
        self._over_sse: list[HttpSession] = []
        self._kept = self._unread = 0
        self._repetitions = Repetitions()
        self.on_forget: Callable[[HttpSession, bool], object] | None = None
        """Called with a session of streamable HTTP that was removed, and True if no replica is to go on with it."""

    @property
    def _all(self) -> Iterator[HttpSession]:
        return chain(self._open.values(), self._over_sse)

    def _count(self) -> int:
        return len(self._open) + len(self._over_sse)

    def make_room(self, owner: str, kept: int) -> bool:
        """Make room for one more session of a caller, which will keep bytes of client data.

        At a limit (sessions or memory), idle sessions of the caller that uses most of it are evicted, if that caller
        uses more than this one would. The longest unused sessions are evicted first, then those with only a stream
        open; never one in which a call runs. So a caller that opens many sessions cannot displace others.

        Returns:
            False to refuse the session.
        """
        ending: list[HttpSession] = []
        places, memory = self.max_sessions - self._count(), MAX_KEPT_BYTES_OF_ALL - self._kept
        while places < 1 or memory < kept:
            left = [each for each in self._all if each not in ending]
            held: Counter[str] = Counter()
            for each in left:
                held[each.owner] += each.kept if places >= 1 else 1
            most, count = held.most_common(1)[0] if held else ("", 0)
            idle = (each for each in left if each.owner == most and each.requests == each.streams)
            found = min(idle, key=lambda each: (each.streams, each.unused_since), default=None)
            if found is None or count <= held[owner] + (kept if places >= 1 else 1):
                self._log("refused", owner, "refused a session to %r: %d are open%s", self._count())
                return False
            places, memory = places + 1, memory + found.kept
            ending.append(found)
        for each in ending:
            message = "ended an idle session of %r, which has most sessions, in favour of one of %r%s"
            self._log("ended", each.owner, message, clip(owner))
            self._forget(each, is_over=True)
        return True

    def keep(self, session: HttpSession, kept: int) -> bool:
        """Count client data that a session keeps; return False if it exceeds a limit."""
        if session.kept + kept > MAX_KEPT_BYTES or self._kept + kept > MAX_KEPT_BYTES_OF_ALL:
            return False
        session.kept += kept
        self._kept += kept
        return True

    def answered(self, session: HttpSession, response: object, body_bytes: int) -> None:
        """Count a response that waits to be sent; end the session with most of them if they exceed a limit."""
        length = session.unread[response] = body_bytes + _BYTES_OF_A_RESPONSE
        session.unread_bytes += length
        self._unread += length
        if session.unread_bytes > MAX_UNREAD_BYTES:
            self._cut_off(session)
        elif self._unread > MAX_UNREAD_BYTES_OF_ALL:
            self._cut_off(max(self._all, key=lambda each: each.unread_bytes))

    def sent(self, session: HttpSession, response: object) -> None:
        """Stop counting a response that was sent, or whose client has disconnected."""
        length = session.unread.pop(response, 0)
        session.unread_bytes -= length
        self._unread -= length

    def _cut_off(self, session: HttpSession) -> None:
        message = "ended a session of %r: its client did not read %d bytes of responses%s"
        self._log("cut off", session.owner, message, session.unread_bytes)
        self._forget(session, is_over=True)

    def _log(self, kind: str, owner: str, message: str, more: object) -> None:
        if (addition := self._repetitions.addition(kind, owner)) is not None:
            _logger.warning(message, clip(owner), more, addition)

    @contextmanager
    def over_sse(self, session: HttpSession) -> Iterator[None]:
        """Context in which a session of SSE is open, with its one stream."""
        session.sessions, session.streams = self, 1
        self._over_sse.append(session)
        self._kept += session.kept
        try:
            with session:
                yield
        finally:
            self._forget(session)

    def _forget(self, session: HttpSession, *, is_over: bool = False) -> None:
        """Remove a session, unless it was removed before, and close it."""
        if self._open.pop(session.id, None) is not None:
            if (observer := current.observer()) is not None:
                observer.session_closed(Peer("http", session.version), monotonic() - session.opened_at)
            if self.on_forget is not None:
                self.on_forget(session, is_over)
        elif session in self._over_sse:
            self._over_sse.remove(session)
        else:
            return
        self._kept -= session.kept
        self._unread -= session.unread_bytes
        session.unread_bytes, session.sessions = 0, None
        session.unread.clear()
        session.close()

    def open(self, session: HttpSession) -> None:
        """Add a session, which ``initialize`` has opened."""
        self._open[session.id] = session
        session.sessions = self
        self._kept += session.kept
        if (observer := current.observer()) is not None:
            observer.session_opened()

    def find(self, session_id: str) -> HttpSession | None:
        """Return the open session with an id; None if there is none."""
        return self._open.get(session_id)

    def forget(self, session: str | HttpSession) -> None:
        """Remove a session that has ended, given it or the id of one of streamable HTTP, and cancel its calls."""
        found = self._open.get(session) if isinstance(session, str) else session
        if found is not None:
            self._forget(found)

    def forget_all(self) -> None:
        """Remove all sessions of streamable HTTP, because the app ends here; replicas go on with those they share."""
        for session in tuple(self._open.values()):
            self._forget(session)

    async def end_unused(self) -> None:
        """End sessions that are unused for too long; runs until cancelled."""
        if self._idle_seconds is None:
            return
        while True:
            latest = monotonic() - self._idle_seconds
            for session in tuple(self._open.values()):
                if session.id in self._open and not session.requests and session.unused_since <= latest:
                    self.forget(session)
            waiting = (each.unused_since for each in self._open.values() if not each.requests)
            next_seconds = min(waiting, default=math.inf) + self._idle_seconds - monotonic()
            # No session opened meanwhile can expire within the idle time.
            await sleep(min(max(next_seconds, 0.0), self._idle_seconds, _MAX_CHECK_INTERVAL_SECONDS))

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._open)
