"""Open sessions of the handshake era over HTTP: their number, their expiry and the memory that they take.

The SDK makes sessions and answers in them. `Sessions` reads requests and responses that pass, so that calls in a
session can take the fast path, and so that those count as use of the session.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import contextmanager
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

from anyio import sleep
from pydantic_core import to_json

from bridge.server.http.requests import DEFAULT_MAX_REQUEST_BYTES, shares_of_bodies
from bridge.server.http.session import _BYTES_OF_AN_ANSWER, MAX_KEPT_BYTES
from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bridge.server.http.session import Session
    from bridge.server.limits.shares import Shares

_logger = logging.getLogger("bridge.server")

IDLE_SECONDS = 30 * 60.0
"""How long a session may go unused unless told otherwise: 30 minutes, as in the SDK."""

DEFAULT_MAX_SESSIONS = 10_000
"""How many sessions may be open unless told otherwise."""

MAX_KEPT_BYTES_OF_ALL = 128 * 1024 * 1024
"""The same of all sessions together."""

MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Maximum length of the answers of a session that wait to be sent; the session is ended over it."""

MAX_UNREAD_BYTES_OF_ALL = 256 * 1024 * 1024
"""The same of all sessions together; over it the session is ended that has most."""

_LOOK_AT_LEAST_EVERY_SECONDS = 60.0


def _end_over_sse(session: Session) -> None:
    if session.end is not None:
        session.end()


class Sessions:
    """The sessions that are open.

    Args:
        idle_seconds: How long a session may go unused; None for as long as the server runs.
        max_sessions: How many may be open.
        bodies: The memory that callers share for the requests that are being answered.
    """

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
        """Ends a session at once that was forgotten."""
        self._opening: Counter[str] = Counter()

    @contextmanager
    def opening(self, owner: str) -> Iterator[Callable[[], None]]:
        """The time during which a session is being opened; gives what says that it is open."""
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

    def room_for(self, owner: str, kept: int) -> list[Session] | None:
        """Make room for one more session of a caller.

        Where there is none, sessions of others give way, of whoever has most of what is scarce, and more than the
        caller would have: places, or memory. Those unused for longest go first, then those of which only a stream is
        open; never one in which a call runs. So a caller who opens sessions without end takes only what nobody else
        wants.

        Args:
            owner: The caller.
            kept: How much memory the session will keep.

        Returns:
            The sessions that have to be ended, which are forgotten already; None where the caller has to wait.
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
            told = "ended an idle session of %r, who has most of all, for one of %r%s"
            self._log("ended", each.owner, told, clip(owner))
            self.forget(each)
        return ending

    def keep(self, session: Session, kept: int) -> bool:
        """Have a session keep more of what its client says of itself; returns whether it may."""
        if session.kept + kept > MAX_KEPT_BYTES or self._kept + kept > MAX_KEPT_BYTES_OF_ALL:
            return False
        session.kept += kept
        self._kept += kept
        return True

    def answered(self, session: Session, handler: object, answer: object) -> None:
        """Note an answer that is to be sent; where too many wait, the session is ended that has most of them.

        Args:
            session: The session.
            handler: The task that answers.
            answer: The result; None for an error.
        """
        # One that waits alone is not measured: mostly it is sent at once.
        text_bytes = len(to_json(answer, serialize_unknown=True)) if session.unread and answer is not None else 0
        length = session.unread[handler] = text_bytes + _BYTES_OF_AN_ANSWER
        session.unread_bytes += length
        self._unread += length
        if session.unread_bytes > MAX_UNREAD_BYTES:
            self._cut_off(session)
        elif self._unread > MAX_UNREAD_BYTES_OF_ALL:
            self._cut_off(max(self._all, key=lambda each: each.unread_bytes))

    def sent(self, session: Session, handler: object) -> None:
        """Note that an answer was sent, or that nobody waits for it any more."""
        length = session.unread.pop(handler, 0)
        session.unread_bytes -= length
        self._unread -= length

    def _cut_off(self, session: Session) -> None:
        told = "ended a session of %r: %d bytes of answers wait in it that its client does not read%s"
        self._log("cut off", session.owner, told, session.unread_bytes)
        self.forget(session)
        self.end(session)

    def _log(self, kind: str, owner: str, message: str, more: object) -> None:
        if (addition := self._repetitions.addition(kind, owner)) is not None:
            _logger.warning(message, clip(owner), more, addition)

    @contextmanager
    def over_sse(self, session: Session) -> Iterator[None]:
        """The time during which a session of SSE is open, whose stream is its only one."""
        session.sessions, session.streams = self, 1
        self._over_sse.append(session)
        self._kept += session.kept
        try:
            with session:
                yield
        finally:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        """Count a session no longer, which may have been forgotten before."""
        if self._open.pop(session.id, None) is None:
            if session not in self._over_sse:
                return
            self._over_sse.remove(session)
        else:
            session_closed(session)
        self._kept -= session.kept
        self._unread -= session.unread_bytes
        session.unread_bytes, session.sessions = 0, None
        session.unread.clear()
        for request in tuple(session.running):
            session.cancel(request)

    def open(self, session: Session) -> None:
        """A session was opened, as the answer to its ``initialize`` said."""
        self._open[session.id] = session
        session.sessions = self
        self._kept += session.kept
        session_opened()

    def find(self, session_id: str) -> Session | None:
        """A session that is open."""
        return self._open.get(session_id)

    def forget(self, session: str | Session) -> None:
        """Count a session no longer: it has ended, and so do the calls that run in it.

        Args:
            session: The session, or the id of one over streamable HTTP.
        """
        found = self._open.get(session) if isinstance(session, str) else session
        if found is not None:
            self._forget(found)

    async def end_unused(self, end: Callable[[Session], Awaitable[Any]]) -> None:
        """End sessions as they come to be unused for too long; runs until it is cancelled.

        Args:
            end: Ends one session.
        """
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
            # What comes into being meanwhile has its whole time before it.
            await sleep(min(max(next_seconds, 0.0), self._idle_seconds, _LOOK_AT_LEAST_EVERY_SECONDS))

    def __len__(self) -> int:
        return len(self._open)


def session_opened() -> None:
    """A session over streamable HTTP was opened."""
    if (observer := switch.observer()) is not None:
        observer.session_opened()


def session_closed(session: Session) -> None:
    """A session over streamable HTTP has ended."""
    if (observer := switch.observer()) is not None:
        observer.session_closed(Peer("http", session.version or ""), monotonic() - session.opened_at)
