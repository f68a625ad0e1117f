"""A gateway with an admin port, as real processes."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import httpx

from tests import forks
from tests.ports import free_port
from tests.processes import DEADLINE_SECONDS, ROOT, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.processes import ServerProcess

OPERATOR_KEY, OTHER_OPERATOR_KEY = "operator-operator-operator", "second-operator-second-operator"
ADA_KEY, ROOT_KEY = "ada-ada-ada-ada-ada-ada-ada", "root-root-root-root-root-root"
SECRET = "hunter2-hunter2-hunter2"
KEYS = f"ada {ADA_KEY} team=data rate=1000/1m concurrency=20 tasks=30 bytes=50MiB/1h\nroot {ROOT_KEY}\n"
TOOLS = '''
    import anyio

    from bridge import InvocationContext, resource, tool

    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @tool
    async def wait(context: InvocationContext, text: str = "") -> str:
        """Report progress, and wait until somebody cancels it."""
        await context.progress(3, 10, text)
        await anyio.sleep_forever()

    @resource("db://table/{name}{?token}")
    async def table(name: str, token: str = "") -> str:
        """A table."""
        return name
'''
JOBS = '''
    import anyio

    from bridge import TaskPolicy, tool

    @tool(task=TaskPolicy())
    async def job(text: str) -> str:
        """Run as a task until somebody cancels it."""
        await anyio.sleep_forever()
'''


class Board:
    """A running gateway, and the HTTP client of an operator."""

    def __init__(self, process: ServerProcess, admin_origin: str, folder: Path) -> None:
        self.process, self.admin_origin, self.folder = process, admin_origin, folder
        self.origin = process.origin
        self.operator = httpx.Client(
            base_url=admin_origin, headers={"authorization": f"Bearer {OPERATOR_KEY}"}, timeout=DEADLINE_SECONDS
        )

    def state(self) -> dict[str, Any]:
        """Return the state."""
        found: dict[str, Any] = self.operator.get("/admin/state").raise_for_status().json()
        return found

    def state_when(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return the first state for which a condition holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            if holds(state := self.state()):
                return state
        raise AssertionError(f"the condition does not hold: {state}")

    def act(self, action: str, **target: str) -> httpx.Response:
        """Do an action."""
        return self.operator.post("/admin/actions", json={"action": action, **target})

    @property
    def audit(self) -> list[dict[str, Any]]:
        """The lines of the audit log."""
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def board(
    folder: Path, *arguments: str, profiles: dict[str, Any] | None = None, environment: dict[str, str] | None = None
) -> Iterator[Board]:
    """Run a gateway with two servers, one of which cannot be started, and a tool of its own process."""
    (folder / "tools.py").write_text(dedent(TOOLS), encoding="utf-8")
    (folder / "jobs.py").write_text(dedent(JOBS), encoding="utf-8")
    servers = {
        "tools": forks.entry("-m", "bridge", "serve", str(folder / "tools.py"), cwd=str(ROOT)),
        "gone": {"command": "/nonexistent/server"},
    }
    configuration = {"mcpServers": servers, **({} if profiles is None else {"profiles": profiles})}
    (folder / "mcp.json").write_text(json.dumps(configuration), encoding="utf-8")
    for name, text in (("keys", KEYS), ("operators", f"olga {OPERATOR_KEY}\n")):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o600)
    port = free_port()
    command = [
        *("-m", "bridge", "serve", str(folder / "mcp.json"), str(folder / "jobs.py")),
        *(
            "--transport",
            "http",
            "--port",
            "0",
            "--api-keys",
            str(folder / "keys"),
            "--audit-log",
            str(folder / "audit.jsonl"),
            "--log-arguments",
        ),
        *("--team-rate", "1000/1m", "--admin-port", str(port), "--admin-keys", str(folder / "operators")),
    ]
    with serving(*command, *arguments, environment=environment) as process:
        running = Board(process, f"http://127.0.0.1:{port}", folder)
        with running.operator:
            yield running
