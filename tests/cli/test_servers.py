from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import forks

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Start

SERVER = ("-m", "bridge", "serve", "calculator.py")

PAGED = """
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
import anyio, os

async def list_tools(context, params):
    start = int(params.cursor) if params is not None and params.cursor else 0
    tools = [types.Tool(name=f"t{start}", input_schema={"type": "object", "default": {"a": None}})]
    return types.ListToolsResult(tools=tools, next_cursor=str(start + 1) if start < 2 else None)

async def call_tool(context, params):
    if params.name == "t1":
        os._exit(3)
    return types.CallToolResult(content=[], structured_content={"given": params.arguments})

async def main():
    server = Server("paged", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())

anyio.run(main)
"""


def test_the_tools_of_a_command_are_listed_as_those_of_its_file_are(run: Run) -> None:
    here, there = run("list", "calculator.py", "--json"), run("list", "--json", "--", *forks.command(*SERVER))
    assert there.returncode == 0
    assert json.loads(there.stdout) == json.loads(here.stdout)


def test_a_tool_of_a_command_is_called_with_options_before_the_dashes(run: Run) -> None:
    done = run("call", "add", "a=1", "--output", "json", "--", *forks.command(*SERVER))
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert (result["content"], result["structuredContent"]) == ([{"type": "text", "text": "3"}], {"result": 3})


def test_the_tools_of_a_url_are_listed_and_called(run: Run, start: Start) -> None:
    with start("serve", "calculator.py", "--transport", "http", "--port", "0") as process:
        url = process.url()
        assert run("list", url).stdout == run("list", "calculator.py").stdout
        assert run("call", url, "shout", "text=5").stdout == "5!\n"
        failed = run("call", url, "divide", "a=1", "b=0")
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr == "division by zero: give another b\n"
        unknown = run("call", url, "ad")
        assert (unknown.returncode, unknown.stdout) == (2, "")
        assert unknown.stderr == "bridge: there is no tool named 'ad'; did you mean 'add'?\n"
        usage = run("call", url, "add", "a=x")
        assert (usage.returncode, usage.stdout) == (2, "")
        assert usage.stderr.startswith("bridge call: the argument 'a' is of type integer, not 'x'")


def test_only_the_server_judges_arguments_that_the_schema_does_not_settle(run: Run, start: Start) -> None:
    with start("serve", "calculator.py", "--transport", "http", "--port", "0") as process:
        done = run("call", process.url(), "add")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("invalid arguments for 'add': a: ")


def test_every_page_is_read_and_a_result_without_text_is_shown_as_data(run: Run, directory: Path) -> None:
    (directory / "paged.py").write_text(PAGED)
    server = forks.command("paged.py")
    listed = json.loads(run("list", "--json", "--", *server).stdout)["tools"]
    assert [tool["name"] for tool in listed] == ["t0", "t1", "t2"]
    assert listed[0]["inputSchema"] == {"type": "object", "default": {"a": None}}
    done = run("call", "t2", "a=1", "b=x", "--", *server)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"given": {"a": 1, "b": "x"}})


def test_a_server_that_dies_during_a_call_is_one_line(run: Run, directory: Path) -> None:
    (directory / "paged.py").write_text(PAGED)
    done = run("call", "t1", "--timeout", "20", "--", sys.executable, "paged.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"bridge: server {Path(sys.executable).stem!r}, calling 't1': the server's process has ended; "
        f"it may have run: the outcome is unknown (at: {sys.executable} paged.py; exit code: 3)\n"
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-program"], "starting: command not found: 'no-such-program' (at: no-such-program; hint: "),
        ([sys.executable, "-c", "raise SystemExit(3)"], "starting: it ended before the handshake (at: "),
        ([sys.executable, "-c", "print('this is no protocol')"], "starting: it ended before the handshake (at: "),
    ],
)
def test_a_command_that_is_no_server_is_one_line(run: Run, command: list[str], reason: str) -> None:
    done = run("list", "--", *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"bridge: server {Path(command[0]).stem!r}, {reason}")


def test_what_a_server_said_before_it_ended_is_told(run: Run) -> None:
    done = run("list", "--", sys.executable, "-c", "import sys; print('no key', file=sys.stderr); sys.exit(3)")
    assert "; exit code: 3; last lines of stderr: no key; hint: " in done.stderr


def test_a_server_that_says_nothing_is_given_up(run: Run) -> None:
    silent = "import sys; sys.stdin.read()"
    done = run("list", "--timeout", "0.5", "--", sys.executable, "-c", silent)
    assert (done.returncode, done.stdout) == (1, "")
    assert "starting: no handshake within 0.5 seconds (at: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_refused_connection_is_one_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = run("list", f"http://127.0.0.1:{port}/mcp")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"bridge: server '127.0.0.1', connecting: connection refused (at: http://127.0.0.1:{port}/mcp; "
        "hint: is the server running, and on that port?)\n"
    )


def test_a_port_that_never_answers_is_given_up(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        done = run("call", url, "f", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (1, "")
    reason = "connecting: no handshake within 0.5 seconds"
    assert done.stderr.startswith(f"bridge: server '127.0.0.1', {reason} (at: {url}; ")


def test_what_is_secret_in_a_target_is_not_repeated(run: Run) -> None:
    done = run("list", "http://user:hunter2@127.0.0.1:1/mcp?key=hunter2")
    assert done.returncode == 1
    assert "hunter2" not in done.stderr
