"""Proxies for remote tools, resources and prompts: arguments, results and questions are passed on unchanged.

A server of protocol version 2026-07-28 ends a call with its questions. They are passed on, with the server's state
inside the gateway's state. An earlier server asks while the call runs; the call is kept open, and suspended between two
requests of its caller if necessary (`bridge.gateway.suspended_calls`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import anyio

from bridge.client.remote_feature import RemoteReader, RemoteRenderer, RemoteTarget
from bridge.client.remote_tool import RemoteExecutor
from bridge.errors import ServerError, ServerRefusedError, ToolError, WireError
from bridge.gateway.credentials.errors import CredentialNeededError
from bridge.gateway.handlers import QUESTIONS, answer_from, capabilities_of, passed_on, responses_of
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import MISSING_CAPABILITY, MODERN_VERSIONS, URL_ELICITATION_REQUIRED
from bridge.server.channel import missing_capability
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.spill.usage import UNLIMITED
from bridge.tools.tool import ToolExecutionResult
from bridge.wire.prompts import ReceivedMessages
from bridge.wire.questions import answer_to_wire, question_from_wire
from bridge.wire.resources import ReceivedContents
from bridge.wire.tasks import is_created_task, supports_tasks
from bridge.wire.tools import ReceivedResult

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from bridge.client.callers import LeasedCall
    from bridge.client.connection.requests import SentCall
    from bridge.client.connection.running_call import CallOptions
    from bridge.client.upstream import Upstream
    from bridge.gateway.suspended_calls import PendingQuestions, SuspendedCall, SuspendedCalls
    from bridge.gateway.tasks import GatewayTasks
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json

CANCEL_SECONDS = 2.0
"""Maximum seconds that cancelling a task of a server may take."""
MAX_ROUNDS = 10
"""Maximum rounds of questions within one request, as in the SDKs."""

_STATE_ONLY_SECONDS = 0.1
_UPSTREAM = "upstream"


Remote = TypeVar("Remote", bound=RemoteTarget)


@dataclass(frozen=True, slots=True)
class Proxy(Generic[Remote]):
    """Base of what runs, reads or renders on behalf of a caller of the gateway."""

    remote: Remote
    """Executor of the remote tool, reader of the remote resource, or renderer of the remote prompt."""
    server: Upstream = field(compare=False)
    """The server."""
    holding: SuspendedCalls = field(compare=False)
    """Calls suspended until an answer arrives."""
    _options: CallOptions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_options", replace(self.remote.options, hands_on_questions=True))

    def _options_for(self, context: InvocationContext) -> CallOptions:
        """Return the options of a call, which declares the capabilities of its caller."""
        return replace(self._options, capabilities=capabilities_of(context, self.server.config.extensions))

    def _refusal(self, error: ServerRefusedError, data: Any) -> CallRefused:
        """Return the error of a server for the caller of the gateway."""
        message = self.server.config.transport.scrub(error.message)
        return CallRefused(ProtocolError(error.code, message, data))

    @property
    def _label(self) -> str:
        return self.remote.label

    def _call(self, arguments: Mapping[str, Any], context: InvocationContext) -> Coroutine[Any, Any, Json]:
        state = context.resumption.state if context.resumption is not None else {}
        if "held" in state:
            return self._attend(self._resumed(state, context), context)
        if _UPSTREAM in state or self.server.era == "modern" or QUESTIONS.isdisjoint(context.client_capabilities):
            return self._call_in_rounds(arguments, context)
        suspended_call = self.holding.begin(lambda inner: self.remote.call(arguments, inner), context)
        return self._attend(suspended_call, context)

    async def _call_in_rounds(self, arguments: Mapping[str, Any], context: InvocationContext) -> Json:
        options = self._options_for(context)
        if context.resumption is not None and _UPSTREAM in context.resumption.state:
            state = context.resumption.state
            responses = responses_of(state, context.resumption.answers)
            options = replace(options, input_responses=responses, request_state=state[_UPSTREAM])
        wire = await self.remote.call(arguments, context, options)
        return await self._answered(wire, arguments, context)

    async def _answered(self, wire: Json, arguments: Mapping[str, Any], context: InvocationContext) -> Json:
        """Answer the questions in a result by the caller's, until there are none; return the last result."""
        number = 0
        while wire.get("resultType") == "input_required":
            if number == MAX_ROUNDS:
                raise ToolError(f"{self._label} asks more than {MAX_ROUNDS} times")
            request_state = wire.get("requestState")
            responses = await self._answers(wire.get("inputRequests"), request_state, context, number)
            options = replace(self._options_for(context), input_responses=responses, request_state=request_state)
            wire = await self.remote.call(arguments, context, options)
            number += 1
        return wire

    async def _answers(
        self, requests: Any, request_state: str | None, context: InvocationContext, number: int
    ) -> Json | None:
        """Return the caller's answers to one round of questions as MCP JSON.

        Raises:
            InputRequired: The answers arrive with the caller's next request.
        """
        if not requests:
            await anyio.sleep(_STATE_ONLY_SECONDS)
            return None
        try:
            questions = {key: question_from_wire(wire) for key, wire in requests.items()}
        except WireError as error:
            raise ToolError(f"{self._label} asks an unsupported question: {error}") from error
        # Keys must be unique for a caller that answers during the call, even if the server reuses a key.
        unique_keys = {key: key if number == 0 else f"{key}-{number}" for key in questions}
        try:
            answers = await context.ask({unique_keys[key]: question for key, question in questions.items()})
        except InputRequired as waiting:
            unanswered = {key: questions[key] for key in questions if unique_keys[key] in waiting.questions}
            forms = {key: requests[key] for key, question in questions.items() if isinstance(question, Elicitation)}
            state = {_UPSTREAM: request_state, "asked": list(questions), "forms": forms}
            raise InputRequired(unanswered, state) from None
        return {key: answer_to_wire(answers[unique_keys[key]]) for key in questions}

    def _resumed(self, state: Mapping[str, Any], context: InvocationContext) -> SuspendedCall:
        try:
            return self.holding.resume(state, context)
        except ToolError as error:
            raise ToolError(f"{self._label}: {error}") from None

    async def _attend(self, call: SuspendedCall, context: InvocationContext) -> Json:
        """Send the questions of a call to its caller until the call has ended."""
        try:
            answers = context.resumption.answers if context.resumption is not None else {}
            while (questions := await call.next_question()) is not None:
                if not answer_from(questions, answers):
                    await self._ask_caller(questions, call, context)
            return call.collect()
        except InputRequired:
            raise
        except CallRefused:
            self.holding.keep(call, beyond_limit=True)  # the caller may send a valid answer later
            raise
        except BaseException:
            call.cancel()
            raise

    async def _ask_caller(self, pending: PendingQuestions, call: SuspendedCall, context: InvocationContext) -> None:
        """Send pending questions to the caller.

        Raises:
            InputRequired: The answers arrive with the caller's next request.
        """
        if any(missing_capability(question, context.client_capabilities) for question in pending.questions.values()):
            pending.settle(ToolError("the client behind this gateway cannot be asked that"))
            return
        try:
            with pending.asking():
                pending.settle(await context.ask(pending.questions))
        except ToolError as error:
            pending.settle(error)
        except InputRequired as waiting:
            try:
                state = self.holding.keep(call)
            except ToolError as error:
                pending.settle(error)
            else:
                raise InputRequired(waiting.questions, state) from None


