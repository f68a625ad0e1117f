"""Tools at the same time: a model may want several at once, and they need not wait for one another.

python examples/parallel_tools.py                     # offline: a script plays the model
python examples/parallel_tools.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY
"""

import sys
from typing import Protocol

import anyio

from bridge import ChatModel, ChatRequest, OpenAiChatModel, Result, ToolExecutionRequest, UserMessage, ai_service, tool
from bridge.testing import Reply, ScriptedChatModel

CITIES = ("New York", "London", "Tokyo")
PATIENCE_SECONDS = 20


class Stations:
    """Weather stations that report when all the others do."""

    def __init__(self) -> None:
        self._reporting: set[str] = set()
        self._all_report = anyio.Event()

    @tool
    async def get_weather(self, city: str) -> str:
        """Returns the current weather in a city."""
        self._reporting.add(city)
        if len(self._reporting) == len(CITIES):
            self._all_report.set()
        with anyio.fail_after(PATIENCE_SECONDS):  # one after another they would wait in vain
            await self._all_report.wait()
        return f"{city}: sunny"


class Assistant(Protocol):
    """Answers questions."""

    async def chat(self, message: str) -> Result[str]:
        """Answer a message."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model: three calls in one response, then their results, in the order of the calls."""
    if isinstance(request.messages[-1], UserMessage):
        return [ToolExecutionRequest("get_weather", {"city": city}, id=f"call_{city}") for city in CITIES]
    return "; ".join(message.text or "" for message in request.messages[-len(CITIES) :])


def chat_model() -> ChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


async def main() -> None:
    """Ask for three cities."""
    assistant = ai_service(
        Assistant,
        chat_model=chat_model(),
        tools=[Stations()],
        execute_tools_concurrently=True,  # a number would be the limit; by default one follows the other
    )
    result = await assistant.chat(f"What's the weather in {', '.join(CITIES)}? Ask for all of them at once.")
    for execution in result.tool_executions:
        print(f"    {execution.request.arguments} → {execution.result.text}")
    print(result.content)

    # Results have the order of the calls, whichever is first.
    calls = result.intermediate_responses[0].message.tool_execution_requests
    assert [execution.request.id for execution in result.tool_executions] == [call.id for call in calls]
    assert {execution.result.text for execution in result.tool_executions} == {f"{city}: sunny" for city in CITIES}


if __name__ == "__main__":
    anyio.run(main)
