"""Translation of foreign errors to `ServerError` with a reason and a hint.

All translation is done in this module. An ExceptionGroup is reduced to its first leaf.
"""

from __future__ import annotations

import shlex
import shutil
import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import httpx2
from mcp import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from bridge.client.config.servers import HttpTransport, StdioTransport, UnusableTransport
from bridge.client.connection.session import SessionExpiredError, UnauthorizedError
from bridge.client.transports.http_client import CONNECTION_CLOSED
from bridge.client.transports.limits import ResponseTooLongError
from bridge.client.transports.sse_streams import NO_WORDS
from bridge.client.transports.stdio_streams import LineTooLongError, NoProtocolError
from bridge.errors import (
    OutcomeUnknownError,
    ServerAnswerError,
    ServerAuthError,
    ServerError,
    ServerFailure,
    ServerRefusedError,
    ServerTimeoutError,
    ServerUnavailableError,
    WireError,
)
from bridge.text import with_count

if TYPE_CHECKING:
    from bridge.client.auth.errors import SignInError
    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.requests import OutgoingRequest
    from bridge.client.connection.session import Session

_FORBIDDEN = 403
_SERVER_ERROR = 500
_MAX_REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class _Cause:
    """Reason of a failure."""

    reason: str
    hint: str | None = None
    is_permanent: bool = False
    is_auth: bool = False


