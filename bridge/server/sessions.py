"""Sessions of the handshake era over streamable HTTP, as far as others than the SDK have to know them.

The SDK makes them, owns them and answers for them. What is known here is read off the requests and answers that pass,
so that calls in a session can take the fast path, and so that requests there count as use of the session.
"""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Any

from anyio import sleep

from bridge.server.telemetry_sessions import session_closed, session_opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

IDLE_SECONDS = 30 * 60.0
"""How long a session may go unused unless told otherwise: 30 minutes, as in the SDK."""

_LOOK_AT_LEAST_EVERY_SECONDS = 60.0


class Session:
    """One session. It is entered while a request of it is answered: ``with session: …``.

    Attributes:
        id: What the client sends in ``Mcp-Session-Id``.
        version: The revision of the protocol that was agreed on; None where that is not known, as before the answer to
            ``initialize`` has passed, and where that is an error.
        user: Who opened it, as the transport's authentication put it into the request; None where nobody asked.
        capabilities: What the client declared, in MCP's JSON.
        running: What ends each of the calls that run beside the SDK, by the request's id as text: ``7`` and ``"7"`` are
            one, as for the SDK.
        opened_at: When it was opened, by `time.monotonic`.
    """

    __slots__ = ("capabilities", "id", "opened_at", "requests", "running", "unused_since", "user", "version")

    def __init__(self, session_id: str, user: object, capabilities: Mapping[str, Any]) -> None:
        self.id = session_id
        self.version: str | None = None
        self.user = user
        self.capabilities = capabilities
        self.running: dict[str, Callable[[], object]] = {}
        self.requests = 0
        """How many requests are being answered, open streams included."""
        self.opened_at = self.unused_since = monotonic()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        self.unused_since = monotonic()

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
    """

    def __init__(self, idle_seconds: float | None = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._open: dict[str, Session] = {}

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
