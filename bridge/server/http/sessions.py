"""Sessions of streamable HTTP.

Sessions of the handshake era over streamable HTTP, as far as others than the SDK have to know them.

The SDK makes them, owns them and answers for them. What is known here is read off the requests and answers that pass,
so that calls in a session can take the fast path, and so that requests there count as use of the session.

Sessions of clients, as an observer is told of them.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

from anyio import sleep
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers

from bridge.server.protocol import HANDSHAKE_VERSIONS
from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from starlette.types import Message, Scope, Send

_logger = logging.getLogger("bridge.server")

IDLE_SECONDS = 30 * 60.0
"""How long a session may go unused unless told otherwise: 30 minutes, as in the SDK."""

DEFAULT_MAX_SESSIONS = 10_000
"""How many sessions may be open unless told otherwise."""

SESSION = "bridge.session"
"""Where a request's scope has its `Session`."""

MAX_KEPT_BYTES = 256 * 1024
"""Maximum memory of what a client says of itself and its session keeps, as `kept_bytes` estimates it."""

MAX_KEPT_BYTES_OF_ALL = 128 * 1024 * 1024
"""The same of all sessions together."""

MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Maximum length of the answers of a session that wait to be sent; the session is ended over it."""

MAX_UNREAD_BYTES_OF_ALL = 256 * 1024 * 1024
"""The same of all sessions together; over it the session is ended that has most."""

_LOOK_AT_LEAST_EVERY_SECONDS = 60.0

_BYTES_OF_A_VALUE = 256
"""Memory that one value of JSON takes at most, beside its text, in all forms in which it is kept."""

_BYTES_OF_AN_ANSWER = 2 * 1024
"""Memory that an answer takes that waits to be sent, beside its text."""

KEPT_METHODS = frozenset({"initialize", "notifications/initialized"})
"""Messages that a session keeps for as long as it is open."""


def kept_bytes(body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> int:
    """Estimate, from above, the memory that a message takes once it is parsed and kept.

    Args:
        body: The message as it came.
        headers: Those of the request that brought it, where they are kept, too.
    """
    values = sum(body.count(each) for each in b",{[")
    return 2 * len(body) + _BYTES_OF_A_VALUE * values + sum(len(name) + len(value) for name, value in headers)


def told_too_much(kept: int) -> str:
    """The message for a client that says more of itself than its session may keep."""
    return (
        f"what a session keeps of its client takes {kept} bytes here, and may take {MAX_KEPT_BYTES}: "
        "send less in 'capabilities' and 'clientInfo'"
    )


class Session:
    """One session. It is entered while a request of it is answered, and while a call of it runs: ``with session: …``.

    Attributes:
        id: What the client sends in ``Mcp-Session-Id``.
        version: The revision of the protocol that was agreed on; None where that is not known, as before the answer to
            ``initialize`` has passed, and where that is an error.
        user: Who opened it, as the transport's authentication put it into the request; None where nobody asked.
        capabilities: What the client declared, in MCP's JSON.
        running: What ends each of the calls that run beside the SDK, by the request's id as text: ``7`` and ``"7"`` are
            one, as for the SDK.
        asked: Ids, as text, of the requests that the SDK has got and not handled yet; true once a handler has begun.
        opened_at: When it was opened, by `time.monotonic`.
        owner: Which of the callers opened it.
        kept: How much memory it keeps of what its client said of itself, as `kept_bytes` estimates it.
        streams: Number of its streams that are open and belong to no call.
        end: Ends it at once; None for one of streamable HTTP, which its endpoint ends.
    """

    __slots__ = (
        "asked",
        "capabilities",
        "end",
        "id",
        "is_stored",
        "kept",
        "opened_at",
        "owner",
        "posts",
        "requests",
        "running",
        "sessions",
        "streams",
        "unread",
        "unread_bytes",
        "unused_since",
        "user",
        "version",
    )

    def __init__(self, session_id: str, user: object, capabilities: Mapping[str, Any], owner: str = "") -> None:
        self.id = session_id
        self.owner = owner
        self.version: str | None = None
        self.user = user
        self.capabilities = capabilities
        self.running: dict[str, Callable[[], object]] = {}
        self.asked: dict[str, bool] = {}
        self.kept = 0
        self.streams = 0
        self.end: Callable[[], object] | None = None
        self.sessions: Sessions | None = None
        """Those among which it is counted."""
        self.unread: dict[str, int] = {}
        """Length of the answers that wait to be sent, by their requests' ids as text."""
        self.unread_bytes = 0
        self.posts: set[str] = set()
        """Ids, as text, of the requests whose answers are waited for by requests over HTTP."""
        self.is_stored = False
        """Whether answers are kept also for nobody, until they are stored."""
        self.requests = 0
        """How many requests are being answered, open streams included, and how many calls run in the SDK."""
        self.opened_at = self.unused_since = monotonic()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        self.unused_since = monotonic()

    @contextmanager
    def posting(self, request: object) -> Iterator[None]:
        """The time during which the SDK has the request of an id, which is in use until it is handled."""
        key = str(request)
        self.asked[key] = False
        self.posts.add(key)
        try:
            with self:
                yield
        finally:
            self.posts.discard(key)
            if self.asked.get(key) is False:  # refused before a handler began
                del self.asked[key]
            if self.sessions is not None:
                self.sessions.sent(self, key)

    @contextmanager
    def handling(self, request: object) -> Iterator[None]:
        """The time during which a handler runs, whether anybody waits for its answer or not."""
        key = str(request)
        self.asked[key] = True
        try:
            yield
        finally:
            self.asked.pop(key, None)

    def owe(self, request: object, answer: object) -> None:
        """Note the answer to the request of an id, None for an error, if the client waits for it."""
        # Over SSE every answer goes to the one stream.
        if self.sessions is not None and (self.end is not None or self.is_stored or str(request) in self.posts):
            self.sessions.answered(self, str(request), answer)

    def stored(self, request: str) -> None:
        """Note that an answer was stored, for which nobody may wait."""
        if self.sessions is not None and request not in self.posts:
            self.sessions.sent(self, request)

    def use(self) -> None:
        """A request of it was answered at once."""
        self.unused_since = monotonic()

    def cancel(self, request: object) -> None:
        """End a call that runs beside the SDK, if there is one of that id."""
        end = self.running.pop(str(request), None) if type(request) in {int, str} else None
        if end is not None:
            end()


