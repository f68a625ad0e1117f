"""Tests of a service of one's own: no network, no model, and nothing to install but a test runner.

python examples/testing_a_service.py          # runs each test
python -m pytest examples/testing_a_service.py
"""

from typing import Protocol

from bridge import (
    ChatModelError,
    Result,
    ToolError,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    tool,
    with_fallback,
)
from bridge.testing import ScriptedChatModel, failing, recorded


@tool
def stock(product: str) -> int:
    """Tells how many pieces of a product are in stock."""
    return {"lamp": 3}.get(product, 0)


class Shop(Protocol):
    """The service to test."""

    def ask(self, question: str) -> Result[str]:
        """Answer a question."""
        ...


def test_the_service_calls_its_tool_with_the_models_arguments() -> None:
    """`recorded` keeps the calls of a tool; a script plays the model."""
    model = ScriptedChatModel([ToolExecutionRequest("stock", {"product": "lamp"}), "We have three."])
    watched, calls = recorded(stock)
    result = ai_service(Shop, chat_model=model, tools=[watched]).ask("Do you have lamps?")
    assert result.content == "We have three."
    assert [call.request.arguments for call in calls] == [{"product": "lamp"}]
    assert model.requests[1].messages[-1].text == "3"


def test_the_model_reads_why_a_tool_failed() -> None:
    """`failing` makes the first calls of a tool fail."""
    call = ToolExecutionRequest("stock", {"product": "lamp"})
    model = ScriptedChatModel([call, call, "We have three."])
    broken = failing(stock, times=1, error=ToolError("the warehouse does not answer"))
    result = ai_service(Shop, chat_model=model, tools=[broken]).ask("Do you have lamps?")
    assert [execution.result.text for execution in result.tool_executions] == ["the warehouse does not answer", "3"]


def test_another_model_answers_if_the_provider_fails() -> None:
    """A reply may be an exception."""
    down = ScriptedChatModel([ChatModelError("overloaded", provider="first", status=529)])
    model = with_fallback(down, ScriptedChatModel(["Good morning."]))
    assert ai_service(Shop, chat_model=model).ask("Hello").content == "Good morning."
    assert down.requests[0].messages == (UserMessage.of("Hello"),)


def main() -> None:
    """Run the tests."""
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"passed: {name}")


if __name__ == "__main__":
    main()