@dataclass(frozen=True, slots=True)
class ProxyExecutor(Proxy[RemoteExecutor]):
    """Runs a remote tool on behalf of a caller of the gateway."""

    sends_at_once: ClassVar[bool] = True
    """It is a `bridge.server.forwarded.ForwardingExecutor`."""
    tasks: GatewayTasks = field(compare=False)
    """Tasks that servers make of calls, for callers that support tasks."""
    forwards_headers: bool = field(default=False, compare=False)
    """True if the server gets headers of the callers, over connections of their own."""

    def __post_init__(self) -> None:
        options = replace(self.remote.options, hands_on_questions=True, hands_on_tasks=True)
        object.__setattr__(self, "_options", options)

    @property
    def grant(self) -> str | None:
        """Way by which each caller has a credential of its own; None if all have the same."""
        per_caller = self.server.config.per_caller
        return None if per_caller is None else per_caller.kind

    def begin(
        self,
        arguments: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        caller: Caller | None,
        receive: Callable[[ToolExecutionResult | None], None],
        max_chars: int,
    ) -> SentCall | LeasedCall | None:
        """Send a call at once, without `execute`; see `bridge.server.forwarded.ForwardingExecutor`."""

        def received(wire: Json | None) -> bool:
            if wire is None:
                receive(None)
                return True
            if wire.get("resultType", "complete") != "complete":
                return False
            result = ReceivedResult.of(wire)
            if self._is_localized(result) or (max_chars != UNLIMITED and _length_of(result) > max_chars):
                return False
            receive(ToolExecutionResult.passing_on(result))
            return True

        callers, send = self.server.callers, self.server.connection.send_call
        if self.forwards_headers or (send is None and callers is None):
            return None
        declared = passed_on(capabilities, self.server.config.extensions, modern=True)
        if callers is not None:
            return callers.send_call(caller, self.remote.tool, arguments, declared, received)
        assert send is not None
        return send(self.remote.tool, arguments, declared, received)

    def _is_localized(self, result: ReceivedResult) -> bool:
        """True if a result has URIs that differ from those of the server."""
        uris = self.remote.uris
        return uris is not None and not uris.are_unchanged and _has_resources(result)

    async def execute(
        self, request: ToolExecutionRequest, context: InvocationContext, sent: SentCall | LeasedCall | None = None
    ) -> ToolExecutionResult:
        """Run one request.

        Args:
            request: The request.
            context: Context of the call.
            sent: The call, if `begin` has sent it.

        Raises:
            ToolError: The server is unavailable, refused, or returned a malformed result; the message names server and
                tool.
            InputRequired: The server asked a question that only the caller's next request can answer.
            CallRefused: An answer does not match its question, the server requires pages to be visited first, or the
                caller lacks a capability.
            ArgumentsError: The arguments are text that is not a JSON object.
        """
        arguments = request.arguments_by_name()
        try:
            if sent is not None or (context.resumption is None and self.server.era == "modern"):
                options = self._options_for(context)
                if sent is None:
                    wire = await self.remote.call(arguments, context, options)  # most calls ask nothing
                else:
                    wire = await sent.finished(self.remote.tool, arguments, context, options)
                if wire.get("resultType") == "input_required":
                    wire = await self._answered(wire, arguments, context)
            else:
                wire = await self._call(arguments, context)
            if is_created_task(wire):
                wire = await self._task(wire, request.name, context)
            received = ReceivedResult.of(wire)
            if (uris := self.remote.uris) is not None and self._is_localized(received):
                server = self.remote.server.name
                content = [uris.localized_json(server, block) for block in received["content"]]
                received = ReceivedResult.of({**received, "content": content})
            return ToolExecutionResult.passing_on(received)
        except CredentialNeededError:
            raise  # the caller is asked for it
        except ServerRefusedError as error:
            # Clients handle this protocol error: the user has to visit pages before the call can be repeated.
            must_visit = error.code == URL_ELICITATION_REQUIRED
            if must_visit or (error.code == MISSING_CAPABILITY and context.protocol_version in MODERN_VERSIONS):
                raise self._refusal(error, error.data) from error
            raise ToolError(error.brief) from error
        except ServerError as error:
            raise ToolError(error.brief) from error

    async def _task(self, wire: Json, name: str, context: InvocationContext) -> Json:
        """Return a task for a caller that supports tasks, and wait for its result for one of the handshake era."""
        if supports_tasks(context.client_capabilities):
            if await context.ends_request():
                try:
                    return self.tasks.created(wire, self.remote.server.name, context, name)
                except WireError as error:
                    raise ToolError(f"{self._label} returned a malformed task: {error}") from error
            return await self._waited(wire["taskId"], context)  # by the gateway's own task
        suspended_call = self.holding.begin(lambda inner: self._waited(wire["taskId"], inner), context)
        return await self._attend(suspended_call, context)

    async def _waited(self, task_id: str, context: InvocationContext) -> Json:
        """Wait for the result of a task, and cancel the task if nobody waits any more."""
        server = self.remote.server
        try:
            return await server.task_result(task_id, context=context)
        except ServerRefusedError:
            raise
        except BaseException:
            with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(ServerError):
                await server.request("tasks/cancel", {"taskId": task_id}, context=context)
            raise


