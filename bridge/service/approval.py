"""Approval policies, decisions, suspended invocations.

Approval: somebody says yes or no before a tool runs, at once or later.

    async def ask_the_clerk(request, tool, context) -> Decision:
        ...

    service = ai_service(Desk, chat_model=model, tools=[Bookings()], approval=ApprovalPolicy(approve=ask_the_clerk))

What is approved is a call: one tool with these arguments. Should a handler of errors correct the call afterwards, the
corrected one is refused, since nobody has approved it.

Suspension: an invocation that waits for somebody's approval, as data that another process can go on with.

    try:
        answer = await desk.chat("Cancel booking B-12345")
    except InvocationSuspended as suspended:
        queue.put(json.dumps(suspended.state.to_json()))

    # elsewhere, later
    state = SuspendedInvocation.from_json(json.loads(queue.get()))
    answer = await resume(desk, state, {index: Decision.yes() for index in state.pending})

The conversation's memory is untouched until the invocation is over. Who stores a state goes on with it once: going on
twice would run the tools twice. A method that is itself a tool (``@tool``) is never suspended, since none of those who
call tools could wait: there the call fails, and says what it waits for.
"""

from __future__ import annotations

import inspect
import json as json_text
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from bridge.errors import ArgumentsError, DefinitionError, ToolError, WireError
from bridge.service.chat_model import ChatRequestParameters
from bridge.service.messages import AiMessage, UserMessage, message_from_json, message_to_json
from bridge.service.serialization import (
    execution_from_json,
    execution_to_json,
    parameters_from_json,
    parameters_to_json,
    response_from_json,
    response_to_json,
)
from bridge.text import short_repr
from bridge.tools.arguments import parse_arguments
from bridge.types import Json, optional_field, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.service.chat_model import ChatResponse
    from bridge.service.messages import ChatMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool, ToolExecution, ToolExecutionRequest, ToolExecutionResult, ToolExecutor

_DENIED = "the call was not approved"

_VERSION = 1


class Verdict(Enum):
    """Whether a call may run."""

    YES = "yes"
    NO = "no"
    LATER = "later"
    """Whoever decides has not decided yet: the invocation is suspended."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a call: ``Decision.yes()``, ``.no("not before noon")`` or ``.later()``."""

    verdict: Verdict
    words: str = _DENIED
    """What the model reads instead of a result, where the answer is no."""

    @classmethod
    def yes(cls) -> Decision:
        """The call may run."""
        return cls(Verdict.YES)

    @classmethod
    def no(cls, words: str = _DENIED) -> Decision:
        """The call may not run; the model reads the words and goes on."""
        return cls(Verdict.NO, words)

    @classmethod
    def later(cls) -> Decision:
        """The invocation is suspended until somebody has decided."""
        return cls(Verdict.LATER)


Approver = Callable[
    ["ToolExecutionRequest", "Tool", "InvocationContext"], "Decision | bool | Awaitable[Decision | bool]"
]
"""Decides about a call; gets the request with its arguments as a mapping, the tool and the context."""


def unless_read_only(tool: Tool) -> bool:
    """True for a tool whose calls need approval: it is not read-only by annotations that may be relied on.

    The annotations of a remote tool count only where its server is marked as trusted.
    """
    return tool.trusted_annotations.read_only is not True


def for_tools(*names: str) -> Callable[[Tool], bool]:
    """Approval is needed for the tools of these names."""
    return lambda tool: tool.name in names


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """Which calls need approval, and who gives it."""

    approve: Approver
    applies: Callable[[Tool], bool] = unless_read_only
    """Says of a tool whether its calls need approval."""

    async def decide(self, request: ToolExecutionRequest, tool: Tool, context: InvocationContext) -> Decision | None:
        """What is decided about a call; None where it needs no approval, or cannot run anyway."""
        if not self.applies(tool) or (parsed := with_parsed_arguments(request)) is None:
            return None
        answer = self.approve(parsed, tool, context)
        decision = await answer if inspect.isawaitable(answer) else answer
        if isinstance(decision, bool):
            return Decision.yes() if decision else Decision.no()
        return decision

    def guarded(self, tool: Tool) -> Tool:
        """The tool, running no call but an approved one."""
        return replace(tool, executor=_Gate(tool.executor)) if self.applies(tool) else tool


_approved: ContextVar[ToolExecutionRequest | None] = ContextVar("approved", default=None)


@contextmanager
def approve_call(request: ToolExecutionRequest) -> Iterator[None]:
    """Let one call pass."""
    token = _approved.set(with_parsed_arguments(request))
    try:
        yield
    finally:
        _approved.reset(token)


