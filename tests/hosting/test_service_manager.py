"""Notifications to a service manager, sockets that it has bound, and reloads on SIGHUP; of real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client

from tests import forks
from tests.cli.draining import DEADLINE_SECONDS, SERVED, heard
from tests.processes import ROOT
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Run

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="systemd's protocol"),
]

LAUNCH = """
import os, sys
os.setsid()
sockets = list(map(int, sys.argv[1].split(",")))
for number, each in enumerate(sockets):
    os.dup2(each, 3 + number)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
BRIDGE = ("-m", "bridge")
PATIENT = """
import runpy
from bridge.hosting import workers
workers._BACK_OFF_SECONDS = (0.0, 3600.0)
runpy.run_module("bridge", run_name="__main__", alter_sys=True)
"""


class Manager:
    """A service manager: it binds a socket, starts a service with it, and receives its notifications."""

    def __init__(self, folder: Path) -> None:
        self._receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._receiver.bind(str(folder / "notify"))
        self._receiver.settimeout(DEADLINE_SECONDS)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/mcp"
        self.environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(folder / "notify"),
            "LISTEN_FDS": "1",
            "BRIDGE_LOG_LEVEL": "info",
        }

    @contextmanager
    def started(
        self, *arguments: str, program: tuple[str, ...] = BRIDGE, **environment: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Start a service."""
        launch = (sys.executable, "-c", LAUNCH, str(self.socket.fileno()), *program)
        command = [*launch, "serve", *arguments, "--transport", "http"]
        variables = {**self.environment, **environment}
        with subprocess.Popen(
            command, cwd=ROOT, env=variables, pass_fds=[self.socket.fileno()], stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def received(self, wanted: str) -> dict[str, str]:
        """Wait for a notification that has an assignment; returns all of its assignments."""
        while True:
            assignments = dict(line.split("=", 1) for line in self._receiver.recv(4096).decode().splitlines())
            name, _, value = wanted.partition("=")
            if assignments.get(name) == value:
                return assignments

    def close(self) -> None:
        self._receiver.close()
        self.socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    yield made
    made.close()


def configuration(path: Path, **servers: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


async def tools(url: str) -> list[str]:
    async with Client(url) as client:
        return sorted(each.name for each in (await client.list_tools()).tools)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


ONE = forks.entry("-m", "bridge", "serve", str(ROOT / "servers" / "calculator.py"))
HELD = forks.entry("-m", "bridge", "serve", SERVED)


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one process", "workers"])
async def test_a_service_says_when_it_serves_on_the_given_socket_and_when_it_stops(
    manager: Manager, options: tuple[str, ...]
) -> None:
    with manager.started("servers/calculator.py", *options, WATCHDOG_USEC="600000") as process, anyio.fail_after(60):
        assert manager.received("READY=1")["STATUS"]
        assert "add" in await tools(manager.url)
        for _ in range(3):
            manager.received("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        manager.received("STOPPING=1")
        assert process.wait(60) == 0


async def test_a_worker_that_hangs_is_replaced(manager: Manager) -> None:
    with manager.started("servers/calculator.py", "--workers", "2", WATCHDOG_USEC="3000000") as process:
        manager.received("READY=1")
        stopped, _ = children_of(process.pid)
        os.kill(stopped, signal.SIGSTOP)
        assert process.stderr is not None
        for wanted in ("does not respond; killing it", "restarting it"):
            assert any(wanted in line for line in process.stderr)
        with anyio.fail_after(DEADLINE_SECONDS):
            assert "add" in await tools(manager.url)
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait, 60) == 0


async def test_no_call_is_lost_while_a_service_is_replaced(manager: Manager) -> None:
    """The manager keeps the socket: calls wait in its queue until the next process accepts them."""
    served = ("servers/calculator.py",)
    begun, restarted = anyio.Event(), anyio.Event()
    outcomes: list[tuple[bool | None, bool]] = []

    async def call_again_and_again() -> None:
        calls_after_restart = 0
        while calls_after_restart < 20:
            async with Client(manager.url) as client:
                for number in range(5):
                    result = await client.call_tool("add", {"a": number, "b": 1})
                    outcomes.append((result.is_error, result.structured_content == {"result": number + 1}))
                    calls_after_restart += restarted.is_set()
            begun.set()

    with anyio.fail_after(120), ExitStack() as services:
        async with anyio.create_task_group() as tasks:
            before = services.enter_context(manager.started(*served))
            manager.received("READY=1")
            tasks.start_soon(call_again_and_again)
            await begun.wait()
            before.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(before.wait) == 0
            services.enter_context(manager.started(*served))
            await anyio.to_thread.run_sync(manager.received, "READY=1")
            restarted.set()
    assert set(outcomes) == {(False, True)}


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="one process"), pytest.param(("--workers", "2"), id="workers", marks=pytest.mark.slow)],
)
async def test_sighup_reloads_a_configuration_as_a_whole_or_not_at_all_and_running_calls_go_on(
    manager: Manager, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = configuration(tmp_path / "mcp.json", held=HELD)
    with manager.started(str(path), *options) as process, anyio.fail_after(120):
        manager.received("READY=1")
        async with heard() as hearing, Client(manager.url) as client, anyio.create_task_group() as calls:
            endings: list[Any] = []

            async def call() -> None:
                result = await client.call_tool("hold", {"port": hearing.port})
                endings.append(result.content[0].text)  # type: ignore[union-attr]  # it is a text

            calls.start_soon(call)
            running = await hearing.running()
            configuration(path, held={**HELD, "timeout": 50}, sums={**ONE, "prefix": "sums_"})
            process.send_signal(signal.SIGHUP)
            manager.received("RELOADING=1")
            assert manager.received("READY=1")["STATUS"] == "reloaded"
            while "sums_add" not in await tools(manager.url):
                await anyio.lowlevel.checkpoint()  # a previous worker may take some more connections
            configuration(path, sums={"command": 3}, held=HELD)
            process.send_signal(signal.SIGHUP)
            manager.received("RELOADING=1")
            assert "not" in manager.received("READY=1")["STATUS"]
            assert "sums_add" in await tools(manager.url)
            assert endings == []
            await running.send(b"done")
        assert endings == ["done"]
        process.send_signal(signal.SIGTERM)
        manager.received("STOPPING=1")
        assert process.wait(60) == 0


@pytest.mark.slow
async def test_a_reload_while_a_worker_starts_again_leaves_as_many_as_before(manager: Manager) -> None:
    with manager.started("servers/calculator.py", "--workers", "2") as process, anyio.fail_after(120):
        manager.received("READY=1")
        before = children_of(process.pid)
        os.kill(before[0], signal.SIGKILL)
        process.send_signal(signal.SIGHUP)
        manager.received("RELOADING=1")
        assert manager.received("READY=1")["STATUS"] == "reloaded"
        await two_children(process.pid, before)
        assert "add" in await tools(manager.url)
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait, 60) == 0


async def test_a_reload_during_the_start_of_workers_is_refused_with_a_line(manager: Manager, tmp_path: Path) -> None:
    asleep = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "required": True}
    path = configuration(tmp_path / "mcp.json", asleep=asleep)
    with manager.started(str(path), "--workers", "2") as process, anyio.fail_after(120):
        while not children_of(process.pid):
            await anyio.lowlevel.checkpoint()
        process.send_signal(signal.SIGHUP)
        line = "not reloaded: the workers start or end; try again\n"
        await anyio.to_thread.run_sync(until_printed, process, line, abandon_on_cancel=True)
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait, 60) == 0


@pytest.mark.slow
async def test_reloads_end_the_back_off_of_a_worker_and_leave_as_many_as_before(manager: Manager) -> None:
    options = ("servers/calculator.py", "--workers", "2")
    with manager.started(*options, program=("-c", PATIENT)) as process, anyio.fail_after(120):
        manager.received("READY=1")
        for delay in ("", " in 3600 seconds"):
            before = await two_children(process.pid)
            os.kill(before[-1], signal.SIGKILL)  # the one that has started last
            await anyio.to_thread.run_sync(until_printed, process, f"restarting it{delay}\n", abandon_on_cancel=True)
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            manager.received("RELOADING=1")
            assert manager.received("READY=1")["STATUS"] == "reloaded"
        killed = (await two_children(process.pid, before))[-1]
        os.kill(killed, signal.SIGKILL)  # without a delay, since it is the first time
        await two_children(process.pid, [killed])
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait, 60) == 0


def until_printed(process: subprocess.Popen[str], ending: str) -> None:
    assert process.stderr is not None
    assert any(line.endswith(ending) for line in process.stderr)


async def two_children(pid: int, before: list[int] | None = None) -> list[int]:
    """Wait until there are two children, and none of before."""
    while len(found := children_of(pid)) != 2 or set(found) & set(before or ()):
        await anyio.lowlevel.checkpoint()
    return found


@pytest.mark.slow
async def test_a_session_goes_on_through_a_reload_of_workers_that_share_a_redis(
    manager: Manager, tmp_path: Path
) -> None:
    path = configuration(tmp_path / "mcp.json", sums=ONE)
    with redis_server(tmp_path) as redis, anyio.fail_after(120):
        options = ("--workers", "2", "--redis-url", redis.url, "--name", tmp_path.name)
        with manager.started(str(path), *options) as process:
            manager.received("READY=1")
            before = children_of(process.pid)
            async with Client(manager.url, mode="legacy") as client:
                for number in range(2):
                    result = await client.call_tool("add", {"a": number, "b": 1})
                    assert result.structured_content == {"result": number + 1}
                    if not number:
                        process.send_signal(signal.SIGHUP)
                        manager.received("RELOADING=1")
                        assert manager.received("READY=1")["STATUS"] == "reloaded"
            assert not set(before) & set(await new_children(process.pid, before))
            process.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(process.wait, 60) == 0


async def new_children(pid: int, before: list[int]) -> list[int]:
    """Wait until the children of before have drained; returns the others."""
    while set(found := children_of(pid)) & set(before):
        await anyio.lowlevel.checkpoint()
    return found


TERMINAL = """
import os, pty, sys
keeping, slave = pty.openpty()
os.set_inheritable(keeping, True)  # or the terminal would be closed
os.setsid()
os.close(os.open(os.ttyname(slave), os.O_RDWR))  # it is now the terminal of this session
os.execv(sys.executable, [sys.executable, "-m", "bridge", *sys.argv[1:]])
"""


def test_at_a_terminal_sighup_is_its_end(manager: Manager, tmp_path: Path) -> None:
    path = configuration(tmp_path / "mcp.json", one=ONE)
    command = [sys.executable, "-c", TERMINAL, "serve", str(path), "--transport", "http", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env=manager.environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            manager.received("READY=1")
            process.send_signal(signal.SIGHUP)
            manager.received("STOPPING=1")
            assert process.wait(DEADLINE_SECONDS) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("entry", "code", "said"),
    [
        (ONE, 0, "mcp can be served: 1 server, 0 profiles, 0 local tools"),
        ({"command": "there-is-no-such-command"}, 1, "server 'one': command not found: 'there-is-no-such-command'"),
    ],
)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_check_says_what_would_not_be_served(
    run: Run, directory: Path, transport: str, entry: dict[str, Any], code: int, said: str
) -> None:
    configuration(directory / "mcp.json", one=entry)
    done = run("serve", "mcp.json", "--transport", transport, "--check")
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "serving" not in done.stderr


def test_check_names_servers_of_profiles_that_there_are_not(run: Run, directory: Path) -> None:
    profiles = {"data": {"servers": ["on*", "local", "won"]}}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"one": ONE}, "profiles": profiles}))
    done = run("serve", "mcp.json", "--transport", "http", "--check")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "profile 'data': no server is named 'won' (one, or 'local')"


def test_check_reports_a_file_that_cannot_be_read(run: Run, directory: Path) -> None:
    (directory / "mcp.json").write_text("{")
    assert run("serve", "mcp.json", "--transport", "http", "--check").returncode == 1
