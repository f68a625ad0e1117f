"""Streaming: the answer as it is written, and everything that happens on the way.

python examples/streaming.py                     # offline: a script plays the model
python examples/streaming.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY
"""

import sys
from typing import Protocol

import anyio

from bridge import ChatRequest, OpenAiChatModel, TokenStream, ToolExecutionRequest, UserMessage, ai_service, tool
from bridge.service import (
    BeforeToolExecution,
    CompleteResponse,
    PartialResponse,
    PartialToolCall,
    StreamingChatModel,
    ToolExecuted,
)
from bridge.testing import Reply, ScriptedChatModel


class Assistant(Protocol):
    """Answers piece by piece."""

    def chat(self, message: str) -> TokenStream:
        """Answer a message."""
        ...


cancelled: list[str] = []


@tool
async def cancel_booking(number: str) -> str:
    """Cancels a booking by its number."""
    cancelled.append(number)
    return f"Booking {number} is cancelled."


def script(request: ChatRequest) -> Reply:
    """Reply of a model, word by word; the arguments of calls come in pieces, too."""
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return ToolExecutionRequest("cancel_booking", {"number": "123-456"}, id="call_1")
    return f"Done. {last.text} Anything else?"


def chat_model() -> StreamingChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


async def with_a_loop(assistant: Assistant) -> None:
    """Take the events in a loop. Leaving it early stops the model and the tools."""
    stream = assistant.chat("Cancel my booking 123-456")
    async for event in stream:
        match event:
            case PartialToolCall(name=name, partial_arguments=piece):
                print(f"    {name} … {piece}")
            case BeforeToolExecution(request=request):
                print(f"    {request.name} runs")
            case ToolExecuted(execution=execution):
                print(f"    {execution.request.name} → {execution.result.text}")
            case PartialResponse(text=text):
                print(text, end="", flush=True)
            case CompleteResponse():
                print()
    assert [execution.request.name for execution in stream.result.tool_executions] == ["cancel_booking"]


async def with_callbacks(assistant: Assistant) -> None:
    """Name what is wanted of the events, and start."""
    words: list[str] = []
    await (
        assistant.chat("Cancel my booking 123-456")
        .on_tool_executed(lambda execution: print(f"    {execution.request.name} → {execution.result.text}"))
        .on_partial_response(lambda partial: words.append(partial.text))
        .on_complete_response(lambda response: print("".join(words), f"({response.finish_reason.value})"))
        .on_error(lambda error: print(f"failed: {error}"))
        .start()
    )
    assert len(words) > 1


async def main() -> None:
    """Show both ways."""
    assistant = ai_service(Assistant, streaming_chat_model=chat_model(), tools=[cancel_booking])
    await with_a_loop(assistant)
    await with_callbacks(assistant)
    assert cancelled == ["123-456", "123-456"]


if __name__ == "__main__":
    anyio.run(main)
