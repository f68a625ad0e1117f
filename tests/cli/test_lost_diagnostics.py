"""A server continues if its diagnostics cannot be written: standard error is full, has no reader, or is closed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests import forks
from tests.cli.conftest import DEADLINE_SECONDS
from tests.server.http_server import call, modern, modern_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")

PROGRAM = """
import logging
import bridge

def add(a: int, b: int) -> int:
    "Add."
    logging.getLogger("tools").error("logged")
    print("printed")
    return a + b

bridge.run(add)
"""
CALL = modern(call("add", {"a": 1, "b": 2}))


@pytest.fixture(params=["full", "without a reader"])
def stderr(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "full":
        opened = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, opened = os.pipe()
        os.close(reader)
    yield opened
    os.close(opened)


def answer_over_stdio(arguments: list[str], directory: Path, environment: dict[str, str], stderr: int) -> object:
    streams = (None, None, stderr)
    with forks.popen(arguments, cwd=directory, env=environment, streams=streams) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(CALL) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(DEADLINE_SECONDS) == 0
    return answer["result"]["structuredContent"]


@pytest.mark.parametrize("options", [(), ("--log-calls", "always"), ("--log-format", "json")])
def test_a_server_over_stdio_answers(
    directory: Path, environment: dict[str, str], stderr: int, options: tuple[str, ...]
) -> None:
    words = ["-m", "bridge", "serve", "calculator.py", *options]
    assert answer_over_stdio(words, directory, environment, stderr) == {"result": 3}


def test_a_program_that_serves_its_own_tools_answers(directory: Path, environment: dict[str, str], stderr: int) -> None:
    (directory / "program.py").write_text(PROGRAM)
    assert answer_over_stdio(["program.py"], directory, environment, stderr) == {"result": 3}


def test_a_server_over_http_answers(directory: Path, environment: dict[str, str], stderr: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["-m", "bridge", "serve", "calculator.py", "--transport", "http", "--port", str(port)]
    streams = (subprocess.DEVNULL, None, stderr)
    with (
        forks.popen([*words, "--log-calls", "always"], cwd=directory, env=environment, streams=streams) as process,
        httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client,
    ):
        for _ in range(2):
            answer = client.post(f"http://127.0.0.1:{port}/mcp", json=CALL, headers=modern_headers(CALL))
            assert answer.json()["result"]["structuredContent"] == {"result": 3}
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0


def test_commands_keep_their_exit_codes(directory: Path, environment: dict[str, str], stderr: int) -> None:
    for target, code in (("calculator.py", 0), ("missing.py", 2)):
        with subprocess.Popen(
            [sys.executable, "-m", "bridge", "list", target],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        ) as process:  # fmt: skip
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
            assert (process.returncode, b"Add two numbers." in output) == (code, code == 0)
