"""TokenStream: an invocation with events (LangChain4j's TokenStream).

    async for event in assistant.chat("Cancel my booking"):
        ...

    await assistant.chat("Cancel my booking").on_partial_response(show).on_tool_executed(log).start()

The invocation waits until each event is received. Leaving the iteration early stops the model's stream and the running
tools, and leaves the memory unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from bridge import portal
from bridge.errors import InvocationError
from bridge.portal import start_detached
from bridge.service.chat_model import (
    CompleteResponse,
    CompleteToolCall,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
)
from bridge.service.events import BeforeToolExecution, IntermediateResponse, ToolExecuted, ToolProgress
from bridge.tools.execution import notify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from bridge.service.chat_model import ChatResponse
    from bridge.service.events import Emit, Result, ServiceEvent
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

_T = TypeVar("_T")

Callback = Callable[[_T], "Awaitable[None] | None"]
"""Receives the data of an event; a synchronous or asynchronous function. Exceptions are logged."""


class TokenStream:
    """One invocation, started by iterating or by `start`; it runs only once.

    Args:
        run: Runs the invocation and emits its events.
    """

    def __init__(self, run: Callable[[Emit], Awaitable[Result[str]]]) -> None:
        self._run = run
        self._started = False
        self._result: Result[str] | None = None
        self._callbacks: dict[type, list[Callable[[Any], Any]]] = {}
        self._on_error: list[Callable[[Exception], Any]] = []
        self._iteration: EventIterator | None = None

    @property
    def result(self) -> Result[str]:
        """The invocation's result.

        Raises:
            InvocationError: The invocation has not finished, or failed.
        """
        if self._result is None:
            raise InvocationError("the stream has no result yet; take all its events first")
        return self._result

    def on_partial_response(self, callback: Callback[PartialResponse]) -> Self:
        """Register a callback for each part of the text."""
        return self._on(PartialResponse, callback)

    def on_partial_thinking(self, callback: Callback[PartialThinking]) -> Self:
        """Register a callback for each part of the thinking."""
        return self._on(PartialThinking, callback)

    def on_partial_tool_call(self, callback: Callback[PartialToolCall]) -> Self:
        """Register a callback for each part of a tool call."""
        return self._on(PartialToolCall, callback)

    def on_complete_tool_call(self, callback: Callback[CompleteToolCall]) -> Self:
        """Register a callback for each complete tool call."""
        return self._on(CompleteToolCall, callback)

    def before_tool_execution(self, callback: Callback[ToolExecutionRequest]) -> Self:
        """Register a callback for each tool that is about to run; an exception stops the invocation."""
        return self._on(BeforeToolExecution, lambda event: callback(event.request))

    def on_tool_progress(self, callback: Callback[ToolProgress]) -> Self:
        """Register a callback for each progress report of a running tool."""
        return self._on(ToolProgress, callback)

    def on_tool_executed(self, callback: Callback[ToolExecution]) -> Self:
        """Register a callback for each tool result."""
        return self._on(ToolExecuted, lambda event: callback(event.execution))

    def on_intermediate_response(self, callback: Callback[ChatResponse]) -> Self:
        """Register a callback for each response with tool calls."""
        return self._on(IntermediateResponse, lambda event: callback(event.response))

    def on_complete_response(self, callback: Callback[ChatResponse]) -> Self:
        """Register a callback for the last response."""
        return self._on(CompleteResponse, lambda event: callback(event.response))

    def on_error(self, callback: Callback[Exception]) -> Self:
        """Register a callback for failures; `start` then returns None instead of raising.

        Cancellation is not a failure.
        """
        self._on_error.append(callback)
        return self

    async def start(self) -> Result[str] | None:
        """Run the invocation and call the callbacks.

        Returns:
            The result; None if the invocation failed and `on_error` callbacks are registered.

        Raises:
            Exception: The failure if there is no `on_error` callback.
        """
        try:
            return await self._invoke(self._call_callbacks)
        except Exception as error:
            if not self._on_error:
                raise
            await notify(self._on_error, error)
            return None

    def start_and_wait(self) -> Result[str] | None:
        """Run `start` from synchronous code."""
        return portal.call_blocking(self.start)

    def __aiter__(self) -> EventIterator:
        self._iteration = None
        return EventIterator(self._invoke_with_callbacks)

    def __iter__(self) -> Iterator[ServiceEvent]:
        """Iterate over the events from synchronous code."""
        events = EventIterator(self._invoke_with_callbacks)
        try:
            while (event := portal.call_blocking(anext, events, None)) is not None:
                yield event
        finally:
            portal.call_blocking(events.aclose)

    async def __aenter__(self) -> EventIterator:
        """Return the events as an iterator; leaving the block waits until the invocation has stopped."""
        self._iteration = EventIterator(self._invoke_with_callbacks)
        return self._iteration

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._iteration is not None:
            await self._iteration.aclose()

    def _on(self, kind: type, callback: Callable[[Any], Any]) -> Self:
        self._callbacks.setdefault(kind, []).append(callback)
        return self

    async def _call_callbacks(self, event: ServiceEvent) -> None:
        callbacks = self._callbacks.get(type(event), ())
        if not isinstance(event, BeforeToolExecution):
            await notify(callbacks, event)
            return
        for callback in callbacks:
            answer = callback(event)
            if inspect.isawaitable(answer):
                await answer

    async def _invoke_with_callbacks(self, emit: Emit) -> None:
        async def call_and_emit(event: ServiceEvent) -> None:
            await self._call_callbacks(event)
            await emit(event)

        await self._invoke(call_and_emit if self._callbacks else emit)

    async def _invoke(self, emit: Emit) -> Result[str]:
        if self._started:
            raise InvocationError("the stream has already run; call the method again for a new one")
        self._started = True
        self._result = await self._run(emit)
        return self._result


class EventIterator:
    """Iterator over the events of an invocation that runs in its own task."""

    def __init__(self, run: Callable[[Emit], Awaitable[None]]) -> None:
        self._run = run
        self._task: _InvocationTask | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ServiceEvent:
        if self._task is None:
            self._task = _InvocationTask(self._run)
            # A detached task, since an abandoned iterator may be closed in another task, where a task group cannot be.
            start_detached(self._task.run, "invocation of an AI service")
        try:
            return await self._task.next()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Stop the invocation if it is running, and wait until it has stopped."""
        if self._task is not None:
            self._task.stop()
            with anyio.CancelScope(shield=True):
                await self._task.ended.wait()

    def __del__(self) -> None:
        if self._task is not None:  # abandoned early; stop without waiting
            self._task.stop()


