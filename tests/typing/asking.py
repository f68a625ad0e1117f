"""A program that lets a chat model use tools; `test_typing` checks it with mypy and pyright."""

from __future__ import annotations

from typing import Annotated, Protocol

from bridge import (
    ChatMemory,
    MemoryId,
    OpenAiChatModel,
    Result,
    TokenStream,
    ai_service,
    message_window,
    system_message,
    tool,
)
from bridge.service import InvocationLimits, PartialResponse, ToolExecuted


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Assistant(Protocol):
    """The interface that the model implements."""

    @system_message("Be brief.")
    def chat(self, name: Annotated[str, MemoryId], message: str) -> Result[str]:
        """Answer."""
        ...

    def stream(self, message: str) -> TokenStream:
        """Stream an answer."""
        ...


def conversation(memory_id: object) -> ChatMemory:
    """Return the memory of a conversation."""
    return ChatMemory(window=message_window(10), memory_id=memory_id)


assistant = ai_service(
    Assistant,
    chat_model=OpenAiChatModel("gpt-5.1"),
    tools=[add],
    memory_provider=conversation,
    limits=InvocationLimits(timeout_seconds=10),
)


def main() -> str:
    """Ask the model."""
    result = assistant.chat("ann", "What is 1 + 2?")
    return result.content


async def streaming() -> list[str]:
    """Print what the model writes."""
    parts: list[str] = []
    async for event in assistant.stream("What is 1 + 2?"):
        if isinstance(event, PartialResponse):
            parts.append(event.text)
        elif isinstance(event, ToolExecuted):
            parts.append(event.execution.request.name)
    return parts