class _Gate:
    """Runs an approved call."""

    __slots__ = ("_executor",)

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        known = _approved.get()
        if known is None or (known.name, known.arguments) != (request.name, request.arguments):
            raise ToolError(f"this call of {request.name!r} was not approved; call the tool again")
        return await self._executor.execute(request, context)


def with_parsed_arguments(request: ToolExecutionRequest) -> ToolExecutionRequest | None:
    """The request with its arguments as a mapping; None where they cannot be read."""
    if not isinstance(request.arguments, str):
        return request
    try:
        return replace(request, arguments=parse_arguments(request.name, request.arguments))
    except ArgumentsError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedInvocation:
    """All that an invocation needs to go on."""

    service: str
    """The service's interface."""
    method: str
    """The method of it that was called."""
    memory_id: Any = None
    """Which conversation it belongs to."""
    invocation_id: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The invocation's free data."""
    request_parameters: ChatRequestParameters = field(default_factory=ChatRequestParameters)
    """What the caller wanted of the model."""
    system: str | None = None
    """The system message."""
    turn: tuple[ChatMessage, ...]
    """What was said since the user's message; the last calls the tools that wait."""
    responses: tuple[ChatResponse, ...]
    """The model's responses."""
    executions: tuple[ToolExecution, ...] = ()
    """The tools that have run for earlier responses."""
    executed: Mapping[int, ToolExecution] = field(default_factory=dict)
    """Those that have run for the last response, by their place in it."""
    decisions: Mapping[int, Decision] = field(default_factory=dict)
    """What is decided about calls of the last response, by their place in it."""

    @property
    def pending(self) -> Mapping[int, ToolExecutionRequest]:
        """The calls about which nothing is decided yet, by their place in the last response."""
        message = self.turn[-1]
        assert isinstance(message, AiMessage)
        return {
            index: request
            for index, request in enumerate(message.tool_execution_requests)
            if (decision := self.decisions.get(index)) is not None and decision.verdict is Verdict.LATER
        }

    def to_json(self) -> Json:
        """The state as JSON data.

        Raises:
            DefinitionError: The memory id, or the free data, is no JSON data.
        """
        data = {
            "version": _VERSION,
            "service": self.service,
            "method": self.method,
            "memoryId": self.memory_id,
            "invocationId": self.invocation_id,
            "parameters": dict(self.parameters),
            "requestParameters": parameters_to_json(self.request_parameters),
            "turn": [message_to_json(message) for message in self.turn],
            "responses": [response_to_json(response) for response in self.responses],
            "executions": [execution_to_json(execution) for execution in self.executions],
            "executed": {str(index): execution_to_json(each) for index, each in self.executed.items()},
            "decisions": {
                str(index): {"verdict": each.verdict.value, "words": each.words}
                for index, each in self.decisions.items()
            },
        } | without_none(system=self.system)
        try:
            json_text.dumps(data)
        except (TypeError, ValueError) as error:
            raise DefinitionError(
                f"the suspended invocation of {self.method!r} cannot be stored as JSON ({error}); "
                "give a memory id and invocation parameters that can"
            ) from error
        return data

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Self:
        """The state that `to_json` wrote.

        Raises:
            WireError: It is no such data.
        """
        try:
            if json["version"] != _VERSION:
                raise WireError(f"a suspended invocation of version {json['version']!r}, not {_VERSION}")
            state = cls(
                service=require_text(json["service"]),
                method=require_text(json["method"]),
                memory_id=json["memoryId"],
                invocation_id=require_text(json["invocationId"]),
                parameters=json["parameters"],
                request_parameters=parameters_from_json(json["requestParameters"]),
                system=optional_field(json, "system", str),
                turn=tuple(message_from_json(message) for message in json["turn"]),
                responses=tuple(response_from_json(response) for response in json["responses"]),
                executions=tuple(execution_from_json(execution) for execution in json["executions"]),
                executed={int(index): execution_from_json(each) for index, each in json["executed"].items()},
                decisions={
                    int(index): Decision(Verdict(each["verdict"]), require_text(each["words"]))
                    for index, each in json["decisions"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(f"a malformed suspended invocation: {short_repr(json)}") from error
        if not (state.turn and isinstance(state.turn[0], UserMessage) and isinstance(state.turn[-1], AiMessage)):
            raise WireError(f"a malformed suspended invocation, without its messages: {short_repr(json)}")
        return state


class InvocationSuspended(BaseException):
    """An invocation waits for somebody's approval; `resume` goes on with it.

    It derives from BaseException, so that an ``except Exception`` on the way does not eat it.

    Attributes:
        state: All that it needs to go on.
    """

    def __init__(self, state: SuspendedInvocation) -> None:
        waiting = ", ".join(repr(request.name) for request in state.pending.values())
        super().__init__(f"'{state.service}.{state.method}' waits for the approval of {waiting}")
        self.state = state
