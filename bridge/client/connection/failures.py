"""Translation of foreign errors to `ServerError` with a reason and a hint.

All translation is done in this module. An ExceptionGroup is reduced to its first leaf.
"""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2

from bridge.client.auth.errors import BY_A_KEY, UnauthorizedError
from bridge.client.transports.link import Cause, HttpStatusError, SessionExpiredError, TransportFailedError
from bridge.client.transports.refusals import reason_in
from bridge.errors import (
    OutcomeUnknownError,
    ServerAnswerError,
    ServerAuthError,
    ServerError,
    ServerFailure,
    ServerRefusedError,
    ServerTimeoutError,
    ServerUnavailableError,
)
from bridge.protocol.messages import ProtocolError
from bridge.protocol.negotiation import VersionError
from bridge.protocol.peer import PeerLostError
from bridge.protocol.results import InvalidResultError, reason_of
from bridge.protocol.versions import UNSUPPORTED_VERSION
from bridge.text import with_count

if TYPE_CHECKING:
    from bridge.client.auth.errors import SignInError
    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.session import Session

_BAD_REQUEST, _SERVER_ERROR = 400, 500
_MAX_REASON_CHARS = 500


class ErrorTranslator:
    """Creates the errors of one server."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config

    def unavailable(self, error: BaseException, session: Session) -> ServerUnavailableError:
        """Error for a server that could not be started or reached, or whose handshake failed."""
        return self._unavailable(self._config.transport.opening_phase, _cause_of_start(_leaf(error), session), session)

    def too_slow(self, session: Session) -> ServerUnavailableError:
        """Error for a server that did not complete the handshake in time."""
        cause = Cause(
            f"no handshake within {with_count(self._config.connect_timeout_seconds, 'second')}",
            "check what it is waiting for, or raise 'connectTimeoutSeconds'",
        )
        return self._unavailable(self._config.transport.opening_phase, cause, session)

    def lost(
        self, session: Session, error: BaseException | None = None, *, phase: str = "connected"
    ) -> ServerUnavailableError:
        """Error for a server that was ready and was lost."""
        return self._unavailable(phase, _cause_of_loss(session, error), session)

    def closed(self, phase: str) -> ServerUnavailableError:
        """Error for a connection that is closed or was not opened."""
        return self._unavailable(phase, Cause("the connection is not open", "open it first"))

    def not_in_time(self, phase: str, last: ServerError | None, hint: str | None = None) -> ServerUnavailableError:
        """Error for a call that waited for a ready server until its time limit, or does not wait, as a hint says."""
        if last is None:
            wait = f"did not become ready within {with_count(self._config.connect_wait_seconds, 'second')}"
            return self._unavailable(phase, Cause(wait, "it is still being started"))
        again = replace(last.failure, phase=phase, reason=f"it is not available: {last.failure.reason}")
        again = again if hint is None else replace(again, hint=hint)
        return ServerAuthError(again) if isinstance(last, ServerAuthError) else ServerUnavailableError(again)

    def outcome_unknown(self, phase: str, session: Session, error: BaseException) -> OutcomeUnknownError:
        """Error for a call that may have run but whose response is lost."""
        cause = _cause_of_loss(session, error)
        reason = f"{cause.reason}; it may have run: the outcome is unknown"
        return OutcomeUnknownError(self._failure(phase, Cause(reason, cause.hint), session))

    def timed_out(
        self, phase: str, seconds: float, *, is_idle: bool, sent: bool, session: Session | None
    ) -> ServerError:
        """Error for a call that took too long."""
        without = " without progress" if is_idle else ""
        reason = f"no answer within {with_count(seconds, 'second')}{without}"
        key = "timeout" if is_idle else "maxCallSeconds"
        is_ours = is_idle or seconds >= self._config.max_call_seconds
        hint = f"raise {key!r} if the tool is slow" if is_ours else "the caller's deadline has passed"
        if not sent:
            return self._unavailable(phase, Cause(reason), session)
        reason += "; it was cancelled: the outcome is unknown"
        return ServerTimeoutError(self._failure(phase, Cause(reason, hint), session))

    def task_unfinished(self, phase: str, seconds: float, *, is_idle: bool) -> ServerTimeoutError:
        """Error for a task that somebody has waited for too long, and that goes on."""
        without = " without an answer of the server" if is_idle else ""
        reason = f"it has not ended within {with_count(seconds, 'second')}{without}"
        return ServerTimeoutError(self._failure(phase, Cause(reason, "wait for it again: it was not cancelled")))

    def task_lost(self, phase: str, reason: str) -> OutcomeUnknownError:
        """Error for a task whose outcome cannot be found out."""
        return OutcomeUnknownError(self._failure(phase, Cause(f"{reason}: the outcome is unknown")))

    def not_allowed(self, phase: str, error: SignInError | UnauthorizedError) -> ServerAuthError:
        """Error for a call that needs credentials or another login."""
        cause = _auth(error) if isinstance(error, UnauthorizedError) else _of_sign_in(error)
        return ServerAuthError(self._failure(phase, cause))

    def refused(
        self, phase: str, error: ProtocolError, status: int | None, seen: Exception | None = None
    ) -> ServerRefusedError:
        """Error for a call that the server answered with an error; `seen` is the transport's error, if any."""
        cause = self._config.transport.explain_refusal(seen) if seen is not None else None
        if cause is not None:
            return ServerRefusedError(self._failure(phase, cause), error.code, error.message, error.data)
        message = (reason_in(seen.response) if isinstance(seen, httpx2.HTTPStatusError) else "") or error.message
        words = f"{self._scrubbed(message)} ({error.code})"
        if status is not None and status >= _BAD_REQUEST:
            words += f", HTTP {status}"
        return ServerRefusedError(self._failure(phase, Cause(words)), error.code, message, error.data)

    def unreadable(self, phase: str, error: Exception) -> ServerAnswerError:
        """Error for a response that violates the protocol."""
        detail = f": {reason_of(error) if isinstance(error, InvalidResultError) else error}"
        return ServerAnswerError(self._failure(phase, Cause(f"its response is not valid MCP{detail}")))

    def _unavailable(self, phase: str, cause: Cause, session: Session | None = None) -> ServerUnavailableError:
        failure = self._failure(phase, cause, session)
        return ServerAuthError(failure) if cause.is_auth else ServerUnavailableError(failure)

    def _failure(self, phase: str, cause: Cause, session: Session | None = None) -> ServerFailure:
        return ServerFailure(
            server=self._config.name,
            phase=phase,
            reason=self._scrubbed(cause.reason),
            address=self._config.transport.redacted(),
            hint=cause.hint,
            last_words=session.link.last_words if session is not None else (),
            exit_code=session.link.exit_code if session is not None else None,
            is_permanent=cause.is_permanent,
        )

    def _scrubbed(self, text: str) -> str:
        return self._config.transport.scrub(text[:_MAX_REASON_CHARS])


