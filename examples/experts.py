"""AI services as tools of another: a router that forwards each request to the expert who knows.

python examples/experts.py                     # offline: scripts play the models
python examples/experts.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY
"""

import sys
from typing import Protocol

from bridge import (
    ChatModel,
    ChatRequest,
    OpenAiChatModel,
    Result,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    tool,
    user_message,
)
from bridge.testing import Reply, Script, ScriptedChatModel


# A method of a service that is decorated is a tool, as any other function: the router's model sees its name, its
# description and its parameters, and the expert's model sees the message.
class MedicalExpert(Protocol):
    """Knows bodies."""

    @tool("A medical expert")
    @user_message("""
        You are a medical expert.
        Analyze the following user request under a medical point of view and provide the best possible answer.
        The user request is {{it}}.
    """)
    def medical_request(self, request: str) -> str:
        """Answer a request."""
        ...


class LegalExpert(Protocol):
    """Knows the law."""

    @tool("A legal expert")
    @user_message("""
        You are a legal expert.
        Analyze the following user request under a legal point of view and provide the best possible answer.
        The user request is {{it}}.
    """)
    def legal_request(self, request: str) -> str:
        """Answer a request."""
        ...


class TechnicalExpert(Protocol):
    """Knows machines."""

    @tool("A technical expert")
    @user_message("""
        You are a technical expert.
        Analyze the following user request under a technical point of view and provide the best possible answer.
        The user request is {{it}}.
    """)
    def technical_request(self, request: str) -> str:
        """Answer a request."""
        ...


class RouterAgent(Protocol):
    """Knows who knows."""

    @user_message("""
        Analyze the following user request and categorize it as 'legal', 'medical' or 'technical',
        then forward the request as it is to the corresponding expert provided as a tool.
        Finally return the answer that you received from the expert without any modification.
        The user request is: '{{it}}'.
    """)
    def ask_to_expert(self, request: str) -> Result[str]:
        """Have a request answered."""
        ...


def router_script(request: ChatRequest) -> Reply:
    """Replies of the router's model."""
    last = request.messages[-1]
    if not isinstance(last, UserMessage):
        return last.text or ""
    wanted = last.text.rpartition("The user request is: '")[2].rpartition("'")[0]
    name = "medical_request" if "leg" in wanted else "technical_request"
    return ToolExecutionRequest(name, {"request": wanted}, id="call_1")


def chat_model(script: Script) -> ChatModel:
    """The model that the command line names; else a script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


def main() -> None:
    """Ask the router, who asks an expert."""
    medical = ai_service(MedicalExpert, chat_model=chat_model(["Keep it still, and see a doctor at once."]))
    legal = ai_service(LegalExpert, chat_model=chat_model([]))
    technical = ai_service(TechnicalExpert, chat_model=chat_model(["Switch it off and on again."]))
    router = ai_service(RouterAgent, chat_model=chat_model(router_script), tools=[medical, legal, technical])

    for request, expert in [
        ("I broke my leg what should I do", "medical_request"),
        ("My computer does not start", "technical_request"),
    ]:
        result = router.ask_to_expert(request)
        print(f"{request}\n    {result.tool_executions[0].request.name}: {result.content}")
        assert [execution.request.name for execution in result.tool_executions] == [expert]


if __name__ == "__main__":
    main()
