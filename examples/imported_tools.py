"""Tools of an MCP server beside those of this program: the model does not know the difference.

python examples/imported_tools.py                     # offline: a script plays the model
python examples/imported_tools.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY
"""

import sys
from pathlib import Path
from typing import Protocol

import anyio

from bridge import (
    ChatModel,
    ChatRequest,
    McpToolProvider,
    OpenAiChatModel,
    Result,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    tool,
)
from bridge.testing import Reply, ScriptedChatModel

HOME = Path(__file__).resolve().parent.parent

# What assistants on the desktop read from their mcp.json; the path of such a file would do as well, or a server's URL.
SERVERS = {
    "mcpServers": {
        "calculator": {
            "command": sys.executable,
            "args": ["-m", "bridge", "serve", str(HOME / "servers" / "calculator.py")],
        }
    }
}


@tool
async def stock(product: str) -> int:
    """Returns how many crates of a product there are."""
    return {"apples": 475695, "pears": 37565}[product]


class Assistant(Protocol):
    """Answers questions."""

    async def chat(self, message: str) -> Result[str]:
        """Answer a message."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model: it looks up two numbers, multiplies them, and reports the product."""
    match request.messages:
        case [*_, UserMessage()]:
            return [ToolExecutionRequest("stock", {"product": each}, id=each) for each in ("apples", "pears")]
        case [*_, first, second] if len(request.messages) == 4:  # noqa: PLR2004 - question, calls, two results
            a, b = (int(message.text or "") for message in (first, second))
            return ToolExecutionRequest("multiply", {"a": a, "b": b}, id="product")
        case [*_, last]:
            return f"The product is {last.text}."
    raise AssertionError(request.messages)


def chat_model() -> ChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


async def main() -> None:
    """Start the server, and ask."""
    async with McpToolProvider(SERVERS) as servers:
        print("imported:", ", ".join(each.name for each in servers.tools))
        # A provider follows its servers as their tools change. For some of the tools, once and for all:
        # tools=[stock, *bridge.filtered(servers.tools, include=["multiply"])].
        assistant = ai_service(Assistant, chat_model=chat_model(), tools=[stock], tool_providers=[servers])
        result = await assistant.chat("Multiply the crates of apples with the crates of pears.")

    for execution in result.tool_executions:
        print(f"    {execution.request.name}({execution.request.arguments}) → {execution.result.text}")
    print(result.content)

    assert [each.request.name for each in result.tool_executions] == ["stock", "stock", "multiply"]
    assert result.tool_executions[-1].result.text == str(475695 * 37565)


if __name__ == "__main__":
    anyio.run(main)
