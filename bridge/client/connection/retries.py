"""One request to a server, sent over as many sessions as needed.

response ─────────────────────────────────────────────────> result, or the server's error
connection lost ──> never ran, or repeatable ─────────────> check the server ──> send again
      ╰───────────> may have run ─────────────────────────> outcome unknown
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio

from bridge.client.auth.errors import SignInError, UnauthorizedError
from bridge.client.connection.failures import is_bare_http_error
from bridge.client.connection.listing import list_all_pages
from bridge.client.transports.received_data import ResponseTooLongError
from bridge.errors import WireError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import PeerLostError, PendingRequest
from bridge.protocol.results import InvalidResultError
from bridge.protocol.versions import HEADER_MISMATCH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.client.connection.direct_calls import DirectCall
    from bridge.client.connection.running_call import Call
    from bridge.client.connection.session import Session
    from bridge.client.connection.supervisor import Supervisor

_T = TypeVar("_T")

MAX_SENDS = 3
"""Maximum sends of a repeatable call."""

_MAX_SESSIONS = 2
"""Maximum sends of other calls, if the server rejects the session and so did not run them."""

_EXIT_CODE_SECONDS = 0.5
UNAUTHORIZED = 401


class Sending:
    """Sends one request, with retries.

    Args:
        supervisor: The supervisor of the connection.
        phase: Operation in progress, for errors.
        is_repeatable: True if it may run more than once.
        has_caller: True if it is sent on behalf of a caller.
        first: The direct call whose request is the first, and its session; None if nothing was sent yet.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        phase: str,
        *,
        is_repeatable: bool,
        has_caller: bool = True,
        first: tuple[DirectCall, Session] | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._phase = phase
        self._is_repeatable = is_repeatable
        self._has_caller = has_caller
        self._first = first
        self._session: Session | None = None
        self._request: PendingRequest | None = None
        self._sends = 0
        self._has_relisted = False

    async def through(self, call: Call, ask: Callable[[Session, PendingRequest], Awaitable[_T]]) -> _T:
        """Send until there is a response or a reason not to retry."""
        wait_seconds = self._supervisor.config.connect_wait_seconds
        waited_until: float | None = None
        while True:
            session, request = await self._next(call, wait_seconds)
            self._session, self._request = session, request
            request.owner, call.request = call, request
            session.calls.add(call)
            try:
                return await ask(session, request)
            except (ProtocolError, PeerLostError) as error:
                must_check = await self._decide(session, request, error)
            except (InvalidResultError, WireError) as error:
                raise self._supervisor.failures.unreadable(self._phase, error) from error
            except BaseException:
                if self._has_caller:
                    session.cancel_request(request)
                raise
            finally:
                call.request = None
                session.leave(call)
            now = anyio.current_time()
            waited_until = waited_until or now + wait_seconds
            wait_seconds = max(0.0, waited_until - now)
            if must_check:
                await _examined(session)

    async def _next(self, call: Call, wait_seconds: float) -> tuple[Session, PendingRequest]:
        """Return the session to use, and a new request, or that of the direct call."""
        if self._first is not None:
            (direct, session), self._first = self._first, None
            direct.take(call)
            return session, direct.request
        session = self._supervisor.ready_session or await self._supervisor.usable(self._phase, wait_seconds)
        request = PendingRequest()
        request.work = call.work
        return session, request

    def unanswered(self, call: Call) -> Exception:
        """Create the error for a cancelled call or a timeout."""
        is_idle = call.is_idle_too_long
        if is_idle and self._session is not None:
            self._session.suspect()  # running calls suppress the regular health check
        return self._supervisor.failures.timed_out(
            self._phase,
            call.idle_seconds if is_idle else call.max_seconds,
            is_idle=is_idle,
            sent=self._request is not None and self._request.is_sent,
            session=self._session,
        )

    async def _decide(self, session: Session, request: PendingRequest, error: ProtocolError | PeerLostError) -> bool:
        """Return if the request must be sent again; True means that the server must be checked first.

        Raises:
            ServerError: The request must not be sent again.
        """
        failures = self._supervisor.failures
        if request.has_expired:
            self._sends += 1
            if self._sends >= (MAX_SENDS if self._is_repeatable else _MAX_SESSIONS):
                raise failures.lost(session, phase=self._phase) from error
            return False
        if isinstance(request.failure, ResponseTooLongError):
            raise failures.unreadable(self._phase, request.failure) from error
        if isinstance(request.failure, SignInError):
            raise failures.not_allowed(self._phase, request.failure) from error
        if request.status == UNAUTHORIZED and not request.is_sent:
            raise failures.not_allowed(self._phase, UnauthorizedError(UNAUTHORIZED)) from error
        if isinstance(error, ProtocolError):
            if error.code == HEADER_MISMATCH and session.era == "modern" and not self._has_relisted:
                await self._relist(session)
                return False
            if not is_bare_http_error(error, request.status):
                raise failures.refused(self._phase, error, request.status, request.failure) from error
        self._sends += request.is_sent
        if request.is_sent and not (self._is_repeatable and self._sends < MAX_SENDS):
            await session.link.settle(_EXIT_CODE_SECONDS)
            session.suspect()
            raise failures.outcome_unknown(self._phase, session, request.failure or error) from error
        return True

    async def _relist(self, session: Session) -> None:
        """List the tools again, since the server requires headers declared in their schemas."""
        self._has_relisted = True
        try:
            await list_all_pages(session)
        except ProtocolError as error:
            raise self._supervisor.failures.refused(self._phase, error, None) from error
        except PeerLostError as error:
            raise self._supervisor.failures.lost(session, error, phase=self._phase) from error
        except (InvalidResultError, WireError) as error:
            raise self._supervisor.failures.unreadable(self._phase, error) from error


async def _examined(session: Session) -> None:
    """Wait for a health check of a session."""
    if not session.ended.is_set():
        session.suspect()
        await session.checked.wait()
