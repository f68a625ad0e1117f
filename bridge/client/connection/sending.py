"""One request to a server, sent over as many sessions as needed.

response ─────────────────────────────────────────────────> result, or the server's error
connection lost ──> never ran, or repeatable ─────────────> check the server ──> send again
      ╰───────────> may have run ─────────────────────────> outcome unknown
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio
from mcp import MCPError
from mcp_types import HEADER_MISMATCH
from pydantic import ValidationError

from bridge.client.auth.errors import SignInError
from bridge.client.connection.failures import is_bare_http_error, is_connection_loss
from bridge.client.connection.listing import list_all_pages
from bridge.client.connection.session import UnauthorizedError
from bridge.client.transports.channel import OutgoingRequest
from bridge.client.transports.http_client import UNAUTHORIZED
from bridge.client.transports.limits import ResponseTooLongError
from bridge.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.client.connection.call import Call
    from bridge.client.connection.session import Session
    from bridge.client.connection.supervisor import Supervisor
    from bridge.client.transports.plain_responses import BegunRequest

_T = TypeVar("_T")

MAX_SENDS = 3
"""Maximum sends of a repeatable call."""

_MAX_SESSIONS = 2
"""Maximum sends of other calls, if the server rejects the session and so did not run them."""

_EXIT_CODE_SECONDS = 0.5


class Sending:
    """Sends one request, with retries."""

    __slots__ = (
        "_begun",
        "_has_relisted",
        "_is_for_somebody",
        "_is_repeatable",
        "_outgoing",
        "_phase",
        "_sends",
        "_session",
        "_supervisor",
    )

    def __init__(
        self,
        supervisor: Supervisor,
        phase: str,
        *,
        is_repeatable: bool,
        has_caller: bool = True,
        begun: BegunRequest | None = None,
        session: Session | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._phase = phase
        self._is_repeatable = is_repeatable
        self._is_for_somebody = has_caller
        self._session = session
        self._outgoing: OutgoingRequest | None = None
        self._sends = 0
        self._begun = begun
        self._has_relisted = False

    async def through(self, call: Call, ask: Callable[[Session, OutgoingRequest], Awaitable[_T]]) -> _T:
        """Send until there is a response or a reason not to retry."""
        wait_seconds = self._supervisor.config.connect_wait_seconds
        waited_until: float | None = None
        while True:
            begun, self._begun = self._begun, None
            session = self._supervisor.ready_session if begun is None else self._session
            if session is None:
                session = await self._supervisor.usable(self._phase, wait_seconds)
            self._session = session
            outgoing = self._outgoing = OutgoingRequest(call) if begun is None else begun.outgoing
            session.calls.add(call)
            if begun is not None:
                outgoing.call = call
                session.leave(begun)
            try:
                return await ask(session, outgoing)
            except MCPError as error:
                must_check = await self._decide(session, outgoing, error)
            except (ValidationError, WireError) as error:
                raise self._supervisor.failures.unreadable(self._phase, error) from error
            except BaseException:
                if self._is_for_somebody:
                    session.cancel_request(outgoing)
                raise
            finally:
                session.leave(call)
            now = anyio.current_time()
            waited_until = waited_until or now + wait_seconds
            wait_seconds = max(0.0, waited_until - now)
            if must_check:
                await _examined(session)

    def unanswered(self, call: Call) -> Exception:
        """Create the error for a cancelled call or a timeout."""
        is_idle = call.is_idle_too_long
        if is_idle and self._session is not None:
            self._session.suspect()  # running calls suppress the regular health check
        return self._supervisor.failures.timed_out(
            self._phase,
            call.idle_seconds if is_idle else call.max_seconds,
            is_idle=is_idle,
            sent=self._outgoing is not None and self._outgoing.sent,
            session=self._session,
        )

    async def _decide(self, session: Session, outgoing: OutgoingRequest, error: MCPError) -> bool:
        """Return if the request must be sent again; True means that the server must be checked first.

        Raises:
            ServerError: The request must not be sent again.
        """
        failures = self._supervisor.failures
        if outgoing.expired:
            self._sends += 1
            if self._sends >= (MAX_SENDS if self._is_repeatable else _MAX_SESSIONS):
                raise failures.lost(session, phase=self._phase) from error
            return False
        if isinstance(outgoing.failure, ResponseTooLongError):
            raise failures.unreadable(self._phase, outgoing.failure) from error
        if isinstance(outgoing.failure, SignInError):
            raise failures.not_allowed(self._phase, outgoing.failure) from error
        if outgoing.status == UNAUTHORIZED and not outgoing.sent:
            raise failures.not_allowed(self._phase, UnauthorizedError(UNAUTHORIZED)) from error
        if error.code == HEADER_MISMATCH and session.era == "modern" and not self._has_relisted:
            await self._relist(session)
            return False
        if not is_connection_loss(error, session, outgoing) and not is_bare_http_error(error, outgoing.status):
            raise failures.refused(self._phase, error, outgoing.status, outgoing.failure) from error
        self._sends += outgoing.sent
        if outgoing.sent and not (self._is_repeatable and self._sends < MAX_SENDS):
            await session.channel.settle(_EXIT_CODE_SECONDS)
            session.suspect()
            raise failures.outcome_unknown(self._phase, session, outgoing.failure or error) from error
        return True

    async def _relist(self, session: Session) -> None:
        """List the tools again, since the server requires headers declared in their schemas."""
        self._has_relisted = True
        try:
            await list_all_pages(session)
        except MCPError as error:
            raise self._supervisor.failures.refused(self._phase, error, None) from error
        except (ValidationError, WireError) as error:
            raise self._supervisor.failures.unreadable(self._phase, error) from error


async def _examined(session: Session) -> None:
    """Wait for a health check of a session."""
    if not session.ended.is_set():
        session.suspect()
        await session.checked.wait()
