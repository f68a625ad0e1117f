"""Requests to a server, with retries over several sessions.

ready? ──> send ──> response ─────────────────────────────> result, or the server's error
  │          ╰──> connection lost ──> never ran, or repeatable ──> check the server ──> send again
  │                    ╰────────────> may have run ──────────────> outcome unknown
  ╰──> wait for reconnection ──> timeout ──────────────────> unavailable
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from mcp import MCPError
from mcp_types import HEADER_MISMATCH, LOG_LEVEL_META_KEY
from pydantic import ValidationError

from bridge.client.auth.errors import SignInError
from bridge.client.connection.call import Call
from bridge.client.connection.failures import is_bare_http_error, is_connection_loss
from bridge.client.connection.handlers import QuestionRefusedError, answer_question
from bridge.client.connection.requests import OutgoingRequest
from bridge.client.connection.session import Session, UnauthorizedError
from bridge.client.connection.tool_listing import list_all_pages
from bridge.client.transports.http_client import UNAUTHORIZED
from bridge.client.transports.limits import ResponseTooLongError
from bridge.errors import ArgumentProblem, ArgumentsError, WireError
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.state import ToolListing
    from bridge.client.connection.supervisor import Supervisor
    from bridge.types import Json

_T = TypeVar("_T")

MAX_ROUNDS = 10
"""Maximum input rounds of one call, as in the SDKs."""

MAX_SENDS = 3
"""Maximum sends of a repeatable call."""

_MAX_SESSIONS = 2
"""Maximum sends of other calls, if the server rejects the session and so did not run them."""

_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

_STATE_ONLY_SECONDS = 0.1

_EXIT_CODE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CallRound:
    """Parameters of one round of a call."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any]
    """The arguments."""
    meta: Mapping[str, Any] | None = None
    """Value of ``_meta``."""
    input_responses: Mapping[str, Any] | None = None
    """Answers to the input requests of the previous round."""
    request_state: str | None = None
    """State of the previous round."""

    def params(self, link: Session, context: InvocationContext) -> Json:
        """Build the parameters of ``tools/call`` for the session's era."""
        params: Json = {"name": self.name, "arguments": dict(self.arguments)}
        meta = dict(self.meta or {})
        if link.era == "modern" and context.has_listener:
            meta.setdefault(LOG_LEVEL_META_KEY, "debug")  # required for log messages in the modern era
        if meta:
            params["_meta"] = meta
        if self.input_responses is not None:
            params["inputResponses"] = dict(self.input_responses)
        if self.request_state is not None:
            params["requestState"] = self.request_state
        return params


async def call_tool(
    owner: Supervisor,
    config: ServerConfig,
    handlers: ClientHandlers,
    first: CallRound,
    *,
    context: InvocationContext | None,
    is_repeatable: bool,
    timeout_seconds: float | None,
    hands_on_questions: bool,
) -> Json:
    """Call a tool, with all its rounds; see `bridge.client.connection.connection.Connection.call_tool`."""
    _check_sendable(first)
    context = context or InvocationContext()
    phase = f"calling {first.name!r}"
    send = _Sending(owner, config, phase, is_repeatable=is_repeatable)
    call = Call(
        owner.deadlines,
        context,
        config.timeout_seconds if timeout_seconds is None else timeout_seconds,
        config.max_call_seconds,
    )
    with call:
        round_ = first
        for _ in range(MAX_ROUNDS + 1):
            result = await send.through(call, _calling(round_, call))
            if hands_on_questions or result.get("resultType") != "input_required":
                await call.finish()
                return result
            round_ = replace(
                round_,
                input_responses=await _answers(owner, result, handlers, call),
                request_state=result.get("requestState"),
            )
        raise owner.failures.unreadable(phase, WireError(f"it requests input more than {MAX_ROUNDS} times"))
    raise send.unanswered(call)


async def request(
    owner: Supervisor, config: ServerConfig, method: str, params: Mapping[str, Any], context: InvocationContext | None
) -> Json:
    """Send a repeatable request; see `bridge.client.connection.connection.Connection.request`."""

    async def send(link: Session, attempt: OutgoingRequest) -> Json:
        return await link.request(method, params, attempt, attempt.call.heard_progress if attempt.call else None)

    return await request_with_retry(owner, config, f"requesting {method}", send, is_repeatable=True, context=context)


async def request_with_retry(
    owner: Supervisor,
    config: ServerConfig,
    phase: str,
    ask: Callable[[Session, OutgoingRequest], Awaitable[_T]],
    *,
    is_repeatable: bool,
    context: InvocationContext | None = None,
) -> _T:
    """Send a request to a server, over as many sessions as needed.

    Args:
        owner: The connection's supervisor.
        config: The server.
        phase: Current action, for errors.
        ask: Sends the request over one session.
        is_repeatable: True if repeating is harmless.
        context: Invocation context.

    Raises:
        ServerError: There was no response.
    """
    call = Call(owner.deadlines, context or InvocationContext(), config.timeout_seconds, config.max_call_seconds)
    send = _Sending(owner, config, phase, is_repeatable=is_repeatable, is_for_somebody=context is not None)
    with call:
        result = await send.through(call, ask)
        await call.finish()
        return result
    raise send.unanswered(call)


def _calling(this: CallRound, call: Call) -> Callable[[Session, OutgoingRequest], Awaitable[Json]]:
    def ask(link: Session, attempt: OutgoingRequest) -> Awaitable[Json]:
        return link.request("tools/call", this.params(link, call.context), attempt, call.heard_progress)

    return ask


