"""LangChain's create_agent in the conversation, with a scripted chat model; needs a Python that has LangChain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from tests.benchmarks.agents.conversation import ANSWER, ARGUMENTS, QUESTION, adders, called

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.benchmarks.agents.conversation import Setting

_STEPS = 1000
"""Recursion limit above that of any turn; the default is too low for the longest."""


class _Script(BaseChatModel):
    """A model with scripted replies."""

    replies: Any = None

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def _agenerate(self, *_: Any, **__: Any) -> Any:
        return ChatResult(generations=[ChatGeneration(message=next(self.replies))])


class Agent:
    """The agent."""

    def __init__(self, setting: Setting) -> None:
        self._tool = called(setting)
        self._history: list[Any] = [
            HumanMessage(f"Question {number}") if number % 2 == 0 else AIMessage(f"Answer {number}")
            for number in range(setting.memory)
        ]
        self._script = _Script()
        tools = [StructuredTool.from_function(coroutine=add) for add in adders(setting.tools)]
        self._agent = create_agent(self._script, tools)

    async def prepared(self, calls: tuple[int, ...]) -> Callable[[], Coroutine[Any, Any, object]]:
        """See `tests.benchmarks.agents.conversation.Agent.prepared`."""
        self._script.replies = iter([*map(self._response, calls), AIMessage(ANSWER)])
        messages = [*self._history, HumanMessage(QUESTION)]

        async def take() -> None:
            state = await self._agent.ainvoke({"messages": messages}, {"recursion_limit": _STEPS})
            assert state["messages"][-1].content == ANSWER

        return take

    def question(self) -> Callable[[], Coroutine[Any, Any, object]]:
        """See `tests.benchmarks.agents.conversation.Agent.question`: the chat model, with its callbacks."""
        self._script.replies = iter([self._response(1)])
        messages = [*self._history, HumanMessage(QUESTION)]
        return lambda: self._script.ainvoke(messages)

    def _response(self, calls: int) -> Any:
        return AIMessage(
            "",
            tool_calls=[{"name": self._tool, "args": ARGUMENTS, "id": f"call_{number}"} for number in range(calls)],
        )
