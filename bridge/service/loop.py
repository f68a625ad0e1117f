"""The tool loop: call the model and run the tools that it requests, until it answers.

    request → model → response ─┬─ no tool calls ───────────────────────────→ done
       ↑                        ╰─ tools, by `bridge.tools.execution` ─┬─ immediate → done
       ╰───────────────────────────────────────────────────────────────╯

The same loop streams if the events have a receiver (`Invocation.emit`), or if only a streaming model is given. It does
not write to the memory; its caller does so at the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from bridge.errors import ChatModelError, DefinitionError, ToolLimitError
from bridge.service.approval import ApprovalPolicy, InvocationSuspended, SuspendedInvocation
from bridge.service.chat_model import (
    ChatRequest,
    CompleteResponse,
    CompleteToolCall,
    TokenUsage,
    after_first_response,
    provider_of,
)
from bridge.service.compensation import Compensations, not_undone
from bridge.service.events import IntermediateResponse, Listeners
from bridge.service.guardrails.messages import DEFAULT_MAX_GUARDRAIL_RETRIES, withheld
from bridge.service.messages import AiMessage, ToolExecutionResultMessage
from bridge.service.observation import observed_response
from bridge.service.tool_calls import ToolCalls, returns_immediately, run_concurrently
from bridge.telemetry import current
from bridge.tools.checks import require_callable, require_count, require_seconds, require_type
from bridge.tools.execution import LOCAL, ExecutionPolicy, notify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from bridge.service.approval import Decision
    from bridge.service.chat_model import ChatModel, ChatRequestParameters, ChatResponse, StreamingChatModel
    from bridge.service.events import Emit
    from bridge.service.interface import ServiceMethod
    from bridge.service.memory.chat_memory import WindowView
    from bridge.service.messages import ChatMessage, UserMessage
    from bridge.service.tool_calls import Start
    from bridge.service.toolset import OfferedTools
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

_T = TypeVar("_T")

ChatRequestTransformer = Callable[[ChatRequest, "InvocationContext"], "ChatRequest | Awaitable[ChatRequest]"]
"""Returns the request to send in place of the given one; an exception stops the invocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationLimits:
    """Limits of each invocation of an AI service.

    Raises:
        DefinitionError: A limit is not a number of its range.
    """

    timeout_seconds: float | None = None
    """Maximum duration of an invocation; None for no limit."""
    model_timeout_seconds: float | None = 600.0
    """Maximum wait for the model's response, or for the next event of a stream; None for no limit. The default is that
    of the providers' SDKs."""
    max_tool_round_trips: int = 100
    """Maximum responses with tool calls (LangChain4j's maxSequentialToolsInvocations)."""
    max_tool_calls_per_response: int | None = 100
    """Maximum tool calls in one response; more raise `ToolLimitError`. None for no limit."""
    max_guardrail_retries: int = DEFAULT_MAX_GUARDRAIL_RETRIES
    """Maximum further answers that output guardrails may request."""

    def __post_init__(self) -> None:
        require_seconds(self.timeout_seconds, "timeout_seconds")
        require_seconds(self.model_timeout_seconds, "model_timeout_seconds")
        require_count(self.max_tool_round_trips, "max_tool_round_trips", least=0)
        require_count(self.max_tool_calls_per_response, "max_tool_calls_per_response", optional=True)
        require_count(self.max_guardrail_retries, "max_guardrail_retries", least=0)


