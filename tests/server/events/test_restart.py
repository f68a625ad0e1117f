"""Events of a process that is ended and started again with the same file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import McpToolProvider, ServerConfig, StdioTransport
from tests.server.events.receiver import DEADLINE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

PROGRAM = """
import sys
from bridge import Server, run, tool
from bridge.events import event
from bridge.server import SqliteTaskStore, TaskOptions

@event("number")
def number(payload: dict[str, int]) -> None:
    pass

@tool
def emit(value: int) -> str:
    return number.emit({"value": value})

run(Server([emit, number], name="numbers", tasks=TaskOptions(store=SqliteTaskStore(sys.argv[1]))))
"""


async def test_a_cursor_survives_a_restart_with_the_file(tmp_path: Path) -> None:
    program = tmp_path / "emitting.py"
    program.write_text(PROGRAM)

    def config() -> ServerConfig:
        command = StdioTransport(sys.executable, args=(str(program), str(tmp_path / "kept")))
        return ServerConfig(name="numbers", transport=command)

    async def received(provider: McpToolProvider, cursor: str | None, *values: int) -> tuple[list[int], str | None]:
        async with provider.events.subscribe("number", cursor=cursor) as events:
            for value in values:
                await provider.tools.call("emit", value=value)
            found = [(await anext(events)).data["value"] for _ in range(2)]
            assert events.gaps == 0
            return found, events.cursor

    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider([config()]) as provider:
            found, cursor = await received(provider, None, 1, 2, 3)
            assert found == [1, 2]
        async with McpToolProvider([config()]) as provider:
            assert (await received(provider, cursor, 4))[0] == [3, 4]
            found, cursor = await received(provider, cursor)
            assert found == [3, 4]
