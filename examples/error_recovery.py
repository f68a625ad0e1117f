"""Tools that fail: what is retried, what the model reads, and who decides.

python examples/error_recovery.py                     # offline: a script plays the model
python examples/error_recovery.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY

Needs the extra for guards: pip install 'mcp-toolbridge[guards,openai]'.
"""

import sys
from typing import Protocol

import anyio

from bridge import (
    ChatModel,
    ChatRequest,
    ExecutionPolicy,
    InvocationContext,
    OpenAiChatModel,
    Result,
    ToolError,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    tool,
)
from bridge.middleware import retried
from bridge.testing import Reply, ScriptedChatModel

PRICES = {"tea": 3.5, "coffee": 4.0}


class Shop:
    """A price list behind a line that drops at first."""

    def __init__(self) -> None:
        self.drops_left = 2

    # Three ways to fail. What was raised for the model (a ToolError) is told to it: it can correct itself. What is
    # about the arguments it is told as well, all at once. Anything else is a matter for the program.
    @tool
    async def price(self, product: str, amount: int) -> float:
        """Returns what an amount of a product costs."""
        if self.drops_left:
            self.drops_left -= 1
            raise ConnectionError("the line dropped")
        if product not in PRICES:
            raise ToolError(f"there is no {product!r}; there is {' and '.join(sorted(PRICES))}")
        return PRICES[product] * amount


def note(error: Exception, request: ToolExecutionRequest, _: InvocationContext, attempt: int) -> str:
    """Decide what becomes of a failure: words for the model, or another request; raising would end it all."""
    print(f"    {request.name}({request.arguments}) failed (attempt {attempt}): {error}")
    return f"That failed: {error}"


class Assistant(Protocol):
    """Answers customers."""

    async def chat(self, message: str) -> Result[str]:
        """Answer a message."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model that makes one mistake after another, and learns."""
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return ToolExecutionRequest("price", {"product": "chai", "amount": "two"}, id="call_1")
    if "amount" in (last.text or ""):
        return ToolExecutionRequest("price", {"product": "chai", "amount": 2}, id="call_2")
    if "there is no" in (last.text or ""):
        return ToolExecutionRequest("price", {"product": "tea", "amount": 2}, id="call_3")
    return f"Two cups of tea cost {last.text}."


def chat_model() -> ChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


async def main() -> None:
    """Ask for a price."""
    shop = Shop()
    assistant = ai_service(
        Assistant,
        chat_model=chat_model(),
        # The wrapper tries again what raised anything unexpected, and waits longer each time; the model hears nothing
        # of it. There are wrappers for rate limits, circuit breakers and caches too.
        tools=[retried(shop.price, attempts=3, first_wait_seconds=0.01)],
        policy=ExecutionPolicy(on_arguments_error=note, on_execution_error=note),
    )
    result = await assistant.chat("What do two cups of chai cost? If there is none, take tea.")
    print(result.content)

    assert shop.drops_left == 0
    assert result.tool_executions[-1].result.text == "7.0"
    assert "7" in result.content


if __name__ == "__main__":
    anyio.run(main)
