from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.memory.persistent_stores import RedisStore
from bridge.service.messages import AiMessage, ToolExecutionResultMessage, UserMessage
from tests import forks
from tests.processes import ROOT
from tests.service.writer import FATAL_TURN, STEPS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from bridge.service.memory.store import StoredMessages
    from bridge.service.messages import ChatMessage
    from tests.forks import ForkedPython

TURN_MESSAGES = 5
"""Messages of one turn: the user's, the calls, two results, the answer."""


@pytest.fixture(params=["sqlite", "redis"])
def kept_at(request: pytest.FixtureRequest) -> str:
    """Each store that two processes can share."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("database"))
    url: str = request.getfixturevalue("redis_url")
    store = RedisStore(url)
    anyio.run(store.delete, "default")
    store.close()
    return url


def start(kept_at: str, *arguments: str) -> AbstractContextManager[ForkedPython | subprocess.Popen[str]]:
    words = ["-m", "tests.service.writer", kept_at, *arguments]
    process = forks.popen(words, cwd=ROOT, env=os.environ, streams=(None, None, 2))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: ForkedPython | subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def read(kept_at: str) -> Sequence[ChatMessage]:
    store: Any = ChatMemory(kept_at).store

    async def everything() -> StoredMessages:
        page: StoredMessages = await store.read("default", limit=100_000)
        return page

    try:
        return anyio.run(everything).messages
    finally:
        store.close()


def assert_whole_turns(messages: Sequence[ChatMessage]) -> list[str]:
    """Check that every turn is complete; return the texts of the users."""
    said = []
    for i in range(0, len(messages), TURN_MESSAGES):
        user, wanted, first, second, answer = messages[i : i + TURN_MESSAGES]
        assert isinstance(user, UserMessage)
        assert isinstance(wanted, AiMessage)
        assert isinstance(first, ToolExecutionResultMessage)
        assert isinstance(second, ToolExecutionResultMessage)
        assert [first.id, second.id] == [request.id for request in wanted.tool_execution_requests]
        assert answer == AiMessage("done")
        said.append(user.text)
    return said


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_at_any_step_leaves_whole_turns(kept_at: str, step: str) -> None:
    with start(kept_at, "--die-at", step) as process:
        go(process)
        assert process.wait(timeout=60) == -signal.SIGKILL
    is_written = step in {"after writing", "completed"}
    said = assert_whole_turns(read(kept_at))
    assert said == [f"{process.pid}-{turn}" for turn in range(FATAL_TURN + is_written)]


@pytest.mark.parametrize("turns", [1, 7, 20])
def test_a_process_killed_from_outside_leaves_whole_turns(kept_at: str, turns: int) -> None:
    with start(kept_at) as process:
        go(process)
        assert process.stdout is not None
        while int(process.stdout.readline()) < turns:
            pass
        process.kill()
    said = assert_whole_turns(read(kept_at))
    assert len(said) >= turns
    assert said == [f"{process.pid}-{turn}" for turn in range(len(said))]


def test_processes_that_write_one_conversation_lose_nothing(kept_at: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(start(kept_at, "--turns", "30")) for _ in range(3)]
        for process in processes:
            go(process)
        assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    said = assert_whole_turns(read(kept_at))
    for process in processes:
        own = [text for text in said if text.startswith(f"{process.pid}-")]
        assert own == [f"{process.pid}-{turn}" for turn in range(30)]
    assert len(said) == 90


def test_turns_that_run_at_the_same_time_in_two_processes_stand_one_after_the_other(kept_at: str) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(start(kept_at, "--turns", "1", "--hold")) for _ in range(2))
        for process in (first, second):
            go(process)
            assert process.stdout is not None
            assert process.stdout.readline() == "working\n"  # by now it has read the conversation
        for process in (second, first):
            go(process)
            assert process.wait(timeout=60) == 0
    said = [f"{second.pid}-0", f"{first.pid}-0"]
    assert assert_whole_turns(read(kept_at)) == said
    with start(kept_at, "--turns", "1") as third:  # its messages include both
        go(third)
        assert third.wait(timeout=60) == 0
    assert assert_whole_turns(read(kept_at)) == [*said, f"{third.pid}-0"]
