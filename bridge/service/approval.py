"""Approval of tool calls, immediately or later.

    async def ask_the_clerk(request, tool, context) -> Decision:
        ...

    service = ai_service(Desk, chat_model=model, tools=[Bookings()], approval=ApprovalPolicy(approve=ask_the_clerk))

An approval covers one tool with exact arguments. If an error handler corrects the request afterwards, the corrected
call is refused.

If the decision comes later, the invocation is suspended as data that any process can continue:

    try:
        answer = await desk.chat("Cancel booking B-12345")
    except InvocationSuspended as suspended:
        queue.put(json.dumps(suspended.state.to_json()))

    # elsewhere, later
    state = SuspendedInvocation.from_json(json.loads(queue.get()))
    answer = await resume(desk, state, {index: Decision.yes() for index in state.pending})

The memory stays unchanged until the invocation ends. Resume a stored state only once: a second time would run the tools
again. A method that is itself a tool (``@tool``) cannot be suspended; the call fails with the reason.
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
from bridge.service.memory.serialization import (
    execution_from_json,
    execution_to_json,
    parameters_from_json,
    parameters_to_json,
    response_from_json,
    response_to_json,
)
from bridge.service.messages import AiMessage, UserMessage, message_from_json, message_to_json
from bridge.text import short_repr
from bridge.tools.checks import require_callable, require_type
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
    """Outcome of an approval."""

    YES = "yes"
    NO = "no"
    LATER = "later"
    """Not decided yet; the invocation is suspended."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a call: ``Decision.yes()``, ``.no("not before noon")`` or ``.later()``."""

    verdict: Verdict
    words: str = _DENIED
    """Text that the model reads in place of a result if the verdict is NO."""

    @classmethod
    def yes(cls) -> Decision:
        """Allow the call."""
        return cls(Verdict.YES)

    @classmethod
    def no(cls, words: str = _DENIED) -> Decision:
        """Refuse the call; the model reads the words and continues."""
        return cls(Verdict.NO, words)

    @classmethod
    def later(cls) -> Decision:
        """Suspend the invocation until a decision is made."""
        return cls(Verdict.LATER)


Approver = Callable[
    ["ToolExecutionRequest", "Tool", "InvocationContext"], "Decision | bool | Awaitable[Decision | bool]"
]
"""Decides about a call. Receives the request with its arguments as a mapping, the tool and the context."""


def unless_read_only(tool: Tool) -> bool:
    """Return True for a tool without a trusted read-only annotation.

    Annotations of a remote tool only count if its server is marked as trusted.
    """
    return tool.trusted_annotations.read_only is not True


def for_tools(*names: str) -> Callable[[Tool], bool]:
    """Require approval for the tools with these names.

    Raises:
        DefinitionError: A name is not text.
    """
    for name in names:
        require_type(name, str, "a name for for_tools", "the name of a tool")
    return lambda tool: tool.name in names


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """Selects the calls that need approval, and decides about them."""

    approve: Approver
    applies: Callable[[Tool], bool] = unless_read_only
    """Returns True for tools whose calls need approval."""

    def __post_init__(self) -> None:
        require_callable(self.approve, 3, "approve", "the request, the tool and the context")
        require_callable(self.applies, 1, "applies", "the tool")

    async def decide(self, request: ToolExecutionRequest, tool: Tool, context: InvocationContext) -> Decision | None:
        """Return the decision about a call; None if it needs no approval, or if its arguments cannot be parsed."""
        if not self.applies(tool) or (parsed := with_parsed_arguments(request)) is None:
            return None
        answer = self.approve(parsed, tool, context)
        decision = await answer if inspect.isawaitable(answer) else answer
        if isinstance(decision, bool):
            return Decision.yes() if decision else Decision.no()
        if not isinstance(decision, Decision):
            raise DefinitionError(f"approve returned {short_repr(decision)}; return a Decision, True or False")
        return decision

    def guarded(self, tool: Tool) -> Tool:
        """Wrap a tool so that it only runs approved calls."""
        return replace(tool, executor=_ApprovedCallsOnly(tool.executor)) if self.applies(tool) else tool


_approved: ContextVar[ToolExecutionRequest | None] = ContextVar("approved", default=None)


