"""The log of calls for people."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import httpx
import pytest

from bridge.cli.serve.call_lines import CallLines
from tests import forks
from tests.cli.pseudo_terminal import DEADLINE_SECONDS, Terminal
from tests.cli.test_serve_stdio import OPENING
from tests.processes import serving
from tests.server.http_server import call, modern, modern_headers

TOOLS = """
from bridge import ToolError, tool

@tool
async def add(a: int, b: int) -> int:
    "Add."
    return a + b

@tool
async def fail() -> int:
    "Fail."
    raise ToolError("no")
"""
HTTP = ("--transport", "http", "--port", "0")
TIME = r"\d\d:\d\d:\d\d\.\d{3} "


@pytest.fixture
def tools(tmp_path: Path) -> str:
    path = tmp_path / "tools.py"
    path.write_text(TOOLS, encoding="utf-8")
    return str(path)


def post(origin: str, name: str, arguments: dict[str, object]) -> None:
    message = modern(call(name, arguments))
    httpx.post(f"{origin}/mcp", json=message, headers=modern_headers(modern(call("add"))) | {"mcp-name": "add"})


def lines_of(log: str) -> list[str]:
    return [re.sub(r"in [\d.]+ ms", "in N ms", line) for line in log.splitlines() if re.match(TIME, line)]


def test_each_call_has_a_line_where_that_is_asked_for(tools: str) -> None:
    with serving("-m", "bridge", "serve", tools, *HTTP, "--log-calls", "always") as server:
        post(server.origin, "add", {"a": 1, "b": 2})
    (line,) = lines_of(server.log)
    assert re.fullmatch(TIME + "call add over http: ok in N ms", line)


def test_arguments_are_in_the_line_only_where_that_is_asked_for(tools: str) -> None:
    options = ("--log-calls", "always", "--log-arguments", "--api-key", "k" * 20)
    with serving("-m", "bridge", "serve", tools, *HTTP, *options) as server:
        message = modern(call("add", {"a": 1, "b": "\x1b[2J\u202e"}))
        headers = modern_headers(message) | {"authorization": f"Bearer {'k' * 20}"}
        httpx.post(f"{server.origin}/mcp", json=message, headers=headers)
    (line,) = lines_of(server.log)
    assert line[13:] == r'call add by key-1 over http: tool_error in N ms {"a":1,"b":"\u001b[2J\u202e"}'


@pytest.mark.parametrize("options", [(), ("--log-calls", "never")])
def test_without_a_terminal_there_are_no_lines(tools: str, options: tuple[str, ...]) -> None:
    with serving("-m", "bridge", "serve", tools, *HTTP, *options) as server:
        post(server.origin, "add", {"a": 1, "b": 2})
    assert lines_of(server.log) == []


def test_on_a_terminal_calls_are_logged_with_colours_of_their_outcomes(tools: str) -> None:
    terminal = Terminal("serve", tools, *HTTP)
    terminal.until("serving tools at ")
    url = terminal.until("\n")
    for name in ("add", "fail"):
        message = modern(call(name, {"a": 1, "b": 2} if name == "add" else {}))
        httpx.post(url, json=message, headers=modern_headers(message))
    terminal.until("call add over http: ok in ")
    terminal.until("call fail over http: tool_error in ")
    terminal.process.terminate()
    terminal.ended()
    assert "\x1b[32mok" in terminal.raw
    assert "\x1b[31mtool_error" in terminal.raw


def test_over_stdio_the_lines_are_on_the_terminal_and_the_protocol_is_untouched(tools: str) -> None:
    terminal, theirs = os.openpty()
    requests = [*OPENING, call("add", {"a": 1, "b": 2}), call("fail") | {"id": 2}]
    words = ["-m", "bridge", "serve", tools]
    environment = os.environ | {"TERM": "dumb"}
    with forks.popen(words, cwd=Path.cwd(), env=environment, streams=(None, None, theirs)) as process:
        os.close(theirs)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(json.dumps(each) + "\n" for each in requests))
        process.stdin.close()
        answers = [json.loads(line) for line in process.stdout]
        process.wait(DEADLINE_SECONDS)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2]
    assert sorted(line[13:] for line in lines_of(shown)) == [
        "call add from test over stdio: ok in N ms",
        "call fail from test over stdio: tool_error in N ms",
    ]


def record(**changes: object) -> bytes:
    base = {
        "time": "2026-01-31T12:00:01.123Z", "event": "call", "request_id": 1, "tool": "add", "server": None,
        "caller": None, "client": None, "transport": "http", "duration_ms": 0.25, "outcome": "ok", "arguments": {},
    }  # fmt: skip
    return json.dumps(base | changes).encode() + b"\n"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"server": "files", "caller": "ada"}, "call add of files by ada over http: ok in 0.2 ms"),
        ({"client": "An editor"}, 'call add from "An editor" over http: ok in 0.2 ms'),
        (
            {"client": "x\x1b[2J\n over http: ok in 1 ms"},
            r'call add from "x\u001b[2J\n over http: ok in 1 ms" over http: ok in 0.2 ms',
        ),
        ({"outcome": "error", "error": "-32602"}, "call add over http: error -32602 in 0.2 ms"),
        ({"tool": None}, "call (no name) over http: ok in 0.2 ms"),
        (
            {"tool": "a\x1b[2J\nb\u202e", "caller": "x\x9b"},
            r'call "a\u001b[2J\nb\u202e" by x\x9b over http: ok in 0.2 ms',
        ),
        (
            {"tool": "add by ada over http: ok in 1 ms", "outcome": "error", "error": "-32602"},
            'call "add by ada over http: ok in 1 ms" over http: error -32602 in 0.2 ms',
        ),
        ({"event": "read", "resource": "notes://a", "tool": None}, "read notes://a over http: ok in 0.2 ms"),
        ({"event": "task", "transport": None, "outcome": "cancelled"}, "task add: cancelled in 0.2 ms"),
        ({"event": "lost", "calls": 3}, "3 lines of calls were dropped"),
    ],
)
def test_a_record_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], shown: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    CallLines(shows_arguments=False).write(record(**changes) * 2)
    first, second = capfd.readouterr().err.splitlines()
    assert first == second
    assert re.fullmatch(TIME + re.escape(shown), first)
