"""State of the sessions of a server's clients, in the memory of this process.

    handshake era, stdio ──> the session object     gone with the session or connection
    modern era over HTTP ──> the caller's name      gone when unused for as long as a session may be

A caller of the modern era without authentication has no state, since nothing tells it from others.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

from bridge.tools.session import MemoryState, SessionState, length_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.protocol.session import Session
    from bridge.server.exchange import ServedExchange
    from bridge.tools.caller import Caller

MAX_CALLERS = 10_000
"""Maximum number of callers whose state is kept; the longest unused one is dropped."""
MAX_BYTES_OF_CALLERS = 128 * 1024 * 1024
"""Maximum length of the values of all callers; the longest unused ones are dropped."""


class SessionStates:
    """State of all sessions of one server.

    Args:
        idle_seconds: Returns the seconds after which the state of an unused caller is dropped; None for never.
    """

    are_shared = False
    """True if all replicas find the state."""

    def __init__(self, idle_seconds: Callable[[], float | None]) -> None:
        self._idle_seconds = idle_seconds
        self._callers: OrderedDict[str, _CallerValues] = OrderedDict()
        self._bytes = 0

    def of(self, exchange: ServedExchange) -> SessionState | None:
        """Return the state for the code of an exchange; None if its client has no session."""
        session, caller = exchange.session or exchange.connection, exchange.origin.caller
        if session is not None:
            return self.of_session(session)
        return None if caller is None else self.of_caller(caller.name)

    def of_rerun(self, caller: Caller | None) -> SessionState | None:
        """Return the state for a task that another process has created; None if it is not in this process."""
        return None if caller is None or not self.are_shared else self.of_caller(caller.name)

    def of_session(self, session: Session) -> SessionState:
        """Return the state of a session, or of the client of a connection."""
        session.state_id = session.id or session.state_id or uuid4().hex
        return MemoryState(session.state_id, lambda: session.state, session.keep)

    def of_caller(self, name: str) -> SessionState:
        """Return the state of an authenticated caller."""
        return MemoryState(caller_id(name), lambda: self._values_of(name), lambda count: self._keep(name, count))

    def _values_of(self, name: str) -> dict[str, bytes]:
        idle_seconds, now = self._idle_seconds(), monotonic()
        while self._callers and idle_seconds is not None:
            oldest = next(iter(self._callers))
            if self._callers[oldest].used_at > now - idle_seconds:
                break
            self._drop(oldest)
        found = self._callers.get(name)
        if found is None:
            if len(self._callers) >= MAX_CALLERS:
                self._drop(next(iter(self._callers)))
            found = self._callers[name] = _CallerValues()
        self._callers.move_to_end(name)
        found.used_at = now
        return found

    def _keep(self, name: str, count: int) -> bool:
        self._bytes += count
        while self._bytes > MAX_BYTES_OF_CALLERS and (oldest := next(iter(self._callers))) != name:
            self._drop(oldest)
        return True

    def _drop(self, name: str) -> None:
        self._bytes -= sum(length_of(key, text) for key, text in self._callers.pop(name).items())


class _CallerValues(dict[str, bytes]):
    """The values of one caller."""

    used_at = 0.0


def caller_id(name: str) -> str:
    """Return the id of the session of an authenticated caller."""
    return f"caller:{name}"
