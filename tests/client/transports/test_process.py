"""Child processes: their whole tree ends in every case, and their last output is kept."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import anyio
import anyio.lowlevel
import pytest

from bridge.client import Connection, ConnectionState, ServerConfig, StdioTransport
from bridge.client.transports.link import LinkEvents
from bridge.client.transports.process import LINES_OF_A_TURN, ChildProcess, child_environment, child_process
from bridge.client.transports.stdio_lines import LineReader
from bridge.errors import ServerUnavailableError
from tests.client.conftest import DEADLINE_SECONDS, SERVED, opened, python_config
from tests.client.served import STUBBORN
from tests.processes import ROOT

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tests.client.reports import Reports

pytestmark = pytest.mark.anyio

WITH_GRANDCHILD = f"""
import subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}, sys.argv[1]], stdout=subprocess.PIPE)
grandchild.stdout.readline()
print("ready", flush=True)
"""


def transport(code: str, *arguments: object, **settings: Any) -> StdioTransport:
    return StdioTransport(sys.executable, args=("-c", code, *map(str, arguments)), **settings)


def served() -> ServerConfig:
    """A server of bridge; no fork, which would not be in the process group of the child."""
    arguments = ("-m", "bridge", "serve", SERVED)
    return ServerConfig(name="served", transport=StdioTransport(sys.executable, args=arguments, cwd=str(ROOT)))


def started(transport: StdioTransport) -> AbstractAsyncContextManager[ChildProcess]:
    environment = child_environment(transport.inherit_env, transport.env)
    command = [transport.command, *transport.args]
    return child_process(command, "x", environment=environment, cwd=transport.cwd, scrub=transport.scrub)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "then",
    ["", "sys.stdin.read()", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"],
    ids=["ends first", "ends when its input does", "has to be killed"],
)
async def test_a_grandchild_that_ignores_every_request_ends_with_its_child(then: str, reports: Reports) -> None:
    async with started(transport(WITH_GRANDCHILD + then, reports.port)) as child:
        assert await child.stdout.receive() == b"ready\n"
    await reports.wait_for("grandchild ended")
    assert child.exit_code is not None


async def test_the_whole_tree_ends_when_the_connection_is_closed(reports: Reports) -> None:
    async with opened(served()) as connection:
        child = (await connection.call_tool("pid", {}))["structuredContent"]["result"]
        await connection.call_tool("start_a_child", {"port": reports.port})
    await reports.wait_for("grandchild ended")
    assert not is_running(child)


async def test_the_whole_tree_ends_when_the_child_is_killed(reports: Reports) -> None:
    async with opened(served()) as connection:
        child = (await connection.call_tool("pid", {}))["structuredContent"]["result"]
        await connection.call_tool("start_a_child", {"port": reports.port})
        os.kill(child, signal.SIGKILL)
        await reports.wait_for("grandchild ended")


@pytest.mark.parametrize(
    "then",
    ["", "sys.stdin.read()", 'print("no message of the protocol"); raise RuntimeError("no")'],
    ids=["it ends", "it is silent", "it fails"],
)
async def test_the_whole_tree_ends_when_starting_fails(then: str, reports: Reports) -> None:
    code = WITH_GRANDCHILD + then
    config = python_config(code, connect_timeout_seconds=3, protocol="legacy", transport=transport(code, reports.port))
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ServerUnavailableError):
        await Connection(config).open()
    await reports.wait_for("grandchild ended")


async def test_the_whole_tree_ends_when_whoever_opens_is_cancelled(reports: Reports) -> None:
    code = (
        WITH_GRANDCHILD
        + f"""
import socket
with socket.create_connection(("127.0.0.1", {reports.port})) as connection:
    connection.sendall(b"starting")
sys.stdin.read()
"""
    )
    connection = Connection(python_config(code, protocol="legacy", transport=transport(code, reports.port)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.open)
        await reports.wait_for("starting")
        tasks.cancel_scope.cancel()
    assert connection.state is ConnectionState.CONNECTING, "others may be waiting for it"
    with anyio.fail_after(DEADLINE_SECONDS):
        await connection.aclose()
    await reports.wait_for("grandchild ended")


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(3)"])
async def test_the_whole_tree_ends_with_a_program_that_forgets_to_close(ending: str, reports: Reports) -> None:
    program = f"""
