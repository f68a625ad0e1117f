"""Child processes that start when they are needed, how many start at once, and those that fail again and again."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import DefinitionError, InvocationContext, ServerConfig, StdioTransport
from bridge.client import Connection, ConnectionState, HttpTransport, McpToolProvider, ProcessOptions, ReconnectPolicy
from bridge.client.connection.processes import CIRCUIT_FAILURES, START_SLOT_SECONDS, Processes, memory_bytes
from bridge.errors import ServerUnavailableError
from tests.client.clock import Clock
from tests.client.conftest import DEADLINE_SECONDS, opened, python_config, stdio_config
from tests.client.scripted import listed, scripted_config
from tests.client.test_provider import names

if TYPE_CHECKING:
    from pathlib import Path

    from tests.client.reports import Reports

pytestmark = pytest.mark.anyio

IDLE_SECONDS = 77.0
SERVING = """
import json, os, sys

with open(sys.argv[1], "a") as starts:
    starts.write("started\\n")
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        told = {"name": "counted", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": told}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in os.environ["TOOLS"].split()]}
    elif message["method"] == "tools/call":
        if message["params"]["name"] == "die":
            os._exit(3)
        result = {"content": [{"type": "text", "text": str(os.getpid())}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


class Counted:
    """A server that writes its starts to a file."""

    def __init__(self, folder: Path, tools: str = "pid die") -> None:
        self.file = folder / "starts"
        self.file.touch()
        command = ("-c", SERVING, str(self.file))
        transport = StdioTransport(sys.executable, args=command, env={"TOOLS": tools})
        self.config = ServerConfig(name="counted", transport=transport, start="lazy", idle_seconds=IDLE_SECONDS)

    @property
    def starts(self) -> int:
        return len(self.file.read_text().splitlines())


async def until(connection: Connection, state: ConnectionState) -> None:
    """Wait for a state."""
    came = anyio.Event()
    stop = connection.on_state(lambda now: came.set() if now is state else None)
    with anyio.fail_after(DEADLINE_SECONDS):
        while connection.state is not state:
            await came.wait()
            came = anyio.Event()
    stop()


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_a_lazy_server_starts_for_the_first_call_with_the_definitions_of_the_last_time(tmp_path: Path) -> None:
    counted, options = Counted(tmp_path), ProcessOptions(definitions=tmp_path / "definitions")
    async with McpToolProvider(counted.config, processes=options) as provider:
        assert (names(provider), counted.starts) == (["pid", "die"], 1)  # nothing is known of it yet
    async with McpToolProvider(counted.config, processes=options, features=("resources", "prompts")) as provider:
        [status] = provider.status()
        assert (names(provider), status.connection.state) == (["pid", "die"], ConnectionState.IDLE)
        assert (status.is_listed, status.problem, status.connection.pid, counted.starts) == (True, None, None, 1)
        assert status.connection.server_info is not None
        assert status.connection.server_info.name == "counted"
        result = await provider.connections["counted"].call_tool("pid", {})
        assert (text_of(result), counted.starts) == (str(provider.status()[0].connection.pid), 2)


async def test_kept_definitions_are_replaced_by_those_of_the_started_server(tmp_path: Path) -> None:
    options = ProcessOptions(definitions=tmp_path / "definitions")
    async with McpToolProvider(Counted(tmp_path, "pid").config, processes=options):
        pass
    async with McpToolProvider(Counted(tmp_path, "pid more").config, processes=options) as provider:
        assert names(provider) == ["pid"]
        changed = anyio.Event()
        provider.on_change(lambda _change: changed.set())
        await provider.connections["counted"].call_tool("pid", {})
        with anyio.fail_after(DEADLINE_SECONDS):
            await changed.wait()
        assert names(provider) == ["pid", "more"]
    async with McpToolProvider(Counted(tmp_path, "pid more").config, processes=options) as provider:
        assert names(provider) == ["pid", "more"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1, "lists": {"tools/list": 3}, "server": null}'])
async def test_definitions_that_cannot_be_read_start_the_server(tmp_path: Path, text: str) -> None:
    counted, options = Counted(tmp_path), ProcessOptions(definitions=tmp_path / "definitions")
    async with McpToolProvider(counted.config, processes=options):
        pass
    [kept] = (tmp_path / "definitions").iterdir()
    if os.name == "posix":
        assert kept.stat().st_mode & 0o077 == 0
    kept.write_text(text)
    async with McpToolProvider(counted.config, processes=options) as provider:
        assert (names(provider), counted.starts) == (["pid", "die"], 2)


async def test_an_unused_lazy_server_ends_and_starts_again_for_a_call(tmp_path: Path) -> None:
    clock, counted = Clock(), Counted(tmp_path)
    async with opened(counted.config, reconnect=ReconnectPolicy(wait=clock.wait)) as connection:
        await connection.list_tools()
        for _ in range(2):
            pid = int(text_of(await connection.call_tool("pid", {})))
            await clock.elapse(IDLE_SECONDS)  # the call was after its beginning
            assert connection.state is ConnectionState.READY
            await clock.elapse(IDLE_SECONDS)
            await until(connection, ConnectionState.IDLE)
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        assert (await connection.list_tools()).tools[0]["name"] == "pid"
        status = connection.status()
        assert (status.connects, status.restarts, status.failures, status.last_error) == (2, 0, 0, None)
        assert counted.starts == 2


async def test_a_lazy_server_is_not_ended_during_a_call(reports: Reports) -> None:
    clock = Clock()
    config = stdio_config(start="lazy", idle_seconds=IDLE_SECONDS)
    policy = ReconnectPolicy(wait=clock.wait)
    async with opened(config, reconnect=policy) as connection, anyio.create_task_group() as tasks:
        await connection.list_tools()
        tasks.start_soon(connection.call_tool, "hold", {"port": reports.port})
        await reports.wait_for("started")
        for _ in range(3):
            await clock.elapse(IDLE_SECONDS)
            await clock.sleeping(IDLE_SECONDS)
        assert connection.state is ConnectionState.READY
        tasks.cancel_scope.cancel()


async def test_a_lazy_server_that_cannot_start_fails_its_call_at_once(tmp_path: Path) -> None:
    counted, options = Counted(tmp_path), ProcessOptions(definitions=tmp_path / "definitions")
    async with McpToolProvider(counted.config, processes=options):
        pass
    assert isinstance(counted.config.transport, StdioTransport)
    gone = replace(counted.config.transport, cwd=str(tmp_path / "gone"))
    async with McpToolProvider(replace(counted.config, transport=gone), processes=options) as provider:
        assert names(provider) == ["pid", "die"]
        with pytest.raises(ServerUnavailableError, match="cannot change to its folder"):
            await provider.connections["counted"].call_tool("pid", {}, context=InvocationContext())


def test_only_processes_start_lazily() -> None:
    with pytest.raises(DefinitionError, match="server 'far': start='lazy' needs a command to start"):
        ServerConfig(name="far", transport=HttpTransport("http://127.0.0.1:1/mcp"), start="lazy")


async def test_a_process_that_fails_again_and_again_is_left_alone_by_calls(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    config = python_config(f"open({str(starts)!r}, 'a').write('x'); raise SystemExit(4)")
    clock = Clock()
    policy = ReconnectPolicy(wait=clock.wait, first_delay_seconds=1.0, jitter=lambda: 1.0)
    connection = Connection(config, reconnect=policy)
    with anyio.fail_after(DEADLINE_SECONDS):
        await connection.open(wait=False)
        for failures in range(1, CIRCUIT_FAILURES):
            assert connection.status().retry_seconds is None
            await clock.elapse(2.0 ** (failures - 1))
        await clock.sleeping(16.0)
        status = connection.status()
        assert (status.failures, status.restarts, len(starts.read_text())) == (5, 4, 5)
        assert status.retry_seconds is not None
        assert 0 < status.retry_seconds <= 16
        for _ in range(3):
            with pytest.raises(ServerUnavailableError) as caught:
                await connection.call_tool("x", {})
            assert "it ended before the handshake" in str(caught.value)
            assert "it failed 5 times in a row, so calls do not start it now; the next start is in" in str(caught.value)
        assert len(starts.read_text()) == 5
        await clock.elapse(16.0)
        await clock.sleeping(32.0)
        assert (connection.status().failures, len(starts.read_text())) == (6, 6)
        await connection.aclose()


async def test_a_useful_session_closes_the_circuit(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    async with opened(replace(counted.config, start="eager")) as connection:
        for number in range(CIRCUIT_FAILURES + 1):
            await connection.call_tool("pid", {})
            with pytest.raises(Exception, match="outcome is unknown"):
                await connection.call_tool("die", {})
            assert counted.starts == number + 1
        await connection.call_tool("pid", {})
        assert (connection.status().failures, connection.status().retry_seconds) == (0, None)
        assert connection.status().restarts == CIRCUIT_FAILURES + 1


async def test_no_more_processes_start_at_the_same_time_than_are_allowed() -> None:
    starting, most = 0, 0
    starts = Processes(ProcessOptions(max_starts=3)).starts

    async def start() -> None:
        nonlocal starting, most
        release = await starts.acquire()
        starting += 1
        most = max(most, starting)
        await anyio.lowlevel.checkpoint()
        starting -= 1
        release()
        release()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(46):
                tasks.start_soon(start)
    assert most == 3


async def test_a_server_that_hangs_at_its_start_delays_no_other(tmp_path: Path) -> None:
    """All slots belong to servers that never answer; the others start as soon as those have had their time."""
    hung = [python_config("import sys; sys.stdin.read()", name=f"hung{number}") for number in range(2)]
    others = [scripted_config([listed("t")], name=f"other{number}") for number in range(4)]
    with anyio.fail_after(DEADLINE_SECONDS):
        provider = McpToolProvider([*hung, *others], processes=ProcessOptions(max_starts=2))
        await provider.open(wait=False)
        await provider.settled(*(each.name for each in others))
        states = {status.name: status.connection.state.value for status in provider.status()}
        assert states == {"hung0": "connecting", "hung1": "connecting"} | {each.name: "ready" for each in others}
        assert hung[0].connect_timeout_seconds > START_SLOT_SECONDS
        await provider.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is read")
async def test_memory_is_that_of_a_process_and_its_descendants(tmp_path: Path) -> None:
    async with opened(Counted(tmp_path).config) as connection:
        pid = connection.status().pid
        assert pid is not None
        used = memory_bytes(pid)
        assert used is not None
        assert used > 1_000_000
    whole = memory_bytes(os.getpid())
    assert whole is not None
    assert memory_bytes(pid) is None


def test_at_least_one_process_may_start() -> None:
    with pytest.raises(DefinitionError, match="max_starts must be at least 1, not 0"):
        ProcessOptions(max_starts=0)
