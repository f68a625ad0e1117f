"""Tasks over stdio."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

from tests.server.stdio_process import StdioProcess, modern_request

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = '''
    import anyio
    from bridge import run, tool


    @tool(task=True)
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b


    @tool(task=True)
    async def wait() -> None:
        """Wait for its end."""
        await anyio.sleep_forever()


    run(add, wait)
'''


def tasks_request(message_id: int, method: str, **params: Any) -> dict[str, Any]:
    """A request of a client that supports tasks."""
    capabilities: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {"io.modelcontextprotocol/clientCapabilities": capabilities}
    return modern_request(message_id, method, **params, _meta=meta)


def test_tasks_run_over_stdio_and_do_not_hold_up_the_end(tmp_path: Path) -> None:
    program = tmp_path / "jobs.py"
    program.write_text(dedent(TOOLS), encoding="utf-8")
    with StdioProcess(command=[str(program)]) as process:
        created = process.answer(tasks_request(1, "tools/call", name="add", arguments={"a": 1, "b": 2}))["result"]
        assert created["resultType"] == "task"
        process.answer(tasks_request(2, "tools/call", name="wait", arguments={}))
        state: dict[str, Any] = {"status": "working"}
        while state["status"] == "working":
            state = process.answer(tasks_request(3, "tasks/get", taskId=created["taskId"]))["result"]
        assert state["result"]["structuredContent"] == {"result": 3}
        process.close_input()
        assert process.process.wait(20) == 0