NO_OWN_LIMITS = InvocationLimits()
"""The default limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Settings of a service's loop; see `bridge.ai_service`. At least one of the models is set."""

    chat_model: ChatModel | None = None
    streaming_chat_model: StreamingChatModel | None = None
    policy: ExecutionPolicy = LOCAL
    listeners: Listeners = field(default_factory=Listeners)
    approval: ApprovalPolicy | None = None
    limits: InvocationLimits = NO_OWN_LIMITS
    chat_request_transformer: ChatRequestTransformer | None = None
    compensate_on_tool_errors: bool = False
    concurrent_tools: float = 1
    """Maximum tools of one response that run at the same time."""
    executor: Executor | None = None
    """Runs functions that are not asynchronous; None for the shared worker threads."""

    def __post_init__(self) -> None:
        require_type(self.policy, ExecutionPolicy, "policy", "an ExecutionPolicy")
        if self.chat_request_transformer is not None:
            require_callable(
                self.chat_request_transformer, 2, "chat_request_transformer", "the request and the context"
            )
        require_type(self.compensate_on_tool_errors, bool, "compensate_on_tool_errors", "True or False")
        require_type(self.limits, InvocationLimits, "limits", "InvocationLimits(…)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCall:
    """One call of a method, before it runs."""

    method: ServiceMethod
    context: InvocationContext
    system: str | None
    message: UserMessage
    earlier: tuple[ChatMessage, ...] = ()
    """Messages before the user's, which belong to this turn."""
    parameters: ChatRequestParameters
    resumed: SuspendedInvocation | None = None
    """The suspended invocation to continue."""
    decisions: Mapping[int, Decision] = field(default_factory=dict)
    """Decisions on the calls of the suspended invocation."""


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One run of the loop."""

    settings: LoopSettings
    call: MethodCall
    view: WindowView
    """Messages for the model, including this turn."""
    tools: OfferedTools
    emit: Emit | None = None
    """Receives the events; None if there is no receiver."""
    responses: list[ChatResponse] = field(default_factory=list)
    executions: list[ToolExecution] = field(default_factory=list)
    """Executed tools in the order of the model's calls."""
    immediate: Sequence[ToolExecution] = ()
    """Results that are the answer without a comment of the model."""
    compensations: Compensations = field(init=False)
    """Executed calls that can be undone."""
    _round_trips: int = 0
    _announced: set[int] = field(default_factory=set)
    """Indexes of the calls that the current stream has announced as complete."""

    def __post_init__(self) -> None:
        self.compensations = Compensations(self.call.context)

    @property
    def _streams(self) -> bool:
        return self.settings.chat_model is None or self.emit is not None

    @property
    def token_usage(self) -> TokenUsage:
        """Total tokens of all responses."""
        return sum((response.token_usage for response in self.responses), TokenUsage())

    async def run(self) -> None:
        """Run until there is an answer; if called again, until there is another one.

        Raises:
            ChatModelError: The model failed, or did not respond in time.
            ToolLimitError: The model requested too many tool calls.
            InvocationSuspended: A call needs approval.
            Exception: Raised by a handler or listener, or by a tool whose exceptions propagate.
        """
        self.immediate = ()
        while not await self._round():
            pass

    async def resume(self, state: SuspendedInvocation) -> None:
        """Continue a suspended invocation and run until there is an answer."""
        *_, message = state.turn
        assert isinstance(message, AiMessage)
        await self.tools.refresh()  # the pending calls may be of their tools
        self.responses += state.responses
        self.executions += state.executions
        self._round_trips = sum(response.message.has_tool_execution_requests for response in self.responses)
        for execution in (*not_undone(state.executions, state.turn), *state.executed.values()):
            self.compensations.note(self.tools.offer.box.find(execution.request.name), execution)
        calls = self._calls(executed=dict(state.executed), decisions={**state.decisions, **self.call.decisions})
        uncertain = state.responses[-1].doubtful_call if state.responses else None
        calls.cut_off = None if uncertain in calls.decisions else uncertain
        await self._run_calls(calls, message.tool_execution_requests)
        if not await self._collect_results(calls):
            await self.run()

    def rewrite_answer(self, message: AiMessage) -> None:
        """Replace the message of the last response, in the result and in the turn."""
        self.responses[-1] = replace(self.responses[-1], message=message, raw=None)
        self.view.retract()
        self.view.add(message)

    async def _round(self) -> bool:
        """Call the model once and run the tools that it requests; return True if that gave the answer."""
        request = await self._next_request()
        calls = self._calls()
        limit = self.settings.concurrent_tools
        if self._streams and limit > 1 and request.tool_specifications:
            await run_concurrently(calls, limit, partial(self._receive_and_start, request, calls))
            requests = self.responses[-1].message.tool_execution_requests
        else:
            requests = (await self._receive(request)).message.tool_execution_requests
        if not requests:
            return True
        uncertain = self.responses[-1].doubtful_call
        calls.cut_off = None if uncertain in self._announced else uncertain
        await self._run_calls(calls, requests)
        return await self._collect_results(calls)

    async def _next_request(self) -> ChatRequest:
        messages = self.view.messages()
        specifications = await self.tools.next(messages)
        reader = self.call.method.reader
        response_format = None if reader is None else reader.response_format
        request = self.call.parameters.applied_to(
            ChatRequest(messages=messages, tool_specifications=specifications, response_format=response_format)
        )
        if self.responses and (choice := after_first_response(request.tool_choice)) is not request.tool_choice:
            request = replace(request, tool_choice=choice)
        transform = self.settings.chat_request_transformer
        return request if transform is None else await _transformed(request, transform, self.call.context)

    async def _receive(self, request: ChatRequest, start: Start | None = None) -> ChatResponse:
        """Call the model, record its response and check the limits."""
        listeners = self.settings.listeners
        if listeners.model_request:
            await notify(listeners.model_request, request, self.call.context)
        model = self.settings.streaming_chat_model if self._streams else self.settings.chat_model
        pending = self._streamed(request, start) if self._streams else self._chatted(request)
        observer = current.observer()
        response = await (pending if observer is None else observed_response(observer, pending, request, model))
        if listeners.model_response:
            await notify(listeners.model_response, response, request, self.call.context)
        self.responses.append(response)
        self.view.add(response.message)
        if requests := response.message.tool_execution_requests:
            self._check_limits(len(requests))
            self._round_trips += 1
            if self.emit is not None:
                await self.emit(IntermediateResponse(response))
        return response

    async def _receive_and_start(self, request: ChatRequest, calls: ToolCalls, start: Start) -> None:
        """Receive a stream and start tools before it is complete."""

        def start_one(index: int, tool_request: ToolExecutionRequest) -> None:
            self._check_limits(index + 1)
            if calls.may_start(tool_request):
                start(index, tool_request)

        await self._receive(request, start_one)

    async def _chatted(self, request: ChatRequest) -> ChatResponse:
        model = self.settings.chat_model
        assert model is not None
        return await self._within_limit(model.chat(request), model)

    async def _streamed(self, request: ChatRequest, start: Start | None) -> ChatResponse:
        model = self.settings.streaming_chat_model
        assert model is not None
        self._announced = set()
        async with aclosing(model.stream(request)) as events:
            while True:
                event = await self._within_limit(anext(events, None), model)
                if isinstance(event, CompleteResponse):
                    return event.response
                if event is None:
                    raise ChatModelError(
                        "the stream ended before the response was complete", provider=provider_of(model)
                    )
                if isinstance(event, CompleteToolCall):
                    self._announced.add(event.index)
                    if start is not None:
                        start(event.index, event.request)
                if self.emit is not None:
                    await self.emit(event)

    async def _within_limit(self, response: Awaitable[_T], model: object) -> _T:
        seconds = self.settings.limits.model_timeout_seconds
        if seconds is None:
            return await response
        with anyio.move_on_after(seconds):
            return await response
        raise ChatModelError(f"no response for {seconds:g} seconds", provider=provider_of(model), retryable=True)

    def _check_limits(self, calls: int) -> None:
        """Raise if the current round or its number of tool calls exceeds a limit."""
        limits, source = self.settings.limits, self.call.method.source
        if self._round_trips >= limits.max_tool_round_trips:
            raise ToolLimitError(
                f"{source!r} reached its limit of {limits.max_tool_round_trips} round trips through tools, and "
                "the model requests more; raise max_tool_round_trips, or tell the model when to stop"
            )
        most = limits.max_tool_calls_per_response
        if most is not None and calls > most:
            raise ToolLimitError(
                f"the model requests {calls} tools at once in {source!r}, more than "
                f"max_tool_calls_per_response={most}; raise it, or tell the model to call fewer tools at once"
            )

    def _calls(
        self, executed: dict[int, ToolExecution] | None = None, decisions: dict[int, Decision] | None = None
    ) -> ToolCalls:
        return ToolCalls(
            offer=self.tools.offer,
            context=self.call.context,
            policy=self.settings.policy,
            approval=self.settings.approval,
            emit=self.emit,
            compensations=self.compensations,
            executor=self.settings.executor,
            executed=executed or {},
            decisions=decisions or {},
        )

    async def _run_calls(self, calls: ToolCalls, requests: Sequence[ToolExecutionRequest]) -> None:
        """Run the calls without a result, or suspend the invocation if a decision is missing."""
        if not await calls.decide(requests):
            raise InvocationSuspended(self._state(calls))
        missing = calls.missing(requests)
        if len(missing) > 1 and self.settings.concurrent_tools > 1:
            await run_concurrently(calls, self.settings.concurrent_tools, partial(_start_all, missing))
        else:
            for index, request in missing.items():
                await calls.run(index, request)

    async def _collect_results(self, calls: ToolCalls) -> bool:
        """Record the results of a response's calls; return True if they are the answer."""
        executions = [calls.executed[index] for index in sorted(calls.executed)]
        self.executions += executions
        messages: Sequence[ToolExecutionResultMessage] = [
            ToolExecutionResultMessage.of(execution.request, execution.result) for execution in executions
        ]
        if self.settings.compensate_on_tool_errors and calls.has_failed:
            messages = await self.compensations.undo_after_errors(self.tools.offer.undoing, messages)
        self.view.add(*messages)
        if calls.offer.has_immediate and returns_immediately(calls.tools, executions):
            self.immediate = executions
            return True
        return False

    def _state(self, calls: ToolCalls) -> SuspendedInvocation:
        service, _, method = self.call.method.source.rpartition(".")
        is_checked = bool(self.call.method.guardrails.output)
        return SuspendedInvocation(
            service=service,
            method=method,
            memory_id=self.call.context.memory_id,
            invocation_id=self.call.context.invocation_id,
            parameters=self.call.context.parameters,
            request_parameters=self.call.parameters,
            system=self.view.system_text,
            turn=self.view.turn,
            earlier=len(self.call.earlier),
            responses=tuple(map(withheld, self.responses) if is_checked else self.responses),
            executions=tuple(self.executions),
            executed=dict(calls.executed),
            decisions=dict(calls.decisions),
        )


async def _start_all(missing: Mapping[int, ToolExecutionRequest], start: Start) -> None:
    for index, request in missing.items():
        start(index, request)


async def _transformed(
    request: ChatRequest, transform: ChatRequestTransformer, context: InvocationContext
) -> ChatRequest:
    transformed: Any = transform(request, context)
    if inspect.isawaitable(transformed):
        transformed = await transformed
    if not isinstance(transformed, ChatRequest):
        raise DefinitionError(f"chat_request_transformer returned {transformed!r}; return a ChatRequest")
    return transformed
