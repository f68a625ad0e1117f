"""Tasks: creating one and polling until it is completed, and ten thousand open ones in one process

The tool adds two numbers. The servers are measured in turn, round after round, over one connection each.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_core import from_json

from tests.benchmarks.http_server import HttpServer, serving
from tests.benchmarks.load.memory import resident_kib
from tests.benchmarks.messages import Era, request
from tests.benchmarks.peers import FASTMCP, OURS, Cost, tell
from tests.benchmarks.processes import LONG_SECONDS, PEER, cpu_clock, running
from tests.benchmarks.table import Row
from tests.interop.packages import FASTMCP_VERSION, python_with
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.http_server import Connection
    from tests.benchmarks.table import Table

TASKS = 200
ROUNDS = 5
OPEN_TASKS = 10_000
CAPABILITIES: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
TOOLS = """
import anyio
from bridge import tool


@tool(task=True)
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


@tool(task=True)
async def wait() -> None:
    "Wait for ever."
    await anyio.sleep_forever()
"""


def bench_tasks_over_http(table: Table, heading: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    count = TASKS if is_measured else 1
    path = tmp_path / "tasks.py"
    path.write_text(TOOLS, encoding="utf-8")
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(tmp_path))
        options = {
            OURS: (),
            f"{OURS}, SQLite": ("--task-store", str(tmp_path / "tasks.db")),
            f"{OURS}, Redis": ("--redis-url", redis.url),
        }
        servers = {
            name: stack.enter_context(serving(str(path), *more, limit_seconds=LONG_SECONDS))
            for name, more in options.items()
        }
        if is_measured:
            servers |= _fastmcp(stack)
        rounds = [
            {name: _cost(server, count) for name, server in servers.items()}
            for _ in range(ROUNDS + 1 if is_measured else 1)
        ]
    if is_measured:
        tell(table, heading, "created, and polled until completed", rounds[1:])  # warm-up


def bench_10000_open_tasks(table: Table, heading: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.py"
    path.write_text(TOOLS, encoding="utf-8")
    options = ("--max-tasks", str(3 * OPEN_TASKS), "--max-calls", str(3 * OPEN_TASKS))
    with serving(str(path), *options, limit_seconds=LONG_SECONDS) as server, server.connect() as connection:
        first = _opened(server, connection, 1)
        rest = _opened(server, connection, OPEN_TASKS - 1)
    for count, (seconds, memory_kib) in ((1, first), (OPEN_TASKS, rest)):
        table.add(
            Row(
                group=heading,
                name=f"one of {count:,} open created",
                best_seconds=seconds,
                median_seconds=seconds,
                memory_kib=memory_kib,
            )
        )


def _opened(server: HttpServer, connection: Connection, count: int) -> tuple[float, int]:
    """Create tasks that do not end; returns the seconds for each, and the server's memory afterwards."""
    begun = perf_counter()
    ids = [_created(server, connection, "wait") for _ in range(count)]
    took = perf_counter() - begun
    assert {_state(server, connection, each) for each in (ids[0], ids[-1])} == {"working"}
    return took / count, resident_kib(server.process)


def _fastmcp(stack: ExitStack) -> dict[str, HttpServer]:
    try:
        python = python_with("fastmcp[tasks]", FASTMCP_VERSION)
    except pytest.skip.Exception:
        return {}
    process = stack.enter_context(
        running(PEER, "fastmcp-tasks", "http", python=python, limit_seconds=LONG_SECONDS, stderr=subprocess.PIPE)
    )
    return {FASTMCP: HttpServer(process)}


def _cost(server: HttpServer, count: int) -> Cost:
    clock = cpu_clock(server.process)
    with server.connect() as connection:
        worked, begun = clock(), perf_counter()
        for _ in range(count):
            task_id = _created(server, connection, "add", a=1, b=2)
            while (status := _state(server, connection, task_id)) != "completed":
                assert status == "working"
        took, worked_later = perf_counter() - begun, clock()
    return Cost(took / count, None if worked is None or worked_later is None else (worked_later - worked) / count)


def _created(server: HttpServer, connection: Connection, tool: str, **arguments: Any) -> str:
    task_id: str = _result(server, connection, "tools/call", name=tool, arguments=arguments)["taskId"]
    return task_id


def _state(server: HttpServer, connection: Connection, task_id: str) -> str:
    status: str = _result(server, connection, "tasks/get", taskId=task_id)["status"]
    return status


def _result(server: HttpServer, connection: Connection, method: str, **params: Any) -> dict[str, Any]:
    message = request(Era.MODERN, method, **params)
    meta = message["params"]["_meta"] | {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
    message["params"]["_meta"] = meta
    raw = connection.answer(server.post(message, Era.MODERN))
    answer = from_json(raw[raw.index(b"{") :])  # no header has one
    assert "result" in answer, raw
    result: dict[str, Any] = answer["result"]
    return result
