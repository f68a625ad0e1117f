"""Suspension: an invocation that waits for somebody's approval, as data that another process can go on with.

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

import json as json_text
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from bridge.errors import DefinitionError, WireError
from bridge.service.approval import Decision, Verdict
from bridge.service.messages import AiMessage, UserMessage, message_from_json, message_to_json
from bridge.service.parameters import ChatRequestParameters
from bridge.service.serialization import (
    execution_from_json,
    execution_to_json,
    parameters_from_json,
    parameters_to_json,
    response_from_json,
    response_to_json,
)
from bridge.text import short_repr
from bridge.types import Json, optional_field, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.service.chat_model import ChatResponse
    from bridge.service.messages import ChatMessage
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

_VERSION = 1


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