class ProxyReader(Proxy[RemoteReader]):
    """Reads remote resources on behalf of a caller of the gateway."""

    __slots__ = ()

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Read the resource whose local URI is the name of the request.

        Raises:
            ResourceNotFoundError: The server has no such resource.
            ToolError: The server is unavailable, or returned malformed contents.
            InputRequired: The server asked a question that only the caller's next request can answer.
            CallRefused: The server refused.
        """
        server, uris = self.remote.server.name, self.remote.uris
        if (stream := context.contents_stream) is not None:
            stream.local = partial(uris.local, server)
        try:
            wire = await self._call({"uri": uris.of_server(server, request.name)}, context)
        except CredentialNeededError:
            raise
        except ServerRefusedError as error:
            # Clients recognise a resource that does not exist by the URI; other errors have data of their own.
            has_uri = isinstance(error.data, dict) and "uri" in error.data
            raise self._refusal(error, {**error.data, "uri": request.name} if has_uri else error.data) from error
        except ServerError as error:
            raise ToolError(error.brief) from error
        received = ReceivedContents.of(wire)
        if not uris.are_unchanged:
            received = received.with_uris(partial(uris.local, server))
        return ToolExecutionResult.passing_on(received)


class ProxyRenderer(Proxy[RemoteRenderer]):
    """Renders a remote prompt on behalf of a caller of the gateway."""

    __slots__ = ()

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Render the prompt.

        Raises:
            ToolError: The server is unavailable, or returned malformed messages.
            InputRequired: The server asked a question that only the caller's next request can answer.
            CallRefused: The server refused, for example because an argument is missing.
        """
        server, uris = self.remote.server.name, self.remote.uris
        try:
            wire = await self._call(request.arguments_by_name(), context)
        except CredentialNeededError:
            raise
        except ServerRefusedError as error:
            raise self._refusal(error, error.data) from error
        except ServerError as error:
            raise ToolError(error.brief) from error
        received = ReceivedMessages.of(wire)
        if not uris.are_unchanged and (received.text is None or received.may_have_resources()):
            messages = [{**each, "content": uris.localized_json(server, each["content"])} for each in wire["messages"]]
            received = ReceivedMessages.of({**wire, "messages": messages})
        return ToolExecutionResult.passing_on(received)


def _length_of(result: ReceivedResult) -> int:
    """Return the length of a result as JSON, which is no shorter than what a model reads of it."""
    try:
        return len(result.written() if result.text is None else result.text)
    except ValueError:
        return UNLIMITED  # it cannot be written


def _has_resources(result: ReceivedResult) -> bool:
    if result.text is not None:
        return result.may_have_resources()
    return any(isinstance(block, dict) and block.keys() & {"uri", "resource"} for block in result.get("content", ()))
