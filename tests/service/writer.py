"""A process that writes one conversation, turn after turn, until it is killed or done.

It prints a line when it starts, and after every turn; ``--die-at STEP`` ends it as SIGKILL would, at that step of its
third turn. With ``--hold`` it prints a line when the tool of a turn runs, and continues when it reads a line. Its model
fails for a conversation that no provider would accept.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from bridge import tool
from bridge.service.ai_service import ai_service
from bridge.service.chat_model import ChatResponse
from bridge.service.events import InvocationListener
from bridge.service.memory.chat_memory import ChatMemory, message_window
from bridge.service.messages import AiMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.service.chat_model import ChatRequest
    from bridge.service.memory.store import ChatMemoryStore, StoredMessages
    from bridge.service.messages import ChatMessage

FATAL_TURN = 2


class Chat(Protocol):
    """Answers."""

    async def chat(self, message: str) -> str: ...


class Model:
    """Requests two tools, then answers."""

    async def chat(self, request: ChatRequest) -> ChatResponse:
        assert_valid(request.messages)
        if isinstance(request.messages[-1], ToolExecutionResultMessage):
            return ChatResponse(message=AiMessage("done"))
        calls = tuple(ToolExecutionRequest("work", "{}", f"{os.getpid()}-{i}") for i in range(2))
        return ChatResponse(message=AiMessage(None, calls))


def assert_valid(messages: Sequence[ChatMessage]) -> None:
    """Check that a user begins, and that every tool call is followed by its result."""
    assert isinstance(messages[0], UserMessage)
    called: list[str | None] = []
    for message in messages:
        if isinstance(message, ToolExecutionResultMessage):
            assert called.pop(0) == message.id
            continue
        assert not called
        if isinstance(message, AiMessage):
            called = [request.id for request in message.tool_execution_requests]
    assert not called


class Fate(InvocationListener):
    """End the process at one step."""

    def __init__(self, step: str | None) -> None:
        self.step = step
        self.turn = 0

    def at(self, step: str) -> None:
        if self.turn == FATAL_TURN and step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_invocation_started(self, *_: Any) -> None:
        self.at("started")

    def on_model_request(self, *_: Any) -> None:
        self.at("model request")

    def on_model_response(self, *_: Any) -> None:
        self.at("model response")

    def before_tool(self, *_: Any) -> None:
        self.at("before tool")

    def after_tool(self, *_: Any) -> None:
        self.at("after tool")

    def on_invocation_completed(self, *_: Any) -> None:
        self.at("completed")


class FatalStore:
    """A store that may end the process before and after each write."""

    def __init__(self, store: ChatMemoryStore, at: Callable[[str], None]) -> None:
        self._store = store
        self._at = at

    async def read(self, memory_id: Any, *, limit: int, before: int | None = None) -> StoredMessages:
        return await self._store.read(memory_id, limit=limit, before=before)

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        self._at("before writing")
        await self._store.append(memory_id, messages)
        self._at("after writing")

    async def delete(self, memory_id: Any) -> None:
        await self._store.delete(memory_id)


STEPS = [
    "started",
    "model request",
    "model response",
    "before tool",
    "after tool",
    "before writing",
    "after writing",
    "completed",
]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def write(store: ChatMemoryStore, turns: int, step: str | None, *, holds: bool) -> None:
    fate = Fate(step)
    held = set[int]()

    @tool
    async def work() -> str:
        if holds and fate.turn not in held:
            held.add(fate.turn)
            say("working")
            await anyio.to_thread.run_sync(sys.stdin.readline)
        return "worked"

    memory = ChatMemory(FatalStore(store, fate.at), window=message_window(10))
    service = ai_service(Chat, chat_model=Model(), tools=[work], memory=memory, listeners=[fate])
    say("ready")
    await anyio.to_thread.run_sync(sys.stdin.readline)
    for turn in range(turns):
        fate.turn = turn
        await service.chat(f"{os.getpid()}-{turn}")
        say(str(turn))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--die-at")
    parser.add_argument("--hold", action="store_true")
    given = parser.parse_args()
    anyio.run(partial(write, holds=given.hold), ChatMemory(given.store).store, given.turns, given.die_at)
