"""Guardrails: what goes into a service and its tools is checked, and what comes out.

python examples/guarded_service.py                     # offline: a script plays the model
python examples/guarded_service.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY
"""

import re
import sys
from typing import Protocol

import anyio

from bridge import (
    ChatMemory,
    ChatModel,
    ChatRequest,
    GuardrailError,
    OpenAiChatModel,
    Result,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    guarded,
    tool,
)
from bridge.service import (
    InputGuardrailRequest,
    OutputGuardrailRequest,
    Refuse,
    Reprompt,
    Rewrite,
    ToolOutputGuardrailRequest,
    output_guardrails,
)
from bridge.testing import Reply, ScriptedChatModel

CARD = re.compile(r"\d{4}( ?\d{4}){3}")
ACCOUNT = re.compile(r"DE\d{8}")


@tool
def balance() -> str:
    """Looks up the customer's balance in euros."""
    return "120.50 on the account DE12345678"


def no_cards(request: InputGuardrailRequest) -> Refuse | None:
    """Refuse messages with a card number: the model's provider never receives them."""
    return Refuse("please write no card numbers") if CARD.search(request.text) else None


def without_account(request: ToolOutputGuardrailRequest) -> Rewrite:
    """Hide account numbers from the model."""
    return Rewrite(ACCOUNT.sub("…", request.text))


async def with_currency(request: OutputGuardrailRequest) -> Reprompt | None:
    """Let the model answer again if it forgot the currency."""
    return None if "EUR" in request.text else Reprompt("Write the amount with its currency, EUR.")


class Bank(Protocol):
    """Answers customers."""

    @output_guardrails(with_currency)
    async def ask(self, question: str) -> Result[str]:
        """Answer a question."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model that forgets the currency at first."""
    last = request.messages[-1]
    if not isinstance(last, UserMessage):
        return "You have 120.50."
    return "You have 120.50 EUR." if "EUR" in last.text else ToolExecutionRequest("balance", id="call_1")


def chat_model() -> ChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


async def main() -> None:
    """Ask twice."""
    memory = ChatMemory()
    bank = ai_service(
        Bank,
        chat_model=chat_model(),
        memory=memory,
        tools=[guarded(balance, output_guardrails=without_account)],
        input_guardrails=no_cards,
    )
    try:
        await bank.ask("Is my card 1234 5678 9012 3456 blocked?")
        raise AssertionError("a card number went through")
    except GuardrailError as refused:
        print(f"refused: {refused.reason}")
    assert await memory.messages() == ()

    result = await bank.ask("How much money do I have?")
    for execution in result.tool_executions:
        print(f"    {execution.request.name} → {execution.result.text}")
        assert not ACCOUNT.search(execution.result.text)
    print(result.content)
    assert "EUR" in result.content
    # The answer without a currency, and the request for another one, are not part of the conversation.
    assert [message.text for message in await memory.messages()][-1] == result.content
    assert not any("Write the amount" in (message.text or "") for message in await memory.messages())


if __name__ == "__main__":
    anyio.run(main)
