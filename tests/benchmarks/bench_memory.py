"""Memory in SQLite: what a turn takes, by how long the conversation is already

A turn is four messages: a question, a tool call, its result, the answer. It is appended; nothing is written again.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from bridge import AiMessage, ChatMemory, ToolExecutionRequest, UserMessage, message_window
from bridge.service import ToolExecutionResultMessage
from bridge.service.memory.persistent_stores import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.benchmarks.meter import Meter

SIZES = (100, 1000, 10_000)
ROUNDS = 100
WINDOW = 48
CALL = ToolExecutionRequest("add", '{"a": 1, "b": 2}', "call_0")
TURN = (
    UserMessage.of("What is the sum of 1 and 2?"),
    AiMessage(tool_execution_requests=(CALL,)),
    ToolExecutionResultMessage.of(CALL, "3"),
    AiMessage("The sum is 3."),
)


async def append(memory: ChatMemory) -> None:
    await memory.add(*TURN)


async def read(memory: ChatMemory) -> None:
    assert len(await memory.messages()) == WINDOW


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("work", "words"), [(append, "a turn written"), (read, f"the newest {WINDOW} messages read")])
def bench_turn_in_sqlite(
    meter: Meter, tmp_path: Path, size: int, work: Callable[[ChatMemory], Coroutine[Any, Any, None]], words: str
) -> None:
    store = SqliteStore(tmp_path / "conversations.db")
    memory = ChatMemory(store, window=message_window(WINDOW))
    with asyncio.Runner() as runner, closing(store):
        runner.run(memory.add(*TURN * (size // len(TURN))))
        store.close()  # what was written before the turns is no longer in SQLite's log
        meter.measure(
            f"{words}, from {size:,} messages on",
            lambda: runner.run(work(memory)),
            rounds=ROUNDS,
            beside=f"{words}, from {SIZES[0]:,} messages on",
        )