def is_refusal(error: BaseException) -> bool:
    """True if a server answered a handshake, and not with what was expected."""
    leaf = _leaf(error)
    return isinstance(leaf, ProtocolError | InvalidResultError | VersionError) and not isinstance(leaf, HttpStatusError)


def is_bare_http_error(error: ProtocolError, status: int | None) -> bool:
    """True if a server or proxy failed with an HTTP status and no protocol error."""
    return isinstance(error, HttpStatusError) and status is not None and status >= _SERVER_ERROR


def _auth(reason: UnauthorizedError) -> Cause:
    if (why := reason.why) is not None:
        return _of_sign_in(why)
    hint = f"the key is missing, wrong or expired: give one {BY_A_KEY}"
    return Cause(f"it asks for credentials (HTTP {reason.status})", hint, is_permanent=True, is_auth=True)


def _of_sign_in(error: SignInError) -> Cause:
    return Cause(str(error), error.hint, is_permanent=error.is_permanent, is_auth=True)


def _cause_of_start(error: BaseException, session: Session) -> Cause:
    if isinstance(session.reason, UnauthorizedError):
        return _auth(session.reason)
    if isinstance(session.reason, Exception):
        return _cause_of_error(session.reason, session)
    if (cause := session.link.explain_start(error)) is not None:
        return cause
    if isinstance(error, ProtocolError):
        return Cause(f"{error.message} ({error.code})", is_permanent=error.code == UNSUPPORTED_VERSION)
    if isinstance(error, InvalidResultError):
        return Cause("its handshake is not valid MCP", "is it an MCP server?")
    return _cause_of_error(error, session)


def _cause_of_loss(session: Session, error: BaseException | None) -> Cause:
    reason = session.reason or (_leaf(error) if error is not None else None)
    if isinstance(reason, UnauthorizedError):
        return _auth(reason)
    if reason is None or (isinstance(reason, PeerLostError) and reason.__cause__ is None):
        return session.link.explain_loss()
    return _cause_of_error(reason, session)


def _cause_of_error(error: BaseException, session: Session) -> Cause:
    if isinstance(error, TransportFailedError):
        return error.cause
    if isinstance(error, SessionExpiredError):
        return Cause(str(error))
    if (cause := session.link.explain_error(error)) is not None:
        return cause
    if isinstance(error, TimeoutError):
        return Cause("it does not respond to health checks")
    return _cause_of_network(error, _root(error))


def _cause_of_network(error: BaseException, root: BaseException) -> Cause:
    if isinstance(root, ssl.SSLError):
        return Cause(f"TLS: {root.reason or root}", "check the certificate, or use http:// instead of https://")
    if isinstance(root, ConnectionRefusedError):
        return Cause("connection refused", "is the server running, and on that port?")
    if isinstance(root, OSError) and root.strerror:
        return Cause(root.strerror)
    return Cause(str(error).splitlines()[0] if str(error) else type(error).__name__)


def _root(error: BaseException) -> BaseException:
    """Find the root cause of a network error."""
    seen = {id(error)}
    while (below := _leaf(error).__cause__ or error.__context__) is not None and id(below) not in seen:
        seen.add(id(below))
        error = _leaf(below)
        if isinstance(error, ssl.SSLError) or (isinstance(error, OSError) and error.strerror):
            break
    return error


def _leaf(error: BaseException) -> BaseException:
    """First leaf of an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
