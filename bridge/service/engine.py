"""Engine: runs the methods of a service.

An invocation reads the conversation, runs the loop, parses the reply, and writes the turn to the memory. If the
invocation fails, nothing is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio

from bridge.errors import DefinitionError, InvocationTimeoutError
from bridge.service.answer import answer_of
from bridge.service.approval import Decision, InvocationSuspended
from bridge.service.chat_model import ChatRequestParameters, CompleteResponse
from bridge.service.events import Result
from bridge.service.guardrails.messages import HeldAnswer, InputGuardrailRequest, withheld, without_text
from bridge.service.loop import Invocation, LoopSettings, MethodCall
from bridge.service.memory.chat_memory import ChatMemory, WindowView
from bridge.service.memory.store import DEFAULT_MEMORY_ID
from bridge.service.messages import AiMessage, SystemMessage, UserMessage
from bridge.service.observation import observed_invocation
from bridge.telemetry import current
from bridge.tools.caller import InvocationParameters
from bridge.tools.checks import require_type
from bridge.tools.context import InvocationContext
from bridge.tools.execution import notify
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.service.approval import SuspendedInvocation
    from bridge.service.events import Emit
    from bridge.service.interface import ServiceMethod
    from bridge.service.memory.chat_memory import ProvidedMemories
    from bridge.service.messages import ChatMessage
    from bridge.service.toolset import Toolset

_FAILURE_LISTENERS_SECONDS = 5.0
"""Time limit for listeners to handle a cancelled invocation, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Configuration and dependencies of one service."""

    methods: Mapping[str, ServiceMethod]
    settings: LoopSettings
    toolset: Toolset
    memory: ChatMemory | None = None
    memory_provider: ProvidedMemories | None = None
    system: Callable[[Any], str | None] | None = None
    """Returns the system message by memory id, for methods without their own."""
    parameters: ChatRequestParameters = field(default_factory=ChatRequestParameters)
    """Maximum duration of an invocation."""

    def __post_init__(self) -> None:
        require_type(self.memory, ChatMemory | None, "memory", "a ChatMemory, such as ChatMemory(), or None")
        require_type(self.parameters, ChatRequestParameters, "parameters", "ChatRequestParameters, or None")

    def call(
        self, method: ServiceMethod, values: Mapping[str, Any], called_by: InvocationContext | None = None
    ) -> MethodCall:
        """Prepare a call from its arguments by name; ``called_by`` is the context of a caller that calls a tool."""
        context = self._context(method, values, called_by)
        system = method.system_text(values)
        if system is None and self.system is not None:
            system = self.system(context.memory_id)
        parameters = values[method.request_parameters] if method.request_parameters is not None else None
        earlier, message = method.messages(values)
        return MethodCall(
            method=method,
            context=context,
            system=system,
            message=message,
            earlier=earlier,
            parameters=self.parameters if parameters is None else parameters.over(self.parameters),
        )

    def resumption(self, state: SuspendedInvocation, decisions: Mapping[int, Decision]) -> MethodCall:
        """Prepare the continuation of a suspended invocation.

        Raises:
            DefinitionError: The service has no such method.
        """
        method = self.methods.get(state.method)
        if method is None or method.source != f"{state.service}.{state.method}":
            raise DefinitionError(
                f"the invocation was suspended in '{state.service}.{state.method}', which this service does not have"
            )
        for index, decision in decisions.items():
            require_type(
                decision, Decision, f"the decision on the call {index!r}", "a Decision, such as Decision.yes()"
            )
            if index not in state.pending:
                raise DefinitionError(f"no call {index!r} waits for a decision; those that wait are {[*state.pending]}")
        message = state.turn[state.earlier]
        assert isinstance(message, UserMessage)
        return MethodCall(
            method=method,
            context=InvocationContext(
                memory_id=state.memory_id,
                parameters=state.parameters,
                invocation_id=state.invocation_id,
                deadline=self._deadline(),
                service=method.source,
                timestamp=datetime.now(UTC),
            ),
            system=state.system,
            message=message,
            earlier=state.turn[: state.earlier],
            parameters=state.request_parameters,
            resumed=state,
            decisions=decisions,
        )

    async def run(self, call: MethodCall, emit: Emit | None = None) -> Result[Any]:
        """Run an invocation and emit its events; see `Invocation.run` and `answer_of` for what is raised."""
        listeners = self.settings.listeners
        if listeners.started:
            await notify(listeners.started, call.message, call.context)
        try:
            observer = current.observer()
            if observer is None:
                result = await self._within_deadline(call, emit)
            else:
                with observed_invocation(observer, call.context):
                    result = await self._within_deadline(call, emit)
        except BaseException as error:
            if listeners.failed:
                with anyio.move_on_after(_FAILURE_LISTENERS_SECONDS, shield=True):
                    await notify(listeners.failed, error, call.context)
            raise
        if listeners.completed:
            await notify(listeners.completed, result, call.context)
        if emit is not None:
            await emit(CompleteResponse(result.final_response))
        return result

    async def _within_deadline(self, call: MethodCall, emit: Emit | None) -> Result[Any]:
        deadline = call.context.deadline
        if deadline is None:
            return await self._invoke(call, emit)
        with anyio.CancelScope(deadline=deadline):
            return await self._invoke(call, emit)
        raise InvocationTimeoutError(f"{call.method.source} found no answer in time; raise timeout_seconds")

    async def _invoke(self, call: MethodCall, emit: Emit | None) -> Result[Any]:
        memory = self._memory_of(call)
        skills = self.toolset.skills
        catalogue = "" if skills is None else await skills.catalogue(call.context)
        text = "\n\n".join(filter(None, (call.system, catalogue)))
        system = SystemMessage(text) if text or call.system is not None else None
        view = WindowView(None, system) if memory is None else await memory.view(system)
        call = await _checked_call(call, view)
        view.add(*(call.resumed.turn if call.resumed else (*call.earlier, call.message)))
        held = HeldAnswer(emit) if emit is not None and call.method.guardrails.output else None
        invocation = Invocation(
            settings=self.settings,
            call=call,
            view=view,
            tools=await self.toolset.open(call.message, call.context),
            emit=held or emit,
        )
        try:
            if call.resumed is not None:
                await invocation.resume(call.resumed)
            else:
                await invocation.run()
            content = await answer_of(invocation, held)
            is_checked = bool(call.method.guardrails.output)
            if memory is not None:
                await memory.add(*(_accepted(view.turn) if is_checked else view.turn))
        except (InvocationSuspended, InputRequired):
            raise
        except BaseException as error:
            await invocation.compensations.undo(invocation.tools.offer.undoing, error)
            raise
        *intermediate, final = invocation.responses
        if is_checked:
            intermediate = list(map(withheld, intermediate))
            final = withheld(final) if invocation.immediate else final
        return Result(
            content=content,
            tool_executions=tuple(invocation.executions),
            token_usage=invocation.token_usage,
            intermediate_responses=tuple(intermediate),
            final_response=final,
        )

    def _context(
        self, method: ServiceMethod, values: Mapping[str, Any], called_by: InvocationContext | None
    ) -> InvocationContext:
        own: InvocationContext | None = None if method.context is None else values[method.context]
        context = InvocationContext() if own is None else own.fork()
        if own is None and called_by is not None:
            for name in ("caller", "account", "headers", "memory_id"):
                setattr(context, name, getattr(called_by, name))
        context.service, context.timestamp = method.source, datetime.now(UTC)
        if method.memory_id is not None:
            context.memory_id = values[method.memory_id]
        if method.parameters is not None and (parameters := values[method.parameters]) is not None:
            context.parameters = (
                parameters if isinstance(parameters, InvocationParameters) else InvocationParameters(parameters)
            )
        deadlines = [deadline for deadline in (context.deadline, self._deadline()) if deadline is not None]
        context.deadline = min(deadlines, default=None)
        return context

    def _deadline(self) -> float | None:
        seconds = self.settings.limits.timeout_seconds
        if seconds is None or math.isinf(seconds):
            return None
        return anyio.current_time() + seconds

    def _memory_of(self, call: MethodCall) -> ChatMemory | None:
        memory_id = call.context.memory_id
        if memory_id is None and (call.method.memory_id is not None or call.context.headers):
            return None  # a call without a conversation must not share one with other clients, which HTTP servers have
        if self.memory_provider is not None:
            return self.memory_provider.of(DEFAULT_MEMORY_ID if memory_id is None else memory_id)
        return self.memory if self.memory is None or memory_id is None else self.memory.of(memory_id)


def _accepted(turn: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return the messages of a turn without text that no output guardrail has checked."""
    return [
        without_text(message) if isinstance(message, AiMessage) and message.has_tool_execution_requests else message
        for message in turn
    ]


async def _checked_call(call: MethodCall, view: WindowView) -> MethodCall:
    """Return the call with the message that the input guardrails accept."""
    guardrails = call.method.guardrails
    if not guardrails.input or call.resumed is not None:
        return call
    request = InputGuardrailRequest(
        message=call.message,
        system=view.system_text,
        messages=view.messages(),
        context=call.context,
        method=call.method.source,
    )
    return replace(call, message=await guardrails.check_input(request))
