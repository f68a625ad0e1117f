"""A process that writes one conversation, turn after turn, until it is killed or done.

It says on standard output when it begins, and after every turn; ``--die-at STEP`` ends it as SIGKILL would, at that
step of its third turn.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from bridge import tool
from bridge.service.ai_service import ai_service
from bridge.service.chat_model import ChatResponse
from bridge.service.listener import InvocationListener
from bridge.service.memory import ChatMemory
from bridge.service.memory_redis import RedisStore
from bridge.service.memory_sqlite import SqliteStore
from bridge.service.messages import AiMessage, ToolExecutionResultMessage
from bridge.service.window import message_window
from bridge.tools.model import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.service.chat_model import ChatRequest
    from bridge.service.memory import ChatMemoryStore, StoredMessages
    from bridge.service.messages import ChatMessage

FATAL_TURN = 2


class Chat(Protocol):
    """Answers."""

    async def chat(self, message: str) -> str: ...


class Model:
    """Wants two tools, then answers."""

    async def chat(self, request: ChatRequest) -> ChatResponse:
        if isinstance(request.messages[-1], ToolExecutionResultMessage):
            return ChatResponse(message=AiMessage("done"))
        calls = tuple(ToolExecutionRequest("work", "{}", f"{os.getpid()}-{i}") for i in range(2))
        return ChatResponse(message=AiMessage(None, calls))


class Fate(InvocationListener):
    """Ends the process at one step."""

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
    """A store around the writing of which the process may end."""

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


async def write(store: ChatMemoryStore, turns: int, step: str | None) -> None:
    @tool
    async def work() -> str:
        return "worked"

    fate = Fate(step)
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
    given = parser.parse_args()
    kept: Any = RedisStore(given.store) if given.store.startswith("redis:") else SqliteStore(given.store)
    anyio.run(write, kept, given.turns, given.die_at)
