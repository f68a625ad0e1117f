"""``--task-store`` of ``bridge serve``, with real processes."""

from __future__ import annotations

import signal
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

TOOLS = '''
    import anyio
    from bridge import tool


    @tool(task=True)
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b


    @tool(task=True)
    async def wait() -> None:
        """Wait for its end."""
        await anyio.sleep_forever()
'''
SERVE = ("serve", "jobs.py", "--transport", "http", "--port", "0", "--task-store", "tasks.db")


@pytest.fixture
def jobs(directory: Path) -> None:
    (directory / "jobs.py").write_text(dedent(TOOLS), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the process is killed by SIGKILL")
@pytest.mark.usefixtures("jobs")
def test_tasks_survive_a_kill_and_no_second_server_takes_their_file(start: Start, run: Run) -> None:
    with start(*SERVE) as process, TaskClient(process.url().removesuffix("/mcp")) as client:
        done, open_task = client.created("add", a=1, b=2), client.created("wait")
        result = client.settled(done)
        second = run(*SERVE)
        assert second.returncode != 0
        assert "the tasks in 'tasks.db' cannot be used: another process uses the file" in second.stderr
        assert "Traceback" not in second.stderr
        process.end(signal.SIGKILL)
    with start(*SERVE) as process, TaskClient(process.url().removesuffix("/mcp")) as client:
        assert client.get(done) == result
        found = client.get(open_task)
        assert found["error"]["message"] == "the server ended while 'wait' ran, and its outcome is unknown"
        assert process.end(signal.SIGTERM) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a drain begins with SIGTERM")
@pytest.mark.usefixtures("jobs")
def test_a_drain_waits_for_tasks_and_then_ends_them(start: Start) -> None:
    with start(*SERVE, "--drain-timeout", "0.1") as process:
        with TaskClient(process.url().removesuffix("/mcp")) as client:
            task_id = client.created("wait")
        assert process.end(signal.SIGTERM) == 0
        assert any("cancelled 1 call that still ran after 0.1 seconds of draining" in line for line in process.seen)
    with start(*SERVE) as process, TaskClient(process.url().removesuffix("/mcp")) as client:
        assert client.get(task_id)["status"] == "failed"


@pytest.mark.parametrize(
    "more",
    [("--workers", "2"), ("--redis-url", "redis://localhost"), ("--reload",)],
    ids=["workers", "redis", "reload"],
)
@pytest.mark.usefixtures("jobs")
def test_a_store_needs_a_single_process(run: Run, more: tuple[str, ...]) -> None:
    refused = run(*SERVE, *more)
    assert refused.returncode == 2
    assert "--task-store needs a single process" in refused.stderr
