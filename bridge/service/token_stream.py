"""TokenStream: an invocation that tells what happens while it runs (LangChain4j's TokenStream).

    async for event in assistant.chat("Cancel my booking"):
        ...

    await assistant.chat("Cancel my booking").on_partial_response(show).on_tool_executed(log).start()

The invocation moves in step with its listener: it goes on when the next event is asked for. Leaving early, by whatever
way, stops the model's stream and the running tools, and leaves the memory as it was.
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
from bridge.service.events import BeforeToolExecution, IntermediateResponse, ToolExecuted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from bridge.service.chat_model import ChatResponse
    from bridge.service.events import Emit, Result, ServiceEvent
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

_T = TypeVar("_T")

Callback = Callable[[_T], "Awaitable[None] | None"]
"""Takes what an event tells; a plain or an asynchronous function."""


class TokenStream:
    """One invocation, which begins when it is iterated or started, and runs once.

    Args:
        run: Runs the invocation, and tells its events.
    """

    def __init__(self, run: Callable[[Emit], Awaitable[Result[str]]]) -> None:
        self._run = run
        self._begun = False
        self._result: Result[str] | None = None
        self._callbacks: dict[type, list[Callable[[Any], Any]]] = {}
        self._on_error: list[Callable[[Exception], Any]] = []
        self._iteration: EventIterator | None = None

    @property
    def result(self) -> Result[str]:
        """What the invocation gave, when it is over.

        Raises:
            InvocationError: It is not over, or failed.
        """
        if self._result is None:
            raise InvocationError("the stream has no result yet; take all its events first")
        return self._result

    def on_partial_response(self, callback: Callback[PartialResponse]) -> Self:
        """Call this with every piece of text."""
        return self._on(PartialResponse, callback)

    def on_partial_thinking(self, callback: Callback[PartialThinking]) -> Self:
        """Call this with every piece of thinking."""
        return self._on(PartialThinking, callback)

    def on_partial_tool_call(self, callback: Callback[PartialToolCall]) -> Self:
        """Call this with every piece of a tool call."""
        return self._on(PartialToolCall, callback)

    def on_complete_tool_call(self, callback: Callback[CompleteToolCall]) -> Self:
        """Call this with every tool call that is whole."""
        return self._on(CompleteToolCall, callback)

    def before_tool_execution(self, callback: Callback[ToolExecutionRequest]) -> Self:
        """Call this before a tool runs."""
        return self._on(BeforeToolExecution, lambda event: callback(event.request))

    def on_tool_executed(self, callback: Callback[ToolExecution]) -> Self:
        """Call this when there is a tool's result."""
        return self._on(ToolExecuted, lambda event: callback(event.execution))

    def on_intermediate_response(self, callback: Callback[ChatResponse]) -> Self:
        """Call this with every response that calls tools."""
        return self._on(IntermediateResponse, lambda event: callback(event.response))

    def on_complete_response(self, callback: Callback[ChatResponse]) -> Self:
        """Call this with the last response."""
        return self._on(CompleteResponse, lambda event: callback(event.response))

    def on_error(self, callback: Callback[Exception]) -> Self:
        """Call this where the invocation fails: `start` raises nothing then. Being cancelled is no failure."""
        self._on_error.append(callback)
        return self

    async def start(self) -> Result[str] | None:
        """Run the invocation to its end, telling the callbacks.

        Returns:
            What it gave; None where it failed and `on_error` was told.

        Raises:
            Exception: What made it fail, where nobody is told of errors; what a callback raised.
        """
        try:
            return await self._invoke(self._tell)
        except Exception as error:
            if not self._on_error:
                raise
            for callback in self._on_error:
                await _settled(callback(error))
            return None

    def start_and_wait(self) -> Result[str] | None:
        """`start`, from synchronous code."""
        return portal.run(self.start)

    def __aiter__(self) -> EventIterator:
        self._iteration = None
        return EventIterator(self._invoke_telling)

    def __iter__(self) -> Iterator[ServiceEvent]:
        """The events, from synchronous code."""
        events = EventIterator(self._invoke_telling)
        try:
            while (event := portal.run(_next, events)) is not None:
                yield event
        finally:
            portal.run(events.aclose)

    async def __aenter__(self) -> EventIterator:
        """The events; leaving the block waits until everything has stopped."""
        self._iteration = EventIterator(self._invoke_telling)
        return self._iteration

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._iteration is not None:
            await self._iteration.aclose()

    def _on(self, kind: type, callback: Callable[[Any], Any]) -> Self:
        self._callbacks.setdefault(kind, []).append(callback)
        return self

    async def _tell(self, event: ServiceEvent) -> None:
        for callback in self._callbacks.get(type(event), ()):
            await _settled(callback(event))

    async def _invoke_telling(self, emit: Emit) -> None:
        async def tell(event: ServiceEvent) -> None:
            await self._tell(event)
            await emit(event)

        await self._invoke(tell if self._callbacks else emit)

    async def _invoke(self, emit: Emit) -> Result[str]:
        if self._begun:
            raise InvocationError("the stream has run already; call the method again for another")
        self._begun = True
        self._result = await self._run(emit)
        return self._result


class EventIterator:
    """The events of an invocation that runs in a task of its own, in step with whoever takes them."""

    def __init__(self, run: Callable[[Emit], Awaitable[None]]) -> None:
        self._run = run
        self._owner: _Owner | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ServiceEvent:
        if self._owner is None:
            self._owner = _Owner(self._run)
            # Whoever leaves an iteration says nothing: a task group around it would be closed in another task.
            start_detached(self._owner.own, "invocation of an AI service")
        try:
            return await self._owner.next()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Stop the invocation where it still runs, and wait until it has stopped."""
        if self._owner is not None:
            self._owner.stop()
            with anyio.CancelScope(shield=True):
                await self._owner.ended.wait()

    def __del__(self) -> None:
        if self._owner is not None:  # left early, and nobody waits for what still runs
            self._owner.stop()


class _Owner:
    """Runs an invocation, and hands over one event at a time."""

    def __init__(self, run: Callable[[Emit], Awaitable[None]]) -> None:
        self.ended = anyio.Event()
        self._run = run
        self._scope = anyio.CancelScope()
        self._turn = anyio.Lock()
        self._event: ServiceEvent | None = None
        self._given = anyio.Event()
        self._asked = anyio.Event()
        self._error: BaseException | None = None

    async def own(self) -> None:
        try:
            with self._scope:
                await self._run(self._give)
        except anyio.get_cancelled_exc_class():
            self._error = InvocationError("the event loop ended before the invocation did")
            raise
        except BaseException as error:  # noqa: BLE001 - raised to whoever takes the events
            self._error = error
        finally:
            self._given.set()
            self.ended.set()

    async def next(self) -> ServiceEvent:
        self._asked.set()
        await self._given.wait()
        event, self._event = self._event, None
        if event is not None:
            self._given = anyio.Event()
            return event
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopAsyncIteration

    def stop(self) -> None:
        self._scope.cancel()

    async def _give(self, event: ServiceEvent) -> None:
        """Hand over an event to whoever waits for it, and wait until the next is asked for."""
        async with self._turn:
            self._event = event
            self._asked = asked = anyio.Event()
            self._given.set()
            await asked.wait()


async def _next(events: EventIterator) -> ServiceEvent | None:
    return await anext(events, None)


async def _settled(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer
