"""Forks of Python behave as Python does, and end with whoever has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import forks

DEADLINE_SECONDS = 60
ROOT = Path(__file__).parents[1]
TELLS = """
import os, signal, sys

print(sys.argv[1:], input(), os.getcwd(), os.environ["WORD"], flush=True)
print("to standard error", file=sys.stderr)
sys.exit(3)
"""
WAITS = """
import signal, sys

if "stops" in sys.argv:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM])  # a handler would miss one that comes right before `signal.pause`
    sys.exit(4)
print("ready", flush=True)
signal.pause()
"""
STARTS = """
import signal, subprocess, sys
from tests import forks

forks.IMPORTED = ()
streams = (subprocess.DEVNULL, 1, 2)
kept = [
    subprocess.Popen(forks.command(sys.argv[1]), stdin=subprocess.DEVNULL),
    forks.ForkedPython([sys.argv[1]], cwd=".", env={}, streams=streams),
]
signal.pause()
"""
STARTS_AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from tests import forks

forks.IMPORTED = ()
with ThreadPoolExecutor(3) as threads:
    commands = list(threads.map(forks.command, "abc"))
print(len({tuple(command[:-1]) for command in commands}))
"""

pytestmark = pytest.mark.skipif(not forks.IS_POSSIBLE, reason="there are no forks")


@pytest.fixture
def waits(tmp_path: Path) -> str:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    return str(script)


def started(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(forks.command(*arguments), stdout=subprocess.PIPE, encoding="utf-8")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def forked(*arguments: str) -> forks.ForkedPython:
    process = forks.ForkedPython(arguments, cwd=ROOT, env=os.environ)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_command_has_the_streams_the_place_the_environment_and_the_exit_code_of_its_fork(tmp_path: Path) -> None:
    script = tmp_path / "tells.py"
    script.write_text(TELLS)
    done = subprocess.run(
        forks.command(str(script), "one", "two words"),
        cwd=tmp_path,
        env=os.environ | {"WORD": "a=b"},
        input="a line\n",
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.stdout == f"['one', 'two words'] a line {tmp_path} a=b\n"
    assert (done.stderr, done.returncode) == ("to standard error\n", 3)


def test_a_command_passes_sigterm_on(waits: str) -> None:
    with started(waits, "stops") as process:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 4


def test_a_command_ends_by_the_signal_that_ends_its_fork(waits: str) -> None:
    with started(waits) as process:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGTERM


def test_a_command_that_is_killed_takes_its_fork_with_it(waits: str) -> None:
    with started(waits) as process:
        process.kill()
        rest, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert rest == ""  # the fork has closed the pipe


def test_all_forks_and_their_server_end_with_a_program_that_is_killed(waits: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", STARTS, waits], cwd=ROOT, stdout=subprocess.PIPE)
    with program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        program.kill()
        rest, _ = program.communicate(timeout=DEADLINE_SECONDS)
    assert rest == b""  # each of them had the pipe


def test_a_fork_has_no_connections_of_earlier_ones(waits: str) -> None:
    """Forks that had them kept them open, and whoever waited for the end of one waited for all."""
    with forked(waits) as first, forked(waits) as second:
        first.kill()
        assert [first.wait(DEADLINE_SECONDS) for _ in range(2)] == [-signal.SIGKILL] * 2
        assert first._connection.poll(DEADLINE_SECONDS)  # its end, which the second would hold back
        assert second.poll() is None
        second.kill()


def test_threads_wait_for_the_same_fork(waits: str) -> None:
    with forked(waits) as process, forked(waits) as other, ThreadPoolExecutor(3) as threads:
        codes = [threads.submit(process.wait, DEADLINE_SECONDS) for _ in range(3)]
        process.kill()
        assert [code.result() for code in codes] == [-signal.SIGKILL] * 3
        other.kill()


def test_threads_that_need_the_fork_server_at_once_start_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS_AT_ONCE],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
