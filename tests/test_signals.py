from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import bridge
from tests.processes import serving

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = """
import multiprocessing, time
from bridge import tool

@tool
def stopped() -> int | None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    return process.exitcode
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="only POSIX forks")


@pytest.fixture
def tools(tmp_path: Path) -> str:
    file = tmp_path / "tools.py"
    file.write_text(TOOLS, encoding="utf-8")
    return str(file)


def test_a_command_outlives_the_child_that_its_tool_terminates(tools: str) -> None:
    command = [sys.executable, "-m", "bridge", "call", tools, "stopped"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "-15\n", "")


def test_a_server_over_stdio_outlives_the_child_that_its_tool_terminates(tools: str) -> None:
    server_entry = {"command": sys.executable, "args": ["-m", "bridge", "serve", tools]}
    with bridge.connect({"mcpServers": {"tools": server_entry}}) as server:
        assert [server.call("stopped").text for _ in range(2)] == ["-15", "-15"]


def test_a_server_over_http_can_terminate_children_of_its_tools(tools: str) -> None:
    with (
        serving("-m", "bridge", "serve", tools, "--transport", "http", "--port", "0") as process,
        bridge.connect(f"{process.origin}/mcp") as server,
    ):
        assert server.call("stopped").text == "-15"
