"""Requests to a server, with retries over several sessions.

ready? ──> send ──> response ─────────────────────────────> result, or the server's error
  │          ╰──> connection lost ──> never ran, or repeatable ──> check the server ──> send again
  │                    ╰────────────> may have run ──────────────> outcome unknown
  ╰──> wait for reconnection ──> timeout ──────────────────> unavailable
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from mcp import MCPError
from mcp_types import HEADER_MISMATCH, LOG_LEVEL_META_KEY
from pydantic import ValidationError
from pydantic_core import to_json

from bridge.client.auth.errors import SignInError
from bridge.client.connection.call import Call
from bridge.client.connection.failures import is_bare_http_error, is_connection_loss
from bridge.client.connection.handlers import QuestionRefusedError, answer_question
from bridge.client.connection.listing import list_all_pages
from bridge.client.connection.session import Session, UnauthorizedError
from bridge.client.transports.channel import OutgoingRequest
from bridge.client.transports.http_client import UNAUTHORIZED
from bridge.client.transports.limits import ResponseTooLongError
from bridge.errors import ArgumentProblem, ArgumentsError, WireError
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.client.connection.call import CallOptions
    from bridge.client.connection.list_methods import Listed, ListMethod
    from bridge.client.connection.supervisor import Supervisor
    from bridge.types import Json

_T = TypeVar("_T")

MAX_ROUNDS = 10
"""Maximum input rounds of one call, as in the SDKs."""

MAX_SENDS = 3
"""Maximum sends of a repeatable call."""

_MAX_SESSIONS = 2
"""Maximum sends of other calls, if the server rejects the session and so did not run them."""

_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_STATE_ONLY_SECONDS = 0.1
_EXIT_CODE_SECONDS = 0.5


async def call_tool(
    supervisor: Supervisor,
    name: str,
    arguments: Mapping[str, Any],
    context: InvocationContext | None,
    options: CallOptions,
) -> Json:
    """Call a tool, with all its rounds; see `bridge.client.connection.connection.Connection.call_tool`."""
    text = _written(name, arguments, options)
    config = supervisor.config
    phase = f"calling {name!r}"
    send = _Sending(supervisor, phase, is_repeatable=options.repeatable and config.trusted)
    call = Call(
        supervisor.deadlines,
        context or InvocationContext(),
        config.timeout_seconds if options.timeout_seconds is None else options.timeout_seconds,
        config.max_call_seconds,
    )
    with call:
        for _ in range(MAX_ROUNDS + 1):
            result = await send.through(call, _calling(name, arguments, text, options, call))
            if options.hands_on_questions or result.get("resultType") != "input_required":
                if call.is_delivering:
                    await call.delivered()
                return result
            answers = await _answers(supervisor, result, call)
            options = replace(options, input_responses=answers, request_state=result.get("requestState"))
        raise supervisor.failures.unreadable(phase, WireError(f"it requests input more than {MAX_ROUNDS} times"))
    raise send.unanswered(call)


async def request(
    supervisor: Supervisor,
    method: str,
    params: Mapping[str, Any],
    context: InvocationContext | None,
    options: CallOptions,
) -> Json:
    """Send a repeatable request, with all its rounds; see `bridge.client.connection.connection.Connection.request`."""
    phase = f"requesting {method}"

    async def send(session: Session, outgoing: OutgoingRequest) -> Json:
        assert outgoing.call is not None
        written = _with_options(dict(params), options, session, outgoing.call.context)
        return await session.request(method, written, outgoing, outgoing.call.on_progress)

    config = supervisor.config
    seconds = config.timeout_seconds if options.timeout_seconds is None else options.timeout_seconds
    call = Call(supervisor.deadlines, context or InvocationContext(), seconds, config.max_call_seconds)
    sending = _Sending(supervisor, phase, is_repeatable=True, has_caller=context is not None)
    with call:
        for _ in range(MAX_ROUNDS + 1):
            result = await sending.through(call, send)
            if options.hands_on_questions or result.get("resultType") != "input_required":
                if call.is_delivering:
                    await call.delivered()
                return result
            answers = await _answers(supervisor, result, call)
            options = replace(options, input_responses=answers, request_state=result.get("requestState"))
        raise supervisor.failures.unreadable(phase, WireError(f"it requests input more than {MAX_ROUNDS} times"))
    raise sending.unanswered(call)


async def list_all(supervisor: Supervisor, method: ListMethod) -> Listed:
    """List a server's tools, or other items; see `bridge.client.connection.connection.Connection.list_items`."""
    return await _repeatable(supervisor, f"listing {method.noun}s", partial(list_all_pages, method=method))