class _Sending:
    """Sends one request, with retries."""

    __slots__ = (
        "_attempt",
        "_config",
        "_has_relisted",
        "_is_for_somebody",
        "_is_repeatable",
        "_link",
        "_owner",
        "_phase",
        "_sends",
    )

    def __init__(
        self, owner: Supervisor, config: ServerConfig, phase: str, *, is_repeatable: bool, is_for_somebody: bool = True
    ) -> None:
        self._owner = owner
        self._config = config
        self._phase = phase
        self._is_repeatable = is_repeatable
        self._is_for_somebody = is_for_somebody
        self._link: Session | None = None
        self._attempt: OutgoingRequest | None = None
        self._sends = 0
        self._has_relisted = False

    async def through(self, call: Call, ask: Callable[[Session, OutgoingRequest], Awaitable[_T]]) -> _T:
        """Send until there is a response or a reason not to retry."""
        wait_seconds = self._config.connect_wait_seconds
        waited_until: float | None = None
        while True:
            link = self._link = self._owner.ready_link or await self._owner.usable(self._phase, wait_seconds)
            attempt = self._attempt = OutgoingRequest(call)
            link.calls.add(call)
            try:
                return await ask(link, attempt)
            except MCPError as error:
                must_check = await self._decide(link, attempt, error)
            except (ValidationError, WireError) as error:
                raise self._owner.failures.unreadable(self._phase, error) from error
            except BaseException:
                if self._is_for_somebody:
                    link.abandon(attempt)
                raise
            finally:
                link.leave(call)
            now = anyio.current_time()
            waited_until = waited_until or now + wait_seconds
            wait_seconds = max(0.0, waited_until - now)
            if must_check:
                await _examined(link)

    def unanswered(self, call: Call) -> Exception:
        """Create the error for a cancelled call or a timeout."""
        is_idle = call.is_idle_too_long
        if is_idle and self._link is not None:
            self._link.suspect()  # running calls suppress the regular health check
        return self._owner.failures.timed_out(
            self._phase,
            call.idle_seconds if is_idle else call.max_seconds,
            is_idle=is_idle,
            sent=self._attempt is not None and self._attempt.sent,
            link=self._link,
        )

    async def _decide(self, link: Session, attempt: OutgoingRequest, error: MCPError) -> bool:
        """Return if the request must be sent again; True means that the server must be checked first.

        Raises:
            ServerError: The request must not be sent again.
        """
        failures = self._owner.failures
        if attempt.expired:
            self._sends += 1
            if self._sends >= (MAX_SENDS if self._is_repeatable else _MAX_SESSIONS):
                raise failures.lost(link, phase=self._phase) from error
            return False
        if isinstance(attempt.failure, ResponseTooLongError):
            raise failures.unreadable(self._phase, attempt.failure) from error
        if isinstance(attempt.failure, SignInError):
            raise failures.not_allowed(self._phase, attempt.failure) from error
        if attempt.status == UNAUTHORIZED and not attempt.sent:
            raise failures.not_allowed(self._phase, UnauthorizedError(UNAUTHORIZED)) from error
        if error.code == HEADER_MISMATCH and link.era == "modern" and not self._has_relisted:
            await self._relist(link)
            return False
        if not is_connection_loss(error, link, attempt) and not is_bare_http_error(error, attempt.status):
            raise failures.refused(self._phase, error, attempt.status, attempt.failure) from error
        self._sends += attempt.sent
        if attempt.sent and not (self._is_repeatable and self._sends < MAX_SENDS):
            if link.child is not None:
                await link.child.settle(_EXIT_CODE_SECONDS)
            link.suspect()
            raise failures.outcome_unknown(self._phase, link, attempt.failure or error) from error
        return True

    async def _relist(self, link: Session) -> None:
        """List the tools again, since the server requires headers declared in their schemas."""
        from bridge.client.connection.tool_listing import list_all_pages  # noqa: PLC0415 - circular import

        self._has_relisted = True
        try:
            await list_all_pages(link)
        except MCPError as error:
            raise self._owner.failures.refused(self._phase, error, None) from error


async def _examined(link: Session) -> None:
    """Wait for a health check of a session."""
    if not link.ended.is_set():
        link.suspect()
        await link.checked.wait()


async def _answers(owner: Supervisor, result: Json, handlers: ClientHandlers, call: Call) -> Json | None:
    """Answer a modern server's input requests; None if it only asks to be called again."""
    questions = result.get("inputRequests")
    if not questions:
        await anyio.sleep(_STATE_ONLY_SECONDS)
        return None
    try:
        with call.asking():
            return {key: await answer_question(handlers, question, call.context) for key, question in questions.items()}
    except QuestionRefusedError as error:
        problem = WireError(f"it requests input that cannot be provided: {error}")
        raise owner.failures.unreadable(f"calling, {', '.join(questions)}", problem) from error


def _check_sendable(this: CallRound) -> None:
    """Check that the arguments are JSON; the SDK's transports would close the connection on an encoding error."""
    try:
        _as_json((dict(this.arguments), this.meta and dict(this.meta))).encode()
    except (TypeError, ValueError, RecursionError) as error:
        problem = ArgumentProblem("", f"JSON data ({error})")
        raise ArgumentsError(this.name, [problem]) from error


async def list_tools(owner: Supervisor, config: ServerConfig) -> ToolListing:
    """List a server's tools over any session.

    Raises:
        ServerError: They cannot be listed.
    """
    return await request_with_retry(owner, config, "listing tools", list_all_pages, is_repeatable=True)
