"""pydantic-ai's agent in the conversation, with its FunctionModel; needs a Python that has pydantic-ai."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel

from tests.benchmarks.agents.conversation import ANSWER, ARGUMENTS, QUESTION, adders, called

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.benchmarks.agents.conversation import Setting


class Agent:
    """The agent."""

    def __init__(self, setting: Setting) -> None:
        self._tool = called(setting)
        self._history: list[Any] = [
            ModelRequest(parts=[UserPromptPart(f"Question {number}")])
            if number % 2 == 0
            else ModelResponse(parts=[TextPart(f"Answer {number}")])
            for number in range(setting.memory)
        ]
        self._replies: Iterator[Any] = iter(())
        self._model = FunctionModel(self._reply)
        self._agent = PydanticAgent(self._model, tools=adders(setting.tools))

    async def prepared(self, calls: tuple[int, ...]) -> Callable[[], Coroutine[Any, Any, object]]:
        """See `tests.benchmarks.agents.conversation.Agent.prepared`."""
        self._replies = iter([*map(self._response, calls), ModelResponse(parts=[TextPart(ANSWER)])])

        async def take() -> None:
            result = await self._agent.run(QUESTION, message_history=self._history)
            assert result.output == ANSWER

        return take

    def question(self) -> Callable[[], Coroutine[Any, Any, object]]:
        """See `tests.benchmarks.agents.conversation.Agent.question`: the FunctionModel, which counts tokens too."""
        self._replies = iter([self._response(1)])
        messages = [*self._history, ModelRequest(parts=[UserPromptPart(QUESTION)])]
        return lambda: self._model.request(messages, None, ModelRequestParameters())

    async def _reply(self, _messages: Any, _info: Any) -> Any:
        return next(self._replies)

    def _response(self, calls: int) -> Any:
        text = json.dumps(ARGUMENTS)
        return ModelResponse(
            parts=[ToolCallPart(self._tool, text, tool_call_id=f"call_{number}") for number in range(calls)]
        )