async def _repeatable(
    supervisor: Supervisor,
    phase: str,
    ask: Callable[[Session, OutgoingRequest], Awaitable[_T]],
) -> _T:
    """Send a repeatable request over as many sessions as needed.

    Raises:
        ServerError: There was no response.
    """
    config = supervisor.config
    call = Call(supervisor.deadlines, InvocationContext(), config.timeout_seconds, config.max_call_seconds)
    send = _Sending(supervisor, phase, is_repeatable=True, has_caller=False)
    with call:
        result = await send.through(call, ask)
        if call.is_delivering:
            await call.delivered()
        return result
    raise send.unanswered(call)


def _calling(
    name: str, arguments: Mapping[str, Any], text: bytes, options: CallOptions, call: Call
) -> Callable[[Session, OutgoingRequest], Awaitable[Json]]:
    def ask(session: Session, outgoing: OutgoingRequest) -> Awaitable[Json]:
        outgoing.arguments = text
        outgoing.is_passed_on = options.hands_on_questions
        params = _params(name, arguments, options, session, call.context)
        return session.request("tools/call", params, outgoing, call.on_progress)

    return ask


def _params(
    name: str, arguments: Mapping[str, Any], options: CallOptions, session: Session, context: InvocationContext
) -> Json:
    """Build the parameters of ``tools/call`` for the session's era."""
    params: Json = {"name": name, "arguments": arguments if type(arguments) is dict else dict(arguments)}
    return _with_options(params, options, session, context)


def _with_options(params: Json, options: CallOptions, session: Session, context: InvocationContext) -> Json:
    """Add ``_meta``, and the answers of the last round, to the parameters of a request; returns them."""
    meta = options.meta
    if session.era == "modern" and context.wants_logs:
        meta = {LOG_LEVEL_META_KEY: "debug", **(meta or {})}  # required for log messages in the modern era
    if meta:
        params["_meta"] = dict(meta)
    if options.input_responses is not None:
        params["inputResponses"] = dict(options.input_responses)
    if options.request_state is not None:
        params["requestState"] = options.request_state
    return params


class _Sending:
    """Sends one request, with retries."""

    __slots__ = (
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
    ) -> None:
        self._supervisor = supervisor
        self._phase = phase
        self._is_repeatable = is_repeatable
        self._is_for_somebody = has_caller
        self._session: Session | None = None
        self._outgoing: OutgoingRequest | None = None
        self._sends = 0
        self._has_relisted = False

    async def through(self, call: Call, ask: Callable[[Session, OutgoingRequest], Awaitable[_T]]) -> _T:
        """Send until there is a response or a reason not to retry."""
        wait_seconds = self._supervisor.config.connect_wait_seconds
        waited_until: float | None = None
        while True:
            session = self._session = self._supervisor.ready_session or await self._supervisor.usable(
                self._phase, wait_seconds
            )
            outgoing = self._outgoing = OutgoingRequest(call)
            session.calls.add(call)
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


async def _answers(supervisor: Supervisor, result: Json, call: Call) -> Json | None:
    """Answer a modern server's input requests; None if it only asks to be called again."""
    questions = result.get("inputRequests")
    if not questions:
        await anyio.sleep(_STATE_ONLY_SECONDS)
        return None
    try:
        with call.asking():
            return {
                key: await answer_question(supervisor.handlers, question, call.context)
                for key, question in questions.items()
            }
    except QuestionRefusedError as error:
        problem = WireError(f"it requests input that cannot be provided: {error}")
        raise supervisor.failures.unreadable(f"calling, {', '.join(questions)}", problem) from error


def _written(name: str, arguments: Mapping[str, Any], options: CallOptions) -> bytes:
    """Write the arguments as JSON, and check ``_meta``; the SDK's transports would close the connection on an error.

    Raises:
        ArgumentsError: They are not JSON data.
    """
    try:
        if options.meta:
            _as_json(dict(options.meta)).encode()
        if options.hands_on_questions:  # received as JSON, in which only numbers can be wrong
            text = to_json(arguments)
            if b"NaN" not in text and b"Infinity" not in text:
                return text
        return _as_json(arguments if type(arguments) is dict else dict(arguments)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        problem = ArgumentProblem("", f"JSON data ({error})")
        raise ArgumentsError(name, [problem]) from error