def _end_over_sse(session: Session) -> None:
    if session.end is not None:
        session.end()


class Sessions:
    """The sessions that are open.

    Args:
        idle_seconds: How long a session may go unused; None for as long as the server runs.
        max_sessions: How many may be open.
    """

    def __init__(self, idle_seconds: float | None = IDLE_SECONDS, max_sessions: int = DEFAULT_MAX_SESSIONS) -> None:
        self.max_sessions = max_sessions
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

    def answered(self, session: Session, request: str, answer: object) -> None:
        """Note an answer that is to be sent; where too many wait, the session is ended that has most of them.

        Args:
            session: The session.
            request: The request's id, as text.
            answer: Its result; None for an error.
        """
        self.sent(session, request)
        # One that waits alone is not measured: mostly it is sent at once.
        text_bytes = len(to_json(answer, serialize_unknown=True)) if session.unread and answer is not None else 0
        length = session.unread[request] = text_bytes + _BYTES_OF_AN_ANSWER
        session.unread_bytes += length
        self._unread += length
        if session.unread_bytes > MAX_UNREAD_BYTES:
            self._cut_off(session)
        elif self._unread > MAX_UNREAD_BYTES_OF_ALL:
            self._cut_off(max(self._all, key=lambda each: each.unread_bytes))

    def sent(self, session: Session, request: str) -> None:
        """Note that an answer was sent, or that nobody waits for it any more."""
        length = session.unread.pop(request, 0)
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


def same_credential(scope: Scope, session: Session) -> bool:
    """Whether a request carries the credential that opened a session, as the SDK compares them."""
    user = scope.get("user")
    if user is session.user or user is None or session.user is None:
        return user is session.user
    from mcp.server.auth.middleware.bearer_auth import (  # noqa: PLC0415 - needed only where there are credentials
        AuthenticatedUser,
        authorization_context,
    )

    contexts = [
        authorization_context(each) if isinstance(each, AuthenticatedUser) else None for each in (user, session.user)
    ]
    return contexts[0] == contexts[1]


class InitializeResponse:
    """The answer to ``initialize`` on its way to the client: what it says of the session that it opens.

    Args:
        send: Where it goes.
        opened: Called, before the client can know, with the session's id; gives the session, which gets its version.
    """

    def __init__(self, send: Send, opened: Callable[[str], Session]) -> None:
        self._send = send
        self._opened = opened
        self._session: Session | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """Let a part of the answer through."""
        if message["type"] == "http.response.start":
            session_id = Headers(raw=message["headers"]).get("mcp-session-id")
            if message["status"] == HTTPStatus.OK and session_id is not None:
                self._session = self._opened(session_id)
        elif self._session is not None:
            self._body += message.get("body", b"")
            if (version := self._version()) is not None:
                self._session.version = version
                self._session = None
        await self._send(message)

    def _version(self) -> str | None:
        # One message, as server-sent events or as JSON: the events' only line of data, or the whole.
        for line in self._body.splitlines():
            try:
                version = from_json(line.removeprefix(b"data: "))["result"]["protocolVersion"]
            except (ValueError, KeyError, TypeError):
                continue
            return version if version in HANDSHAKE_VERSIONS else None
        return None


def session_opened() -> None:
    """A session over streamable HTTP was opened."""
    if (observer := switch.observer()) is not None:
        observer.session_opened()


def session_closed(session: Session) -> None:
    """A session over streamable HTTP has ended."""
    if (observer := switch.observer()) is not None:
        observer.session_closed(Peer("http", session.version or ""), monotonic() - session.opened_at)
