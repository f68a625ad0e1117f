"""Sessions of the handshake era over streamable HTTP, as far as others than the SDK have to know them.

The SDK makes them, owns them and answers for them. What is known here is read off the requests and answers that pass,
so that calls in a session can take the fast path, and so that requests there count as use of the session.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from anyio import sleep

from bridge.server.telemetry_sessions import session_closed, session_opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

IDLE_SECONDS = 30 * 60.0
"""How long a session may go unused unless told otherwise: 30 minutes, as in the SDK."""

DEFAULT_MAX_SESSIONS = 10_000
"""How many sessions may be open unless told otherwise."""

SESSION = "bridge.session"
"""Where a request's scope has its `Session`."""

_LOOK_AT_LEAST_EVERY_SECONDS = 60.0


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
    """

    __slots__ = (
        "asked",
        "capabilities",
        "id",
        "opened_at",
        "owner",
        "requests",
        "running",
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
        """The time during which the SDK has a request; its id is used until then, and until it is handled.

        Args:
            request: The request's id.
        """
        key = str(request)
        self.asked[key] = False
        try:
            with self:
                yield
        finally:
            if self.asked.get(key) is False:  # refused before a handler began
                del self.asked[key]

    @contextmanager
    def handling(self, request: object) -> Iterator[None]:
        """The time during which a handler runs, whether anybody waits for its answer or not."""
        key = str(request)
        self.asked[key] = True
        try:
            yield
        finally:
            self.asked.pop(key, None)

    def use(self) -> None:
        """A request of it was answered at once."""
        self.unused_since = monotonic()

    def cancel(self, request: object) -> None:
        """End a call that runs beside the SDK, if there is one of that id."""
        end = self.running.pop(str(request), None) if type(request) in {int, str} else None
        if end is not None:
            end()


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

    def is_room(self) -> bool:
        """Whether one more session may be open."""
        return len(self._open) + self._opening.total() < self.max_sessions

    def to_end_for(self, owner: str) -> Session | None:
        """Where there is no room, the session to end so that a caller may have one; None where the caller has to wait.

        That is one of whoever has most of them, and more than the caller would have: of those that nobody uses, the one
        unused for longest. So a caller who opens sessions without end takes only what nobody else wants.
        """
        held = Counter(session.owner for session in self._open.values()) + self._opening
        ((most, count),) = held.most_common(1)
        if count <= held[owner] + 1:
            return None
        unused = (each for each in self._open.values() if each.owner == most and not each.requests)
        return min(unused, key=lambda each: each.unused_since, default=None)

    def open(self, session: Session) -> None:
        """A session was opened, as the answer to its ``initialize`` said."""
        self._open[session.id] = session
        session_opened()

    def find(self, session_id: str) -> Session | None:
        """A session that is open."""
        return self._open.get(session_id)

    def forget(self, session_id: str) -> None:
        """A session has ended: so do the calls that run in it."""
        session = self._open.pop(session_id, None)
        if session is not None:
            session_closed(session)
            for request in tuple(session.running):
                session.cancel(request)

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
