"""Processes of scripts: their limits, their rights, and their end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client

from bridge import tool
from bridge.server import CodeLimits
from tests.server.code.running import DEADLINE_SECONDS, failure, get_rate, run, server_of, texts_of
from tests.server.memory import memory

if TYPE_CHECKING:
    from anyio.abc import Process

pytestmark = pytest.mark.anyio


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Return the processes that are started from now on."""
    started: list[Process] = []
    start = anyio.open_process

    async def keep(*arguments: Any, **options: Any) -> Process:
        process = await start(*arguments, **options)
        started.append(process)
        return process

    monkeypatch.setattr(anyio, "open_process", keep)
    return started


async def test_a_sandbox_that_dies_fails_one_call(processes: list[Process]) -> None:
    @tool
    async def crash() -> str:
        """Kill the sandbox."""
        os.killpg(processes[-1].pid, signal.SIGKILL)
        return "killed"

    async with Client(memory(server_of(crash, get_rate))) as client:
        message = await failure(client, "await crash()")
        assert message.startswith("the sandbox of the script ended unexpectedly (exit code -9); its 1 call")
        assert await run(client, "await get_rate('USD')") == "3.0"


def environments_of(group: int) -> list[bytes]:
    """Return the environments of the processes of a group."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # one that has ended meanwhile
            if os.getpgid(int(folder.name)) == group:
                found.append((folder / "environ").read_bytes())
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
async def test_a_sandbox_has_no_environment_files_or_network(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "secret-0123456789")
    seen: list[bytes] = []

    @tool
    async def look() -> str:
        """Read the environments of the sandbox's processes."""
        group = processes[-1].pid
        seen.extend(environments_of(group))
        return "seen"

    async with Client(memory(server_of(look))) as client:
        assert await run(client, "await look()") == "seen"
        assert "Permission" in await failure(client, "eval(\"open('/etc/hostname')\")")
        assert "Permission" in await failure(client, "import pathlib\npathlib.Path('/etc/hostname').read_text()")
        assert "socket" in await failure(client, "import socket")
        assert "socket" in await failure(client, "exec('import socket')")
        assert "secret" not in str(
            await client.call_tool("run_code", {"code": "import os\nos.environ.get('API_TOKEN')"})
        )
    assert len(seen) == 2
    assert all(b"secret" not in each for each in seen)
    assert seen == [b"", b""]


async def test_cancelling_the_call_ends_the_process_and_the_tools(processes: list[Process]) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    with anyio.fail_after(DEADLINE_SECONDS):
        async with Client(memory(server_of(wait))) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "run_code", {"code": "await wait()"})
            await begun.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()
        assert await processes[0].wait() != 0


@pytest.mark.parametrize(
    ("limits", "code", "message"),
    [
        ({"max_seconds": 0.5}, "while True:\n    pass", "TimeoutError"),
        ({"max_seconds": 0.5}, "import time\ntime.sleep(60)", "TimeoutError"),
        ({"max_memory_bytes": 10_000_000}, "x = 'a' * 20_000_000\nlen(x)", "MemoryError"),
        ({"max_calls": 2}, "for _ in range(3):\n    await get_rate('USD')", "a script may make 2 calls of tools"),
    ],
)
async def test_limits_of_scripts(limits: dict[str, Any], code: str, message: str) -> None:
    async with Client(memory(server_of(get_rate, code=CodeLimits(**limits)))) as client:
        assert message in await failure(client, code)


async def test_output_is_cut() -> None:
    async with Client(memory(server_of(get_rate, code=CodeLimits(max_output_chars=200)))) as client:
        result = await client.call_tool("run_code", {"code": "print('x' * 10_000)\n['y' * 10_000]"})
        assert len("".join(texts_of(result))) < 1000


async def test_too_many_scripts_at_once_are_refused() -> None:
    begun, release = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await release.wait()
        return "waited"

    results: list[str] = []

    async def first(client: Client) -> None:
        results.append(await run(client, "await wait()"))

    with anyio.fail_after(DEADLINE_SECONDS):
        server = server_of(wait, code=CodeLimits(max_scripts=1))
        async with Client(memory(server)) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(first, client)
            await begun.wait()
            assert "too many scripts run" in await failure(client, "1")
            release.set()
    assert results == ["waited"]