import asyncio, os, signal, sys
from bridge.client import Connection, ServerConfig, StdioTransport

async def main():
    transport = StdioTransport(sys.executable, args=("-m", "bridge", "serve", "tests/client/served.py:TOOLS"))
    connection = Connection(ServerConfig(name="x", transport=transport))
    await connection.open()
    await connection.call_tool("start_a_child", {{"port": {reports.port}}})
    {ending}

asyncio.run(main())
"""
    with anyio.fail_after(DEADLINE_SECONDS):
        ended = await anyio.run_process([sys.executable, "-c", program], cwd=ROOT, check=False, stderr=None)
    await reports.wait_for("grandchild ended")
    assert ended.returncode == (3 if "3" in ending else 0)


FORGETS_NOTHING = """
import asyncio, os, signal, sys
from bridge.client.transports.process import child_process

async def main():
    for code in ("", {code!r}):
        command = [sys.executable, "-c", code, {port!r}]
        async with child_process(command, "x", environment={{}}, cwd=None, scrub=str) as child:
            if code:
                assert await child.stdout.receive() == b"ready\\n"
                if signal.{signal} != signal.SIGKILL:
                    signal.signal(signal.{signal}, signal.SIG_DFL)  # whoever runs the tests may ignore it
                os.kill(os.getpid(), signal.{signal})
                await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGHUP"])
async def test_the_whole_tree_ends_with_a_program_that_is_killed(how: str, reports: Reports) -> None:
    stubborn = WITH_GRANDCHILD + "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    program = FORGETS_NOTHING.format(code=stubborn, port=str(reports.port), signal=how)
    with anyio.fail_after(DEADLINE_SECONDS):
        ended = await anyio.run_process([sys.executable, "-c", program], cwd=ROOT, check=False, stderr=None)
    assert ended.returncode == -getattr(signal, how)
    await reports.wait_for("grandchild ended")


FORKS = """
import asyncio, os, sys
from threading import Event, Thread
from bridge.client.transports.process import child_process, running_children

started, forked, answers = Event(), Event(), []

async def main():
    command = [sys.executable, "-c", "print(input(), flush=True); print(input(), flush=True)"]
    async with child_process(command, "x", environment={}, cwd=None, scrub=str) as child:
        await child.stdin.send(b"before\\n")
        answers.append(await child.stdout.receive())
        started.set()
        while not forked.is_set():
            await asyncio.sleep(0.01)
        await child.stdin.send(b"after\\n")
        answers.append(await child.stdout.receive())

thread = Thread(target=lambda: asyncio.run(main()))
thread.start()
started.wait()
if (fork := os.fork()) == 0:
    sys.exit(running_children())
status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
forked.set()
thread.join()
assert (status, answers) == (0, [b"before\\n", b"after\\n"]), (status, answers)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks are POSIX's")
async def test_a_fork_that_ends_leaves_the_children_of_its_parent_alone() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        await anyio.run_process([sys.executable, "-c", FORKS], cwd=ROOT, stderr=None)


@pytest.mark.skipif(sys.platform == "win32", reason="forks are POSIX's")
async def test_the_watchdog_sees_its_process_end_though_a_fork_lives() -> None:
    code = """
import os, signal, sys
from bridge.client.transports.process import _watchdog
_watchdog.add(int(sys.argv[1]))
if os.fork() == 0:
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with await anyio.open_process([sys.executable, "-c", "input()"], start_new_session=True) as kept:
            words = [sys.executable, "-c", code, str(kept.pid)]
            program = await anyio.open_process(words, cwd=ROOT, start_new_session=True, stdout=None, stderr=None)
            try:
                await program.wait()
                assert await kept.wait() == -signal.SIGKILL
            finally:
                os.killpg(program.pid, signal.SIGKILL)  # the fork
                await program.aclose()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