class ErrorTranslator:
    """Creates the errors of one server.

    Args:
        config: The server.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config

    def unavailable(self, error: BaseException, link: Session) -> ServerUnavailableError:
        """Error for a server that could not be started or reached, or whose handshake failed."""
        if isinstance(transport := self._config.transport, UnusableTransport):
            cause = _Cause(transport.reason, "fix its entry; other servers are not affected", is_permanent=True)
        else:
            cause = self._cause_of_start(_leaf(error), link)
        return self._unavailable(self._first_phase, cause, link)

    def too_slow(self, link: Session) -> ServerUnavailableError:
        """Error for a server that did not complete the handshake in time."""
        cause = _Cause(
            f"no handshake within {with_count(self._config.connect_timeout_seconds, 'second')}",
            "check what it is waiting for, or raise 'connectTimeoutSeconds'",
        )
        return self._unavailable(self._first_phase, cause, link)

    def lost(
        self, link: Session, error: BaseException | None = None, *, phase: str = "connected"
    ) -> ServerUnavailableError:
        """Error for a server that was ready and was lost."""
        return self._unavailable(phase, self._cause_of_loss(link, error), link)

    def closed(self, phase: str) -> ServerUnavailableError:
        """Error for a connection that is closed or was not opened."""
        return self._unavailable(phase, _Cause("the connection is not open", "open it first"))

    def not_in_time(self, phase: str, last: ServerError | None) -> ServerUnavailableError:
        """Error for a call that waited for a ready server until its time limit."""
        if last is None:
            wait = f"did not become ready within {with_count(self._config.connect_wait_seconds, 'second')}"
            return self._unavailable(phase, _Cause(wait, "it is still being started"))
        again = replace(last.failure, phase=phase, reason=f"it is not available: {last.failure.reason}")
        return ServerAuthError(again) if isinstance(last, ServerAuthError) else ServerUnavailableError(again)

    def outcome_unknown(self, phase: str, link: Session, error: BaseException) -> OutcomeUnknownError:
        """Error for a call that may have run but whose response is lost."""
        cause = self._cause_of_loss(link, error)
        reason = f"{cause.reason}; it may have run: the outcome is unknown"
        return OutcomeUnknownError(self._failure(phase, _Cause(reason, cause.hint), link))

    def timed_out(self, phase: str, seconds: float, *, is_idle: bool, sent: bool, link: Session | None) -> ServerError:
        """Error for a call that took too long."""
        without = " without progress" if is_idle else ""
        reason = f"no answer within {with_count(seconds, 'second')}{without}"
        key = "timeout" if is_idle else "maxCallSeconds"
        is_ours = is_idle or seconds >= self._config.max_call_seconds
        hint = f"raise {key!r} if the tool is slow" if is_ours else "the caller's deadline has passed"
        if not sent:
            return self._unavailable(phase, _Cause(reason), link)
        reason += "; it was cancelled: the outcome is unknown"
        return ServerTimeoutError(self._failure(phase, _Cause(reason, hint), link))

    def not_allowed(self, phase: str, error: SignInError | UnauthorizedError) -> ServerAuthError:
        """Error for a call that needs credentials or another login."""
        cause = _auth(error) if isinstance(error, UnauthorizedError) else _of_sign_in(error)
        return ServerAuthError(self._failure(phase, cause))

    def refused(
        self, phase: str, error: MCPError, status: int | None, seen: Exception | None = None
    ) -> ServerRefusedError:
        """Error for a call that the server answered with an error; `seen` is the transport's error, if any."""
        if isinstance(seen, httpx2.HTTPStatusError) and (scope := _missing_scope(seen.response)) is not None:
            cause = self._cause_of_scope(scope)
            return ServerRefusedError(self._failure(phase, cause), error.code, error.message, error.data)
        words = f"{self._scrubbed(error.message)} ({error.code})"
        if status is not None and status >= httpx2.codes.BAD_REQUEST:
            words += f", HTTP {status}"
        return ServerRefusedError(self._failure(phase, _Cause(words)), error.code, error.message, error.data)

    def unreadable(self, phase: str, error: Exception) -> ServerAnswerError:
        """Error for a response that violates the protocol."""
        detail = ""
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            detail = f": {'.'.join(map(str, first['loc']))}: {first['msg']}"
        elif isinstance(error, WireError | ResponseTooLongError):
            detail = f": {error}"
        return ServerAnswerError(self._failure(phase, _Cause(f"its response is not valid MCP{detail}")))

    # --- causes ------------------------------------------------------------------------------------------------------

    @property
    def _first_phase(self) -> str:
        return "starting" if isinstance(self._config.transport, StdioTransport) else "connecting"

    def _unavailable(self, phase: str, cause: _Cause, link: Session | None = None) -> ServerUnavailableError:
        failure = self._failure(phase, cause, link)
        return ServerAuthError(failure) if cause.is_auth else ServerUnavailableError(failure)

    def _failure(self, phase: str, cause: _Cause, link: Session | None = None) -> ServerFailure:
        child = link.child if link is not None else None
        return ServerFailure(
            server=self._config.name,
            phase=phase,
            reason=self._scrubbed(cause.reason),
            address=self._config.transport.redacted(),
            hint=cause.hint,
            last_words=child.last_words if child is not None else (),
            exit_code=child.exit_code if child is not None else None,
            is_permanent=cause.is_permanent,
        )

    def _scrubbed(self, text: str) -> str:
        return self._config.transport.scrub(text[:_MAX_REASON_CHARS])

    def _cause_of_start(self, error: BaseException, link: Session) -> _Cause:
        transport = self._config.transport
        if isinstance(transport, StdioTransport) and isinstance(error, OSError) and link.child is None:
            return _cause_of_spawn(error, transport)
        if isinstance(link.reason, UnauthorizedError):
            return _auth(link.reason)
        if isinstance(link.reason, Exception):
            return _cause_of_transport(link.reason)
        if isinstance(transport, HttpTransport) and link.status is not None and link.status >= httpx2.codes.BAD_REQUEST:
            return _cause_of_status(link.status, error)
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and link.child is not None:
            return _Cause("it ended before the handshake", "run the command by hand to see its output")
        return _cause_of_greeting(error)

    def _cause_of_scope(self, scope: str) -> _Cause:
        transport = self._config.transport
        assert isinstance(transport, HttpTransport)
        target = shlex.quote(transport.login_target or transport.redacted())
        asked = " ".join(f"--scope {shlex.quote(each)}" for each in scope.split())
        hint = f"grant it to the key or token; or remove its header, and run: bridge login {target} {asked}"
        return _Cause(f"the scope {scope!r} is missing (HTTP 403)", hint)

    def _cause_of_loss(self, link: Session, error: BaseException | None) -> _Cause:
        reason = link.reason or (_leaf(error) if error is not None else None)
        if isinstance(reason, UnauthorizedError):
            return _auth(reason)
        if link.child is not None and (reason is None or _is_closed(reason)):
            if link.child.exit_code is not None:
                return _Cause("the server's process has ended")
            return _Cause("the server's process has closed its output")
        if reason is None or _is_closed(reason):
            return _Cause("the connection was lost")
        return _cause_of_transport(reason)


