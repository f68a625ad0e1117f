"""Requests to a server, with their rounds of questions, and the tasks that answer calls.

ready? ──> send (`sending`) ──> response ──> result, or the server's error
  │                                ├───────> questions ──> handlers ──> send again, with the answers
  │                                ╰───────> task ──> wait for its end (`tasks`)
  ╰──> wait for reconnection ──> timeout ──> unavailable
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic_core import to_json

from bridge.client.connection.direct_calls import TAKEN_SECONDS, DirectCall
from bridge.client.connection.handlers import QuestionRefusedError, UrlElicitations, answer_question
from bridge.client.connection.list_methods import TOOLS, Listed
from bridge.client.connection.listing import list_all_pages
from bridge.client.connection.retries import Sending
from bridge.client.connection.running_call import Call, CallOptions
from bridge.client.connection.tasks import AwaitedTask
from bridge.errors import ArgumentProblem, ArgumentsError, ServerRefusedError, WireError
from bridge.protocol.peer import PendingRequest
from bridge.protocol.versions import LOG_LEVEL_KEY, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED
from bridge.telemetry import current
from bridge.tools.context import InvocationContext
from bridge.wire.prompts import ReceivedMessages
from bridge.wire.resources import ReceivedContents
from bridge.wire.tasks import TASK_METHODS, is_created_task
from bridge.wire.tools import ReceivedResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from bridge.client.connection.direct_calls import ResultReceiver
    from bridge.client.connection.list_methods import ListMethod
    from bridge.client.connection.session import Session
    from bridge.client.connection.status import ServerInfo
    from bridge.client.connection.supervisor import Supervisor
    from bridge.types import Json
    from bridge.wire.received import Received

    CallBeginner = Callable[[str, Mapping[str, Any], Json, ResultReceiver], "SentCall | None"]

_T = TypeVar("_T")

MAX_ROUNDS = 10
"""Maximum input rounds of one call, as in the SDKs."""

_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_REPEATABLE = frozenset(
    {
        *("completion/complete", "prompts/get", "prompts/list", "resources/list", "resources/read"),
        *("resources/templates/list", "server/discover", "ping", "tools/list", "logging/setLevel"),
        *("skills/list", "skills/get", "resources/directory/read", *TASK_METHODS),
        *("events/list", "events/poll", "events/subscribe", "events/unsubscribe"),
    }
)
"""Requests that may be sent again after a lost connection; those of other extensions may have effects."""
_PASSED_ON = CallOptions(hands_on_questions=True)
_RECEIVED: dict[str, type[Received]] = {
    "tools/call": ReceivedResult,
    "resources/read": ReceivedContents,
    "prompts/get": ReceivedMessages,
}
"""Results that are passed on with their text, by method."""
_STATE_ONLY_SECONDS = 0.1


def call_tool(
    supervisor: Supervisor,
    name: str,
    arguments: Mapping[str, Any],
    context: InvocationContext | None,
    options: CallOptions,
    sent: SentCall | None = None,
) -> Coroutine[Any, Any, Json]:
    """Call a tool, or continue a call that was sent, with all its rounds; see `Connection.call_tool`."""
    text, phase = _written(name, arguments, options), f"calling {name!r}"

    def ask(call: Call, options: CallOptions, session: Session, request: PendingRequest) -> Awaitable[Json]:
        if request.id:
            return session.finish(request)
        request.on_progress = call.on_progress
        if options.hands_on_questions:
            request.keep = ReceivedResult.of
        params: Json = {"name": name, "arguments": arguments if type(arguments) is dict else dict(arguments)}
        params = _with_options(params, options, session, call.context)
        return session.request("tools/call", params, request, arguments=text, capabilities=options.capabilities)

    is_repeatable = options.repeatable and supervisor.config.trusted
    if sent is None:
        sending = Sending(supervisor, phase, is_repeatable=is_repeatable)
        return _in_rounds(supervisor, phase, sending, ask, context, options)
    sending = Sending(supervisor, phase, is_repeatable=is_repeatable, first=(sent.direct, sent.session))
    return _in_rounds(supervisor, phase, sending, ask, context, options, sent.direct.began_at)


class SentCall:
    """A call that was sent before a task waits for its result; see `send_call`."""

    __slots__ = ("_supervisor", "direct", "session")

    def __init__(self, supervisor: Supervisor, session: Session, direct: DirectCall) -> None:
        self._supervisor = supervisor
        self.session = session
        self.direct = direct

    def continue_in_task(self) -> None:
        """Let a task wait for the result, from the next turn of the event loop on."""
        self.direct.continue_in_task()

    def finished(
        self, name: str, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions
    ) -> Coroutine[Any, Any, Json]:
        """Continue the call, as `call_tool`."""
        return call_tool(self._supervisor, name, arguments, context, options, self)


def send_call(
    supervisor: Supervisor,
    name: str,
    arguments: Mapping[str, Any],
    capabilities: Json,
    receive: ResultReceiver,
) -> SentCall | None:
    """Send the call of another client at once, without waiting for a connection, or in a task for its result.

    Args:
        supervisor: The supervisor of the connection.
        name: The tool's name on the server.
        arguments: The arguments, received as JSON, and sent unchanged.
        capabilities: Capabilities of the other client, which the request declares.
        receive: Called once with the result, as of `call_tool`, or with None. For None, and if it returns False,
            `SentCall.finished` has to continue the call.

    Returns:
        The call; None, before anything is sent, if only `call_tool` can send it: the server is not connected, or is of
        the handshake era; no connection is idle; a limit of time is so short that a direct call would exceed it.
    """
    session, config = supervisor.ready_session, supervisor.config
    if (
        session is None
        or session.era != "modern"
        or current.observer() is not None
        or min(config.timeout_seconds, config.max_call_seconds) <= TAKEN_SECONDS
    ):
        return None
    try:
        text = _written(name, arguments, _PASSED_ON)
    except ArgumentsError:
        return None
    request = PendingRequest()
    request.keep = ReceivedResult.of
    direct = DirectCall(request, receive, session.leave_direct)
    session.write("tools/call", {"name": name, "arguments": arguments}, request, text, capabilities)
    return SentCall(supervisor, session, direct) if session.send_directly(direct) else None


async def task_result(
    supervisor: Supervisor, task_id: str, context: InvocationContext | None, options: CallOptions
) -> Json:
    """Wait for the end of a task; see `bridge.client.connection.connection.Connection.task_result`."""
    phase = "waiting for a task"
    config = supervisor.config
    seconds = config.timeout_seconds if options.timeout_seconds is None else options.timeout_seconds
    call = Call(supervisor.deadlines, context or InvocationContext(), seconds, config.max_call_seconds)
    with call:
        result = await AwaitedTask(supervisor, task_id, call, options.meta, phase).result()
        await call.flush()
        return result
    raise supervisor.failures.task_unfinished(
        phase, call.idle_seconds if call.is_idle_too_long else call.max_seconds, is_idle=call.is_idle_too_long
    )


def request(
    supervisor: Supervisor,
    method: str,
    params: Mapping[str, Any],
    context: InvocationContext | None,
    options: CallOptions,
) -> Coroutine[Any, Any, Json]:
    """Send a request, with all its rounds; see `bridge.client.connection.connection.Connection.request`."""

    def ask(call: Call, options: CallOptions, session: Session, request: PendingRequest) -> Awaitable[Json]:
        request.on_progress = call.on_progress
        if options.hands_on_questions and (kind := _RECEIVED.get(method)) is not None:
            request.keep = kind.of
        if method == "resources/read" and (stream := call.context.contents_stream) is not None and stream.local:
            request.stream = stream
        written = _with_options(dict(params), options, session, call.context)
        return session.request(method, written, request, capabilities=options.capabilities)

    phase = f"requesting {method}"
    is_repeatable = method in _REPEATABLE
    sending = Sending(supervisor, phase, is_repeatable=is_repeatable, has_caller=context is not None)
    return _in_rounds(supervisor, phase, sending, ask, context, options)


async def _in_rounds(
    supervisor: Supervisor,
    phase: str,
    sending: Sending,
    ask: Callable[[Call, CallOptions, Session, PendingRequest], Awaitable[Json]],
    context: InvocationContext | None,
    options: CallOptions,
    began_at: float | None = None,
) -> Json:
    """Send a request, and again with answers as long as the server requests input; return the last result."""
    config = supervisor.config
    seconds = config.timeout_seconds if options.timeout_seconds is None else options.timeout_seconds
    call = Call(supervisor.deadlines, context or InvocationContext(), seconds, config.max_call_seconds, began_at)
    with call:
        for _ in range(MAX_ROUNDS + 1):
            result = await _after_visits(supervisor, sending, ask, call, options)
            if is_created_task(result) and not options.hands_on_tasks:
                result = await AwaitedTask(supervisor, result["taskId"], call, options.meta, phase).finished(result)
            if options.hands_on_questions or result.get("resultType") != "input_required":
                await call.flush()
                return result
            answers = await _answers(supervisor, result, call)
            options = replace(options, input_responses=answers, request_state=result.get("requestState"))
        raise supervisor.failures.unreadable(phase, WireError(f"it requests input more than {MAX_ROUNDS} times"))
    raise sending.unanswered(call)


async def _after_visits(
    supervisor: Supervisor,
    sending: Sending,
    ask: Callable[[Call, CallOptions, Session, PendingRequest], Awaitable[Json]],
    call: Call,
    options: CallOptions,
) -> Json:
    """Send a request, and again while the server requires pages to be visited first, and the user agrees."""
    pages: UrlElicitations | None = None
    while True:
        try:
            return await sending.through(call, partial(ask, call, options))
        except ServerRefusedError as error:
            if options.hands_on_questions or error.code != URL_ELICITATION_REQUIRED:
                raise
            pages = pages or UrlElicitations(supervisor.handlers, supervisor.events.completion_listeners, call)
            if not await pages.visited(error):
                raise


async def list_all(supervisor: Supervisor, method: ListMethod) -> Listed:
    """List a server's tools, or other items; see `bridge.client.connection.connection.Connection.list_items`.

    The items of a server whose process is not needed now are those that were listed last.
    """
    if (kept := supervisor.definitions) is None:
        return await _list_now(supervisor, method)
    listed = None
    if supervisor.is_idle and kept.info is not None:
        listed = Listed([]) if _is_missing(method, kept.info) else kept.listed(method)
    if listed is None:
        listed = await _list_now(supervisor, method)
        kept.keep(method, listed, None if supervisor.last is None else supervisor.last.info)
    return listed


async def _list_now(supervisor: Supervisor, method: ListMethod) -> Listed:
    phase, config = f"listing {method.noun}s", supervisor.config
    session = await supervisor.usable(phase, config.connect_wait_seconds)
    await supervisor.notified(config.connect_wait_seconds)
    if _is_missing(method, session.info):
        return Listed([])
    try:
        return await _repeatable(supervisor, phase, partial(list_all_pages, method=method))
    except ServerRefusedError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return Listed([])


def _is_missing(method: ListMethod, info: ServerInfo) -> bool:
    """Return True if a server says that it does not have what a method lists."""
    if method.extension is not None:
        return method.extension not in (info.capabilities.get("extensions") or {})
    return method is not TOOLS and method.feature not in info.capabilities


async def _repeatable(
    supervisor: Supervisor,
    phase: str,
    ask: Callable[[Session, PendingRequest], Awaitable[_T]],
) -> _T:
    """Send a repeatable request over as many sessions as needed.

    Raises:
        ServerError: There was no response.
    """
    config = supervisor.config
    call = Call(supervisor.deadlines, InvocationContext(), config.timeout_seconds, config.max_call_seconds)
    send = Sending(supervisor, phase, is_repeatable=True, has_caller=False)
    with call:
        result = await send.through(call, ask)
        await call.flush()
        return result
    raise send.unanswered(call)


def _with_options(params: Json, options: CallOptions, session: Session, context: InvocationContext) -> Json:
    """Add ``_meta``, and the answers of the last round, to the parameters of a request; returns them."""
    meta = options.meta
    if session.era == "modern" and context.wants_logs:
        meta = {LOG_LEVEL_KEY: "debug", **(meta or {})}  # required for log messages in the modern era
    if meta:
        params["_meta"] = dict(meta)
    if options.input_responses is not None:
        params["inputResponses"] = dict(options.input_responses)
    if options.request_state is not None:
        params["requestState"] = options.request_state
    return params


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
    """Write the arguments as JSON, and check ``_meta``.

    Raises:
        ArgumentsError: They are not JSON data.
    """
    try:
        if options.meta:
            _as_json(dict(options.meta)).encode()
        if options.hands_on_questions:  # received as JSON, in which only numbers can be wrong
            text = to_json(arguments)
            if text.find(b"NaN") < 0 and text.find(b"Infinity") < 0:  # "in" takes three times as long
                return text
        return _as_json(arguments if type(arguments) is dict else dict(arguments)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        problem = ArgumentProblem("", f"JSON data ({error})")
        raise ArgumentsError(name, [problem]) from error
