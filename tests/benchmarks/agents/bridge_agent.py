"""An AI service of bridge in the conversation; its memory is written at the end of every turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bridge import (
    AiMessage,
    ChatMemory,
    ChatRequest,
    ChatResponse,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    message_window,
    tools_from,
)
from bridge.service.loop import InvocationLimits
from tests.benchmarks.agents.conversation import ANSWER, QUESTION, adders, called

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.benchmarks.agents.conversation import Setting

_WINDOW = message_window(100_000)
_ARGUMENTS = '{"a": 1, "b": 2}'


class _Assistant(Protocol):
    async def chat(self, message: str) -> str: ...


class _Script:
    """A model with scripted replies."""

    def __init__(self) -> None:
        self.replies: Iterator[ChatResponse] = iter(())

    async def chat(self, request: ChatRequest) -> ChatResponse:
        return next(self.replies)


class Agent:
    """The agent."""

    def __init__(self, setting: Setting, *, execute_tools_concurrently: bool = False) -> None:
        self._tool = called(setting)
        self._history = [
            UserMessage.of(f"Question {number}") if number % 2 == 0 else AiMessage(f"Answer {number}")
            for number in range(setting.memory)
        ]
        self._memory = ChatMemory(window=_WINDOW)
        self._script = _Script()
        tools = [tool for each in adders(setting.tools) for tool in tools_from(each)]
        self._specifications = tuple(tool.specification for tool in tools)
        self._assistant = ai_service(
            _Assistant,
            chat_model=self._script,
            tools=tools,
            memory=self._memory,
            execute_tools_concurrently=execute_tools_concurrently,
            limits=InvocationLimits(max_tool_calls_per_response=None),
        )

    async def prepared(self, calls: tuple[int, ...]) -> Callable[[], Coroutine[Any, Any, object]]:
        """See `tests.benchmarks.agents.conversation.Agent.prepared`."""
        await self._memory.clear()
        await self._memory.add(*self._history)
        self._script.replies = iter([*map(self._response, calls), ChatResponse(message=AiMessage(ANSWER))])

        async def take() -> None:
            assert await self._assistant.chat(QUESTION) == ANSWER

        return take

    def question(self) -> Callable[[], Coroutine[Any, Any, object]]:
        """See `tests.benchmarks.agents.conversation.Agent.question`."""
        self._script.replies = iter([self._response(1)])
        messages = (*self._history, UserMessage.of(QUESTION))
        request = ChatRequest(messages=messages, tool_specifications=self._specifications)
        return lambda: self._script.chat(request)

    def _response(self, calls: int) -> ChatResponse:
        requests = tuple(ToolExecutionRequest(self._tool, _ARGUMENTS, f"call_{number}") for number in range(calls))
        return ChatResponse(message=AiMessage(tool_execution_requests=requests))