class _InvocationTask:
    """Runs an invocation and passes on one event at a time."""

    def __init__(self, run: Callable[[Emit], Awaitable[None]]) -> None:
        self.ended = anyio.Event()
        self._run = run
        self._scope = anyio.CancelScope()
        self._turn = anyio.Lock()
        self._event: ServiceEvent | None = None
        self._event_ready = anyio.Event()
        self._event_wanted = anyio.Event()
        self._error: BaseException | None = None

    async def run(self) -> None:
        try:
            with self._scope:
                await self._run(self._pass_on)
        except anyio.get_cancelled_exc_class():
            self._error = InvocationError("the event loop ended before the invocation did")
            raise
        except BaseException as error:  # noqa: BLE001 - raised in the receiver of the events
            self._error = error
        finally:
            self._event_ready.set()
            self.ended.set()

    async def next(self) -> ServiceEvent:
        self._event_wanted.set()
        await self._event_ready.wait()
        event, self._event = self._event, None
        if event is not None:
            self._event_ready = anyio.Event()
            return event
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopAsyncIteration

    def stop(self) -> None:
        self._scope.cancel()

    async def _pass_on(self, event: ServiceEvent) -> None:
        """Pass on an event and wait until the next one is requested."""
        async with self._turn:
            self._event = event
            self._event_wanted = event_wanted = anyio.Event()
            self._event_ready.set()
            await event_wanted.wait()