@contextmanager
def approve_call(request: ToolExecutionRequest) -> Iterator[None]:
    """Approve one call within this context manager."""
    token = _approved.set(with_parsed_arguments(request))
    try:
        yield
    finally:
        _approved.reset(token)


@dataclass(frozen=True, slots=True)
class _ApprovedCallsOnly:
    """Runs a call only if it was approved."""

    executor: ToolExecutor

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        approved = _approved.get()
        if approved is None or (approved.name, approved.arguments) != (request.name, request.arguments):
            raise ToolError(f"this call of {request.name!r} was not approved; call the tool again")
        return await self.executor.execute(request, context)


def with_parsed_arguments(request: ToolExecutionRequest) -> ToolExecutionRequest | None:
    """Return the request with parsed arguments; None if they are not a JSON object."""
    try:
        return request.parsed()
    except ArgumentsError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedInvocation:
    """State of a suspended invocation."""

    service: str
    """Name of the service's interface."""
    method: str
    """Name of the called method."""
    memory_id: Any = None
    """Id of the conversation."""
    invocation_id: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Arbitrary data of the invocation."""
    request_parameters: ChatRequestParameters = field(default_factory=ChatRequestParameters)
    """The caller's request parameters for the model."""
    system: str | None = None
    """The system message."""
    turn: tuple[ChatMessage, ...]
    """Messages from the user's message on, after the `earlier` ones; the last one contains the pending calls."""
    earlier: int = 0
    """Number of messages in `turn` before the user's message."""
    responses: tuple[ChatResponse, ...]
    """The model's responses."""
    executions: tuple[ToolExecution, ...] = ()
    """Executed tool calls of earlier responses."""
    executed: Mapping[int, ToolExecution] = field(default_factory=dict)
    """Executed tool calls of the last response, by index."""
    decisions: Mapping[int, Decision] = field(default_factory=dict)
    """Decisions about calls of the last response, by index."""

    @property
    def pending(self) -> Mapping[int, ToolExecutionRequest]:
        """Undecided calls of the last response, by index."""
        message = self.turn[-1]
        assert isinstance(message, AiMessage)
        return {
            index: request
            for index, request in enumerate(message.tool_execution_requests)
            if (decision := self.decisions.get(index)) is not None and decision.verdict is Verdict.LATER
        }

    def to_json(self) -> Json:
        """Convert the state to JSON data.

        Raises:
            DefinitionError: The memory id or the invocation parameters cannot be serialized as JSON.
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
            "earlier": self.earlier,
            "responses": [response_to_json(response) for response in self.responses],
            "executions": [execution_to_json(execution) for execution in self.executions],
            "executed": {str(index): execution_to_json(execution) for index, execution in self.executed.items()},
            "decisions": {
                str(index): {"verdict": decision.verdict.value, "words": decision.words}
                for index, decision in self.decisions.items()
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
        """Convert JSON data from `to_json` to a state.

        Raises:
            WireError: The data is malformed.
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
                earlier=optional_field(json, "earlier", int) or 0,
                responses=tuple(response_from_json(response) for response in json["responses"]),
                executions=tuple(execution_from_json(execution) for execution in json["executions"]),
                executed={int(index): execution_from_json(execution) for index, execution in json["executed"].items()},
                decisions={
                    int(index): Decision(Verdict(decision["verdict"]), require_text(decision["words"]))
                    for index, decision in json["decisions"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(f"a malformed suspended invocation: {short_repr(json)}") from error
        of_turn = state.turn[state.earlier :] if state.earlier >= 0 else ()
        if not (of_turn and isinstance(of_turn[0], UserMessage) and isinstance(of_turn[-1], AiMessage)):
            raise WireError(f"a malformed suspended invocation, without its messages: {short_repr(json)}")
        return state


class InvocationSuspended(BaseException):
    """An invocation waits for approval; continue it with `resume`.

    Derives from BaseException so that ``except Exception`` does not catch it.

    Attributes:
        state: The state to continue with.
    """

    def __init__(self, state: SuspendedInvocation) -> None:
        waiting = ", ".join(repr(request.name) for request in state.pending.values())
        super().__init__(f"'{state.service}.{state.method}' waits for the approval of {waiting}")
        self.state = state
