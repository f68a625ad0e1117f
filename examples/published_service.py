"""An AI service as an MCP tool: assistants call a method, and a model of yours answers.

bridge serve examples/published_service.py                 # offline: a script plays the model
MODEL=gpt-5.6 bridge serve examples/published_service.py   # a model of OpenAI; its key is in OPENAI_API_KEY
python examples/published_service.py                       # starts itself as a server, and calls it
"""

import os
import sys
from typing import Annotated, Literal, Protocol

import anyio
from mcp import Client, StdioServerParameters

from bridge import ChatModel, ChatRequest, OpenAiChatModel, P, ai_service, system_message, tool, user_message
from bridge.testing import Reply, ScriptedChatModel

Language = Literal["English", "German"]


# A decorated method is a tool like any other: its name, description and parameters are what callers see; how the model
# is told what to do is not.
class Translator(Protocol):
    """Translates."""

    @tool("Translates a short text")
    @system_message("You are a translator. Answer with the translation alone.")
    @user_message("Translate into {language}: {text}")
    async def translate(
        self, text: Annotated[str, P("What to translate")], language: Annotated[Language, P("Into what")]
    ) -> str:
        """Translate a text."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model."""
    return {"Translate into German: Good morning": "Guten Morgen"}[request.messages[-1].text or ""]


def chat_model() -> ChatModel:
    """The model that the environment names; else the script."""
    name = os.environ.get("MODEL")
    return OpenAiChatModel(name) if name else ScriptedChatModel(script)


# What is built is an object with a tool in it, and found by `bridge serve` as any such object is.
translator = ai_service(Translator, chat_model=chat_model())


async def main() -> None:
    """Start this file as a server, and talk to it with the official SDK's client."""
    command = ["-m", "bridge", "serve", __file__]
    async with Client(StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))) as client:
        (offered,) = (await client.list_tools()).tools
        print(f"{offered.name}: {offered.description}, by {', '.join(offered.input_schema['properties'])}")
        result = await client.call_tool("translate", {"text": "Good morning", "language": "German"})
    answer = result.content[0].model_dump()["text"]
    print("Good morning →", answer)
    assert "Guten Morgen" in answer


if __name__ == "__main__":
    anyio.run(main)
