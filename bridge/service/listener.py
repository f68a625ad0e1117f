"""Listeners: who is told what an AI service does (LangChain4j's AiServiceListener and ChatModelListener)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from bridge.service.chat_model import ChatRequest, ChatResponse
    from bridge.service.messages import UserMessage
    from bridge.service.result import Result
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest


class InvocationListener:
    """Is told what happens in the invocations of a service; override what is wanted, as a plain or async method.

    A listener may be told of several invocations at once: the context tells them apart. What it raises stops the
    invocation.
    """

    def on_invocation_started(self, message: UserMessage, context: InvocationContext) -> Awaitable[None] | None:
        """An invocation begins."""

    def on_model_request(self, request: ChatRequest, context: InvocationContext) -> Awaitable[None] | None:
        """The model is about to be asked."""

    def on_model_response(
        self, response: ChatResponse, request: ChatRequest, context: InvocationContext
    ) -> Awaitable[None] | None:
        """The model has answered."""

    def before_tool(self, request: ToolExecutionRequest, context: InvocationContext) -> Awaitable[None] | None:
        """A tool is about to run."""

    def after_tool(self, execution: ToolExecution, context: InvocationContext) -> Awaitable[None] | None:
        """There is a tool's result, with its time and, where it failed here, its error."""

    def on_invocation_completed(self, result: Result[Any], context: InvocationContext) -> Awaitable[None] | None:
        """An invocation has its answer, and its memory is written."""

    def on_invocation_failed(self, error: BaseException, context: InvocationContext) -> Awaitable[None] | None:
        """An invocation ends without an answer: it failed, was cancelled, or is suspended."""


class Listeners:
    """The methods of some listeners by the event that they want: an event that nobody wants costs nothing."""

    __slots__ = ("after_tool", "before_tool", "completed", "failed", "model_request", "model_response", "started")

    def __init__(self, listeners: Iterable[InvocationListener] = ()) -> None:
        listeners = tuple(listeners)
        self.started = _overridden(listeners, "on_invocation_started")
        self.model_request = _overridden(listeners, "on_model_request")
        self.model_response = _overridden(listeners, "on_model_response")
        self.before_tool = _overridden(listeners, "before_tool")
        self.after_tool = _overridden(listeners, "after_tool")
        self.completed = _overridden(listeners, "on_invocation_completed")
        self.failed = _overridden(listeners, "on_invocation_failed")


async def notify(methods: tuple[Callable[..., Any], ...], *arguments: Any) -> None:
    """Tell all who want to know, one after another."""
    for method in methods:
        answer = method(*arguments)
        if inspect.isawaitable(answer):
            await answer


def _overridden(listeners: tuple[InvocationListener, ...], name: str) -> tuple[Callable[..., Any], ...]:
    plain = getattr(InvocationListener, name)
    return tuple(getattr(each, name) for each in listeners if getattr(type(each), name, None) is not plain)