def is_connection_loss(error: MCPError, link: Session, attempt: OutgoingRequest) -> bool:
    """True if the error was created locally for a lost connection; servers may use the same error code."""
    if error.code != CONNECTION_CLOSED:
        return False
    if not link.sees_attempts:
        return error.message == "Connection closed"
    return link.is_deaf or attempt.cut_off or (not attempt.sent and attempt.status is None)


def is_bare_http_error(error: MCPError, status: int | None) -> bool:
    """True if a server or proxy failed with an HTTP status and no protocol error."""
    return status is not None and status >= _SERVER_ERROR and error.message == NO_WORDS


def _missing_scope(response: httpx2.Response) -> str | None:
    """Scope required by a response; None if it names none."""
    from bridge.client.auth.challenge import parse_challenge  # noqa: PLC0415 - only for refused requests

    challenge = parse_challenge(response)
    return challenge.scope if challenge is not None and challenge.is_step_up else None


def _is_closed(error: BaseException) -> bool:
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


def _auth(reason: UnauthorizedError) -> _Cause:
    if (why := reason.why) is not None:
        return _of_sign_in(why)
    hint = "set an 'Authorization' header in 'headers', or renew it if it has expired"
    return _Cause(f"it asks for credentials (HTTP {reason.status})", hint, is_permanent=True, is_auth=True)


def _of_sign_in(error: SignInError) -> _Cause:
    return _Cause(str(error), error.hint, is_permanent=error.is_permanent, is_auth=True)


def _cause_of_spawn(error: OSError, transport: StdioTransport) -> _Cause:
    if transport.cwd is not None and error.filename == transport.cwd:
        return _Cause(f"cannot change to its folder {transport.cwd!r}: {error.strerror}", is_permanent=True)
    if isinstance(error, FileNotFoundError):
        hint = "install it, or give its full path: it is searched for in the PATH of the server's environment"
        program, *words = transport.command.split() or [""]
        if words and shutil.which(program) is not None:
            hint = "split it: 'command' is only the program, 'args' is the list of its arguments"
        return _Cause(f"command not found: {transport.command!r}", hint, is_permanent=True)
    if isinstance(error, PermissionError):
        return _Cause(f"{transport.command!r} is not executable", "make it executable", is_permanent=True)
    return _Cause(error.strerror or type(error).__name__)


def _cause_of_status(status: int, error: BaseException) -> _Cause:
    detail = f": {error.message}" if isinstance(error, MCPError) and error.message else ""
    if status == _FORBIDDEN:
        return _Cause(f"it refuses this client (HTTP 403){detail}", "check its allowed hosts, origins and keys")
    if status in {httpx2.codes.NOT_FOUND, httpx2.codes.METHOD_NOT_ALLOWED}:
        return _Cause(f"no MCP server at this URL (HTTP {status})", "check the path: it is often /mcp or /sse")
    return _Cause(f"HTTP {status}{detail}")


def _cause_of_greeting(error: BaseException) -> _Cause:
    if isinstance(error, MCPError):
        return _Cause(f"{error.message} ({error.code})", is_permanent=error.code == UNSUPPORTED_PROTOCOL_VERSION)
    if isinstance(error, ValidationError):
        return _Cause("its handshake is not valid MCP", "is it an MCP server?")
    return _cause_of_transport(error)


def _cause_of_transport(error: BaseException) -> _Cause:
    if isinstance(error, SessionExpiredError):
        return _Cause(str(error))
    if isinstance(error, NoProtocolError):
        hint = "check the command: log output must go to standard error"
        return _Cause(str(error), hint, is_permanent=True)
    if isinstance(error, LineTooLongError):
        return _Cause(str(error), "split its results: each message is one line")
    if isinstance(error, httpx2.HTTPStatusError):
        return _cause_of_status(error.response.status_code, error)
    if isinstance(error, TimeoutError):
        return _Cause("it does not respond to health checks")
    return _cause_of_network(error, _root(error))


def _cause_of_network(error: BaseException, root: BaseException) -> _Cause:
    if isinstance(root, ssl.SSLError):
        return _Cause(f"TLS: {root.reason or root}", "check the certificate, or use http:// instead of https://")
    if isinstance(root, ConnectionRefusedError):
        return _Cause("connection refused", "is the server running, and on that port?")
    if isinstance(root, OSError) and root.strerror:
        return _Cause(root.strerror)
    return _Cause(str(error).splitlines()[0] if str(error) else type(error).__name__)


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
