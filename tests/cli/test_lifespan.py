"""Lifespans of files, in commands and in servers that commands start."""

from __future__ import annotations

import signal
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.redis_server import redis_server
from tests.server.http_server import call, modern, modern_headers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

HELPERS = """
from bridge import InvocationContext

async def helped(context: InvocationContext) -> str:
    return f"helped by {context.lifespan}"
"""
NOTES = """
import atexit
import os
import sys
import anyio
from bridge import InvocationContext, lifespan, prompt, resource, tool
from helpers import helped

def say(text):
    print(text, file=sys.stderr, flush=True)

@lifespan
async def app():
    if "BROKEN" in os.environ:
        raise ConnectionRefusedError("no database")
    say("opened")
    yield "pool"
    say("closed")

helped = tool(helped)

@tool
def use(context: InvocationContext) -> str:
    return context.lifespan

@tool
async def wait() -> None:
    say("waiting")
    await anyio.sleep_forever()

@resource("notes://all")
async def notes(context: InvocationContext) -> str:
    return context.lifespan

@prompt
async def ask(context: InvocationContext) -> str:
    return context.lifespan

atexit.register(say, "exit")
"""
SAID = ["opened", "closed", "exit"]


@pytest.fixture(autouse=True)
def _files(directory: Path) -> None:
    (directory / "notes.py").write_text(dedent(NOTES), encoding="utf-8")
    (directory / "helpers.py").write_text(dedent(HELPERS), encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["call", "notes.py", "use"], "pool\n"),
        (["call", "notes.py", "helped"], "helped by pool\n"),
        (["read", "notes.py", "notes://all"], "pool"),
        (["prompt", "notes.py", "ask"], "pool\n"),
        (["list", "notes.py"], "use"),
    ],
)
def test_a_command_opens_and_closes_it(run: Run, arguments: list[str], output: str) -> None:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert output in done.stdout
    assert [line for line in done.stderr.splitlines() if line in SAID] == SAID


@pytest.mark.skipif(sys.platform == "win32", reason="processes are ended by signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_command_that_a_signal_ends_closes_it(start: Start, number: signal.Signals, code: int) -> None:
    with start("call", "notes.py", "wait") as process:
        process.line_with("waiting")
        assert process.end(number) == code
        assert [line for line in process.seen if line in SAID] == SAID


@pytest.mark.parametrize("arguments", [["call", "notes.py", "use"], ["list", "notes.py"], ["serve", "notes.py"]])
def test_a_command_whose_lifespan_cannot_be_opened_says_why(run: Run, arguments: list[str]) -> None:
    done = run(*arguments, env={"BROKEN": "1"})
    assert done.returncode == 1
    reason = "bridge: the lifespan 'app' (notes.py:12) could not be opened: ConnectionRefusedError: no database"
    assert reason in done.stderr
    assert 'raise ConnectionRefusedError("no database")' in done.stderr


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_an_http_server_whose_lifespan_cannot_be_opened_says_why(run: Run, more: list[str]) -> None:
    done = run("serve", "notes.py", "--transport", "http", "--port", "0", *more, env={"BROKEN": "1"})
    assert done.returncode == 1
    reason = "bridge: the lifespan 'app' (notes.py:12) could not be opened: ConnectionRefusedError: no database"
    assert [line for line in done.stderr.splitlines() if line != "exit"][-1] == reason


@pytest.mark.parametrize("more", [[], ["--workers", "2"], ["mcp.json"]])
def test_a_server_opens_and_closes_it(start: Start, directory: Path, more: list[str]) -> None:
    (directory / "mcp.json").write_text('{"mcpServers": {}}', encoding="utf-8")
    names = {"use": "pool", "helped": "helped by pool"}
    with start("serve", "notes.py", *more, "--transport", "http", "--port", "0") as process:
        url = process.url()
        for name, text in names.items():
            message = modern(call(name))
            reply = httpx.post(url, json=message, headers=modern_headers(message)).json()
            assert reply["result"]["content"][0]["text"] == text
        assert process.end(signal.SIGTERM) == 0
        processes = 2 if "--workers" in more else 1
        for text in ("opened", "closed"):
            assert process.seen.count(text) == processes


def test_a_reload_closes_it_and_opens_that_of_the_new_version(start: Start, directory: Path) -> None:
    with start("serve", "notes.py", "--transport", "http", "--port", "0", "--reload") as process:
        process.url()
        changed = (directory / "notes.py").read_text(encoding="utf-8").replace("opened", "opened again")
        (directory / "notes.py").write_text(changed, encoding="utf-8")
        process.line_with("opened again")
        process.line_with("closed")
        assert process.end(signal.SIGTERM) == 0
        assert process.seen.count("closed") == 2


@pytest.mark.skipif(sys.platform == "win32", reason="processes are ended by signals")
def test_a_worker_opens_and_closes_it(start: Start, tmp_path_factory: pytest.TempPathFactory) -> None:
    with redis_server(tmp_path_factory.mktemp("redis")) as redis:
        settings = {"BRIDGE_REDIS_URL": redis.url, "BRIDGE_STATE_KEYS": "k" * 32}
        with start("worker", "notes.py", env=settings) as process:
            process.line_with("running tasks of notes")
            assert "opened" in process.seen
            assert process.end(signal.SIGTERM) == 0
            assert "closed" in process.seen