async def test_the_watchdog_leaves_alone_what_has_ended() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            await anyio.open_process(
                [sys.executable, "-c", "import sys; sys.stdin.read()"], start_new_session=True
            ) as kept,
            await anyio.open_process(
                [sys.executable, "-c", "import sys; sys.stdin.read()"], start_new_session=True
            ) as other,
        ):
            code = (
                f"from bridge.client.transports.process import Watchdog; w = Watchdog(); w.add({kept.pid}); "
                f"w.add({other.pid}); "
            )
            await anyio.run_process([sys.executable, "-c", f"{code} w.discard({kept.pid})"], cwd=ROOT)
            assert await other.wait() == -signal.SIGKILL
            assert kept.returncode is None
            assert kept.stdin is not None
            await kept.stdin.aclose()
            assert await kept.wait() == 0


async def test_a_server_that_floods_its_standard_error_is_not_blocked_by_it() -> None:
    code = "import sys\nfor n in range(20000): print('x' * 80, n, file=sys.stderr)\nprint('done', flush=True)"
    async with started(transport(code)) as child:
        with anyio.fail_after(DEADLINE_SECONDS):
            assert await child.stdout.receive() == b"done\n"
            await child.settle(DEADLINE_SECONDS)
    assert len(child.last_words) == 20
    assert child.last_words[-1] == f"{'x' * 80} 19999"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_other_tasks_run_between_the_lines_of_one_read(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turn, turns = 0, Counter[int]()
    monkeypatch.setattr(ChildProcess, "log_line", lambda *_: turns.update([turn]))
    code = f"import sys; sys.{stream}.write('x\\n' * 20000); sys.{stream}.flush(); sys.stdin.read()"
    async with started(transport(code)) as child, anyio.create_task_group() as tasks:
        reader = LineReader(child, Mock(LinkEvents, receive=Mock(side_effect=ValueError("no message"))))
        monkeypatch.setattr(reader, "_check_noise", lambda: None)
        if stream == "stdout":
            tasks.start_soon(reader.run)
        with anyio.fail_after(DEADLINE_SECONDS):
            while turns.total() < 20000:
                turn += 1
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert max(turns.values()) < 2 * LINES_OF_A_TURN  # those of two reads may meet


async def test_last_words_hold_no_secret() -> None:
    code = "import os, sys; sys.exit('cannot log in with ' + os.environ['TOKEN'])"
    async with started(transport(code, env={"TOKEN": "hunter2-and-more"})) as child:
        await child.settle(DEADLINE_SECONDS)
    assert child.last_words == ("cannot log in with ***",)
    assert child.exit_code == 1


async def test_what_cannot_be_started_leaves_nothing_behind() -> None:
    with pytest.raises(FileNotFoundError):
        async with started(StdioTransport("there-is-no-such-command")):
            raise AssertionError


DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    import socket
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as here:
        print(os.getpid(), flush=True)
        here.recv(1)
    os._exit(0)
"""


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="descriptors cannot be counted here")
async def test_a_daemon_that_keeps_the_pipes_open_costs_no_descriptor() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with anyio.fail_after(DEADLINE_SECONDS):
            async with started(transport("", port)):
                pass  # resources that a first child allocates once
            before = open_descriptors()
            async with started(transport(DAEMON, port)) as child:
                daemon = int(await child.stdout.receive())
            try:
                assert is_running(daemon)
                assert open_descriptors() == before
            finally:
                os.kill(daemon, signal.SIGKILL)


ENVIRON = {"PATH": "/bin", "HOME": "/root", "SECRET": "1", "OF_MINE": "2", "SHELL": "() { :; }"}


@pytest.mark.parametrize(
    ("inherit", "inherited"),
    [
        ("minimal", {"PATH": "/bin", "HOME": "/root"}),
        ("all", {"PATH": "/bin", "HOME": "/root", "SECRET": "1", "OF_MINE": "2"}),
        (("OF_MINE", "NOT_THERE"), {"PATH": "/bin", "HOME": "/root", "OF_MINE": "2"}),
    ],
)
def test_a_child_inherits_what_is_named_and_never_a_function_of_a_shell(
    inherit: object, inherited: dict[str, str]
) -> None:
    assert child_environment(inherit, {}, ENVIRON) == inherited  # type: ignore[arg-type]  # parametrized


def test_what_is_added_is_stronger_than_what_is_inherited() -> None:
    assert child_environment("minimal", {"PATH": "/mine"}, ENVIRON) == {"PATH": "/mine", "HOME": "/root"}


def test_by_default_it_is_this_processs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_MINE", "2")
    assert child_environment(("OF_MINE",), {})["OF_MINE"] == "2"
