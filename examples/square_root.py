"""The question that models get wrong, and a tool that gets it right.

python examples/square_root.py                     # offline: a script plays the model
python examples/square_root.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY

Without tools, models say that the square root of 475695037565 is about 689710. It is 689706.4865….
"""

import math
import sys
from typing import Protocol

from bridge import ChatModel, ChatRequest, OpenAiChatModel, Result, ToolExecutionRequest, UserMessage, ai_service, tool
from bridge.testing import Reply, ScriptedChatModel

QUESTION = "What is the square root of 475695037565?"


class Calculator:
    """Tools that the model may use."""

    @tool("Sums 2 given numbers")
    def sum(self, a: float, b: float) -> float:
        """The description above is what the model reads; without one it would read this."""
        return a + b

    @tool("Returns a square root of a given number")
    def square_root(self, x: float) -> float:
        """Likewise."""
        return math.sqrt(x)


# What the program wants, as an interface. Nobody implements it: the model does. A method that returns a Result tells
# how its answer came about; one that returns str would give the answer alone.
class MathGenius(Protocol):
    """Answers questions about numbers."""

    def ask(self, question: str) -> Result[str]:
        """Answer a question."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model: first the call of a tool, then the answer that uses its result."""
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return ToolExecutionRequest("square_root", {"x": 475695037565}, id="call_1")
    return f"The square root of 475695037565 is {last.text}."


def chat_model() -> ChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


def main() -> None:
    """Ask."""
    genius = ai_service(MathGenius, chat_model=chat_model(), tools=[Calculator()])
    result = genius.ask(QUESTION)

    print(QUESTION)
    for execution in result.tool_executions:
        print(f"    {execution.request.name}({execution.request.arguments}) → {execution.result.text}")
    print(result.content)

    assert [execution.result.text for execution in result.tool_executions] == [str(math.sqrt(475695037565))]
    assert "689706.4" in result.content.replace(",", "")


if __name__ == "__main__":
    main()
