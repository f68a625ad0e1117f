"""Output of foreign data: reports are escaped everywhere, and data on a terminal; in a pipe, data stay as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import forks
from tests.client.scripted import listed, scripted_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

DEADLINE_SECONDS = 40
NASTY = "\x1b]52;c;aGk=\x07\x9b2J\u202egnp\u200b\u3164\U000e0041"
SHOWN = r"\x1b]52;c;aGk=\x07\x9b2J\u202egnp\u200b\u3164\U000e0041"


@pytest.fixture
def server() -> list[str]:
    """Command of a server whose texts all have control sequences or misleading characters."""
    schema = {"type": "object", "properties": {f"p{NASTY}": {"type": NASTY, "description": NASTY}}}
    tool = listed("f", title=f"Title{NASTY}", description=f"First\nsecond{NASTY}", inputSchema=schema)
    results = {"f": {"content": [{"type": "text", "text": f"Ü\n{NASTY}"}]}}
    failing = {"g": {"content": [{"type": "text", "text": f"failed{NASTY}"}], "isError": True}}
    return scripted_command([tool, listed("g")], results | failing, version=f"1{NASTY}")


def shown(directory: Path, environment: dict[str, str], *arguments: str) -> str:
    """Run a command with standard output and standard error on a terminal; returns the output."""
    terminal, end = os.openpty()
    env = environment | {"TERM": "xterm"}
    streams = (subprocess.DEVNULL, end, end)
    with forks.popen(["-m", "bridge", *arguments], cwd=directory, env=env, streams=streams) as process:
        os.close(end)
        seen = b""
        try:
            while chunk := os.read(terminal, 4096):
                seen += chunk
        except OSError:  # EIO on Linux: the other end is closed
            pass
        process.wait(DEADLINE_SECONDS)
    os.close(terminal)
    return seen.decode().replace("\r\n", "\n")


def without_pid(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out the process, which differs between two runs."""
    return {key: value for key, value in found.items() if key != "pid"}


@pytest.mark.parametrize("command", [["list"], ["status"], ["call", "f"], ["call", "g"]])
def test_on_a_terminal_it_is_shown_and_not_obeyed(
    directory: Path, environment: dict[str, str], server: list[str], command: list[str]
) -> None:
    seen = shown(directory, environment, *command, "--", *server)
    own = re.sub(r"\x1b\[[0-9]+m", "", seen)  # names are bold, and levels have colours
    assert SHOWN in own
    assert all(line.isprintable() for line in own.splitlines())
    assert "\u3164" not in own


@pytest.mark.slow
@pytest.mark.parametrize("command", [["list", "--json"], ["status", "--json"], ["call", "f", "--output", "json"]])
def test_on_a_terminal_json_stays_the_same_json(
    run: Run, directory: Path, environment: dict[str, str], server: list[str], command: list[str]
) -> None:
    seen = shown(directory, environment, *command, "--", *server)
    assert all(line.isprintable() for line in seen.splitlines())
    piped = run(*command, "--", *server).stdout
    assert json.loads(seen, object_hook=without_pid) == json.loads(piped, object_hook=without_pid)


def test_in_a_pipe_the_text_of_a_result_stays_as_it_is(run: Run, server: list[str]) -> None:
    done = run("call", "f", "--", *server)
    assert done.returncode == 0, done.stderr
    assert NASTY in done.stdout


@pytest.mark.parametrize("command", [["list"], ["status"], ["list", "--json"], ["status", "--json"]])
def test_reports_are_escaped_in_a_pipe_too_which_may_lead_to_a_terminal(
    run: Run, server: list[str], command: list[str]
) -> None:
    done = run(*command, "--", *server)
    assert done.returncode == 0, done.stderr
    assert all(line.isprintable() for line in done.stdout.splitlines())
    if "--json" in command:
        assert json.dumps(NASTY)[1:-1] in json.dumps(json.loads(done.stdout))
    else:
        assert SHOWN in done.stdout
