"""The loop: ask the model, run the tools that it wants, tell it what came of them, until it answers.

    request → model → response ─┬─ no tool calls ───────────────────────────→ done
       ↑                        ╰─ tools, by `bridge.tools.execution` ─┬─ immediate → done
       ╰───────────────────────────────────────────────────────────────╯

There is one loop. It listens to the model's stream where somebody listens to it (`Invocation.emit`), or where there is
only a streaming model; all else is the same. It writes no memory: whoever runs it does, when it is over.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio

from bridge.errors import ChatModelError, ToolLimitError
from bridge.service.approval import InvocationSuspended, SuspendedInvocation
from bridge.service.chat_model import (
    ChatRequest,
    ChatRequestParameters,
    CompleteResponse,
    CompleteToolCall,
    TokenUsage,
    after_first_response,
)
from bridge.service.events import IntermediateResponse, Listeners, notify
from bridge.service.messages import AiMessage, ToolExecutionResultMessage
from bridge.service.tool_calls import Compensations, ToolCalls, returns_immediately, run_concurrently
from bridge.tools.execution import LOCAL, ExecutionPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from bridge.service.approval import ApprovalPolicy, Decision
    from bridge.service.chat_model import ChatModel, ChatResponse, ResponseFormat, StreamingChatModel
    from bridge.service.events import Emit
    from bridge.service.memory import WindowView
    from bridge.service.tool_calls import Start
    from bridge.service.toolset import OfferedTools
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

_T = TypeVar("_T")

DEFAULT_MODEL_TIMEOUT_SECONDS = 600.0
"""How long a model may say nothing: what the SDKs of the providers allow too."""


DEFAULT_MAX_TOOL_CALLS_PER_RESPONSE = 100
"""How many calls of tools one response may hold: more than any model means to make at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How a service runs its loops; at least one of the models is there."""

    chat_model: ChatModel | None = None
    streaming_chat_model: StreamingChatModel | None = None
    policy: ExecutionPolicy = LOCAL
    """How failures of tools are treated."""
    listeners: Listeners = field(default_factory=Listeners)
    approval: ApprovalPolicy | None = None
    max_tool_round_trips: int = 100
    """How often in one invocation the model may have tools run before it answers."""
    max_tool_calls_per_response: int | None = DEFAULT_MAX_TOOL_CALLS_PER_RESPONSE
    """How many calls of tools one response may hold; None for any number."""
    concurrent_tools: float = 1
    """How many tools of one response run at the same time."""
    model_timeout_seconds: float | None = DEFAULT_MODEL_TIMEOUT_SECONDS
    """How long the model may say nothing: until its response, or, of a stream, until the next piece."""


class Invocation:
    """One run of the loop.

    Args:
        settings: How the service runs its loops.
        source: The service's interface and the method that was called, ``Assistant.chat``.
        context: What surrounds the invocation.
        view: What the model is shown of the conversation, this turn included.
        tools: The tools of the invocation.
        parameters: What is wanted of the model.
        response_format: JSON that the reply is to be.
        emit: Takes the events, where somebody listens.

    Attributes:
        responses: The model's responses.
        executions: The tools that ran, in the order in which the model called them.
        immediate: The results that are the answer, where the model is not to comment on them.
        compensations: What could be undone.
    """

    def __init__(
        self,
        settings: LoopSettings,
        *,
        source: str,
        context: InvocationContext,
        view: WindowView,
        tools: OfferedTools,
        parameters: ChatRequestParameters,
        response_format: ResponseFormat | None = None,
        emit: Emit | None = None,
    ) -> None:
        self.responses: list[ChatResponse] = []
        self.executions: list[ToolExecution] = []
        self.immediate: Sequence[ToolExecution] = ()
        self.compensations = Compensations(context)
        self.context = context
        self.view = view
        self.tools = tools
        self._settings = settings
        # Noted before anybody else learns of it: an observer that raises undoes the call too.
        self._policy = replace(settings.policy, after=(self._note, *settings.policy.after))
        self._source = source
        self._parameters = parameters
        self._response_format = response_format
        self._emit = emit
        self._streams = settings.chat_model is None or emit is not None
        self._round_trips = 0
        self._announced: set[int] = set()
        """The calls of the latest response that its stream has called whole."""

    @property
    def token_usage(self) -> TokenUsage:
        """The tokens of all responses together."""
        return sum((response.token_usage for response in self.responses), TokenUsage())

    async def run(self) -> None:
        """Run until there is an answer.

        Raises:
            ChatModelError: The model failed, or said nothing for too long.
            ToolLimitError: The model wanted too much.
            InvocationSuspended: A call waits for approval.
            Exception: What a handler or listener raised; what a tool raised, where it is to propagate.
        """
        while not await self._round():
            pass

    async def resume(self, state: SuspendedInvocation, decisions: Mapping[int, Decision]) -> None:
        """Go on where another invocation was suspended, and run until there is an answer.

        Args:
            state: That other invocation.
            decisions: What has been decided about its pending calls; whoever approves is asked about the others.
        """
        *_, message = state.turn
        assert isinstance(message, AiMessage)
        self.responses += state.responses
        self.executions += state.executions
        self._round_trips = sum(response.message.has_tool_execution_requests for response in self.responses)
        for execution in (*state.executions, *state.executed.values()):
            self.compensations.note(self.tools.box.find(execution.request.name), execution)
        calls = self._calls(executed=dict(state.executed), decisions={**state.decisions, **decisions})
        doubtful = state.responses[-1].doubtful_call if state.responses else None
        calls.cut_off = None if doubtful in calls.decisions else doubtful
        await self._run_calls(calls, message.tool_execution_requests)
        if not self._took(calls):
            await self.run()

    async def _round(self) -> bool:
        """Ask the model once, and run the tools that it wants; whether that gave the answer."""
        request = await self._next_request()
        calls = self._calls()
        limit = self._settings.concurrent_tools
        if self._streams and limit > 1 and request.tool_specifications:
            await run_concurrently(calls, limit, partial(self._receive_and_start, request, calls))
            wanted = self.responses[-1].message.tool_execution_requests
        else:
            wanted = (await self._receive(request)).message.tool_execution_requests
        if not wanted:
            return True
        calls.cut_off = self._cut_off(self.responses[-1])
        await self._run_calls(calls, wanted)
        return self._took(calls)

    async def _next_request(self) -> ChatRequest:
        messages = self.view.messages()
        specifications = await self.tools.next(messages)
        request = self._parameters.applied_to(
            ChatRequest(messages=messages, tool_specifications=specifications, response_format=self._response_format)
        )
        if self.responses and (choice := after_first_response(request.tool_choice)) is not request.tool_choice:
            return replace(request, tool_choice=choice)
        return request

    async def _receive(self, request: ChatRequest, start: Start | None = None) -> ChatResponse:
        """The model's response: noted, and found to be within the limits."""
        listeners = self._settings.listeners
        if listeners.model_request:
            await notify(listeners.model_request, request, self.context)
        response = await (self._streamed(request, start) if self._streams else self._chatted(request))
        if listeners.model_response:
            await notify(listeners.model_response, response, request, self.context)
        self.responses.append(response)
        self.view.add(response.message)
        if wanted := response.message.tool_execution_requests:
            self._admit(len(wanted))
            self._round_trips += 1
            if self._emit is not None:
                await self._emit(IntermediateResponse(response))
        return response

    async def _receive_and_start(self, request: ChatRequest, calls: ToolCalls, start: Start) -> None:
        """Receive a response whose tools run while it is still coming in."""

        def start_one(index: int, wanted: ToolExecutionRequest) -> None:
            self._admit(index + 1)
            if calls.may_start(wanted):
                start(index, wanted)

        await self._receive(request, start_one)

    async def _chatted(self, request: ChatRequest) -> ChatResponse:
        model = self._settings.chat_model
        assert model is not None
        return await self._within_limit(model.chat(request), model)

    async def _streamed(self, request: ChatRequest, start: Start | None) -> ChatResponse:
        model = self._settings.streaming_chat_model
        assert model is not None
        self._announced = set()
        async with aclosing(model.stream(request)) as events:
            while True:
                event = await self._within_limit(anext(events, None), model)
                if isinstance(event, CompleteResponse):
                    return event.response
                if event is None:
                    raise ChatModelError("the stream ended before the response was whole", provider=_provider(model))
                if isinstance(event, CompleteToolCall):
                    self._announced.add(event.index)
                    if start is not None:
                        start(event.index, event.request)
                if self._emit is not None:
                    await self._emit(event)

    async def _within_limit(self, answer: Awaitable[_T], model: object) -> _T:
        seconds = self._settings.model_timeout_seconds
        if seconds is None:
            return await answer
        with anyio.move_on_after(seconds):
            return await answer
        raise ChatModelError(f"said nothing for {seconds:g} seconds", provider=_provider(model), retryable=True)

    def _admit(self, calls: int) -> None:
        """Refuse a response that wants so many calls, or any, where that is over a limit."""
        settings = self._settings
        if self._round_trips >= settings.max_tool_round_trips:
            raise ToolLimitError(
                f"{self._source!r} went {settings.max_tool_round_trips} times to the tools and back, and the model "
                "wants more; raise max_tool_round_trips, or tell the model when to stop"
            )
        if settings.max_tool_calls_per_response is not None and calls > settings.max_tool_calls_per_response:
            raise ToolLimitError(
                f"the model wants {calls} tools at once in {self._source!r}, more than "
                f"max_tool_calls_per_response={settings.max_tool_calls_per_response}; raise it, or tell the model to "
                "call fewer tools at once"
            )

    def _note(self, execution: ToolExecution, _: InvocationContext) -> None:
        self.compensations.note(self.tools.box.find(execution.request.name), execution)

    def _cut_off(self, response: ChatResponse) -> int | None:
        doubtful = response.doubtful_call
        return None if doubtful in self._announced else doubtful

    def _calls(
        self, executed: dict[int, ToolExecution] | None = None, decisions: dict[int, Decision] | None = None
    ) -> ToolCalls:
        return ToolCalls(
            tools=self.tools.box,
            context=self.context,
            policy=self._policy,
            approval=self._settings.approval,
            emit=self._emit,
            executed=executed or {},
            decisions=decisions or {},
        )

    async def _run_calls(self, calls: ToolCalls, wanted: Sequence[ToolExecutionRequest]) -> None:
        """Run those of the calls that have not run yet, or suspend the invocation."""
        if not await calls.decide(wanted):
            raise InvocationSuspended(self._state(calls))
        missing = calls.missing(wanted)
        if len(missing) > 1 and self._settings.concurrent_tools > 1:
            await run_concurrently(calls, self._settings.concurrent_tools, partial(_start_all, missing))
        else:
            for index, request in missing.items():
                await calls.run(index, request)

    def _took(self, calls: ToolCalls) -> bool:
        """Take over the results of a response's calls; whether they are the answer."""
        executions = [calls.executed[index] for index in sorted(calls.executed)]
        self.executions += executions
        self.view.add(*(ToolExecutionResultMessage.of(each.request, each.result) for each in executions))
        if returns_immediately(self.tools.box, executions):
            self.immediate = executions
            return True
        return False

    def _state(self, calls: ToolCalls) -> SuspendedInvocation:
        service, _, method = self._source.rpartition(".")
        return SuspendedInvocation(
            service=service,
            method=method,
            memory_id=self.context.memory_id,
            invocation_id=self.context.invocation_id,
            parameters=self.context.parameters,
            request_parameters=self._parameters,
            system=self.view.system_text,
            turn=self.view.turn,
            responses=tuple(self.responses),
            executions=tuple(self.executions),
            executed=dict(calls.executed),
            decisions=dict(calls.decisions),
        )


async def _start_all(missing: Mapping[int, ToolExecutionRequest], start: Start) -> None:
    for index, request in missing.items():
        start(index, request)


def _provider(model: object) -> str:
    return type(model).__name__
