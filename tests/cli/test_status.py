from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from bridge.client import StdioTransport
from tests import forks
from tests.cli.pseudo_terminal import Terminal
from tests.client.scripted import listed, scripted_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start


def write(directory: Path, **servers: Any) -> None:
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": servers}))


def calculator(directory: Path, **settings: Any) -> dict[str, Any]:
    return forks.entry("-m", "bridge", "serve", "calculator.py", cwd=str(directory), **settings)


def test_every_server_is_shown_with_its_state_era_transport_and_tools(run: Run, start: Start, directory: Path) -> None:
    with start("serve", "calculator.py", "--transport", "http", "--port", "0") as process:
        url = process.url()
        write(
            directory,
            child=calculator(directory, include=["add"]),
            old=calculator(directory, protocol="legacy", prefix="old_"),
            web={"url": url},
            sse={"type": "sse", "url": url.replace("/mcp", "/sse")},
        )
        done = run("status", "mcp.json", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    told = {name: (row["state"], row["transport"], row["era"], row["protocolVersion"]) for name, row in rows.items()}
    assert told == {
        "child": ("ready", "stdio", "modern", "2026-07-28"),
        "old": ("ready", "stdio", "handshake", "2025-11-25"),
        "web": ("ready", "http", "modern", "2026-07-28"),
        "sse": ("ready", "sse", "handshake", "2025-11-25"),
    }
    assert rows["child"]["tools"] == ["child_add"]
    assert rows["old"]["tools"] == ["old_add", "old_shout", "old_divide", "old_crash"]
    assert rows["web"]["server"]["name"] == "calculator"
    assert rows["web"]["address"] == url
    assert {row["lastError"] for row in rows.values()} == {None}


def test_a_server_that_is_not_there_is_shown_with_the_reason(run: Run, directory: Path) -> None:
    broken = {"command": sys.executable, "args": ["-c", "import sys; print('no key', file=sys.stderr); sys.exit(3)"]}
    write(directory, calc=calculator(directory), broken=broken)
    done = run("status", "mcp.json")
    header, calc, dead = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert header.split() == ["SERVER", "STATE", "TRANSPORT", "PROTOCOL", "VERSION", "TOOLS", "LAST", "ERROR"]
    assert calc.split() == ["calc", "ready", "stdio", "modern", "2026-07-28", "-", "4"]
    assert dead.split()[:3] == ["broken", "failed", "stdio"]
    assert "exit code: 3; last lines of stderr: no key; " in dead


def test_what_a_server_lists_and_is_no_tool_is_shown_with_the_reason(run: Run, directory: Path) -> None:
    lists = scripted_config([listed("a"), {"name": "b"}])
    assert isinstance(lists.transport, StdioTransport)
    write(directory, lists={"command": lists.transport.command, "args": list(lists.transport.args)})
    (row,) = json.loads(run("status", "mcp.json", "--json").stdout)
    told = "the tool 'b' is malformed: inputSchema: Field required"
    assert (row["state"], row["tools"], row["skipped"], row["lastError"]) == ("ready", ["a"], [told], None)
    assert f"left out: {told}" in run("status", "mcp.json").stdout.splitlines()[1]


def test_a_required_server_that_is_not_there_is_a_failure(run: Run, directory: Path) -> None:
    write(directory, calc=calculator(directory), dead={"url": "http://127.0.0.1:9/mcp", "required": True})
    done = run("status", "mcp.json", "--json")
    assert done.returncode == 1
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["calc"]["state"] == "ready"
    assert (rows["dead"]["state"], rows["dead"]["required"]) == ("failed", True)


@pytest.mark.parametrize("target", [["mcp.json#dead"], ["http://127.0.0.1:9/mcp"], ["--", "no-such-program"]])
def test_a_server_that_is_meant_alone_is_required(run: Run, directory: Path, target: list[str]) -> None:
    write(directory, dead={"url": "http://127.0.0.1:9/mcp"})
    done = run("status", "--json", *target)
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)
    assert (row["state"], row["required"]) == ("failed", True)


class Guard(BaseHTTPRequestHandler):
    """Answers each request with 401."""

    def do_POST(self) -> None:
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - the library's name

    def log_message(self, *_: object) -> None: ...


def test_a_server_that_wants_credentials_says_so(run: Run, directory: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Guard) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        write(directory, guarded={"url": f"http://127.0.0.1:{server.server_port}/mcp"})
        done = run("status", "mcp.json", "--json")
        server.shutdown()
    (row,) = json.loads(done.stdout)
    assert row["state"] == "needs_auth"
    assert "it asks for credentials (HTTP 401)" in row["lastError"]


def test_python_targets_have_no_server_to_ask(run: Run) -> None:
    done = run("status", "calculator.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no server whose status could be shown" in done.stderr


def test_a_server_that_does_not_answer_is_given_up(run: Run, directory: Path) -> None:
    write(directory, silent={"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]})
    done = run("status", "mcp.json", "--json", "--timeout", "0.5")
    (row,) = json.loads(done.stdout)
    assert row["state"] == "failed"
    assert "no handshake within 0.5 seconds" in row["lastError"]


def test_states_have_colours_on_a_terminal_alone(run: Run, directory: Path) -> None:
    write(directory, calc=calculator(directory), dead={"command": "no-such-program"})
    terminal = Terminal("status", "mcp.json", cwd=directory, size=(40, 60))
    assert terminal.ended() == 0
    assert "\x1b[32mready\x1b[0m" in terminal.raw
    assert "\x1b[31mfailed\x1b[0m" in terminal.raw
    assert all(len(line) <= 60 for line in terminal.seen.splitlines() if len(line.split()) > 1)
    plain = Terminal("status", "mcp.json", cwd=directory, env={"NO_COLOR": "1"})
    assert plain.ended() == 0
    assert "\x1b" not in plain.raw
    assert "\x1b" not in run("status", "mcp.json").stdout
