"""Programs that serve themselves, as real processes."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import bridge
from bridge.errors import BridgeError, DefinitionError
from bridge.server.auth import ApiKey, ApiKeys, Auth
from tests import forks
from tests.cli.conftest import DEADLINE_SECONDS, Process
from tests.server.http_server import HEADERS, initialize
from tests.server.stdio_process import ROOT, StdioProcess, call, modern_request

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
import bridge
from bridge.server.auth import ApiKey, ApiKeys, Auth

def add(a: int, b: int) -> int:
    print("printed by the tool", flush=True)
    return a + b

if __name__ == "__main__":
    auth = Auth(ApiKeys(ApiKey("ci", "a-random-key-of-the-tests")))
    if "version" in sys.argv:
        bridge.run(add, version="7")
    if "server" in sys.argv:
        bridge.run(bridge.Server(add, name="mine", version="3"))
    __version__ = "1.2"
    if "http" in sys.argv:
        bridge.run(add, transport="http", port=0, name="sums", auth=auth if "auth" in sys.argv else None)
    bridge.run([add], instructions="Sums.")
"""
AUTH = Auth(ApiKeys(ApiKey("ci", "a-random-key-of-the-tests")))


def add(a: int, b: int) -> int:
    return a + b


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "adder.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return str(file)


def test_a_program_serves_over_stdio_under_its_own_name_until_its_input_closes(program: str) -> None:
    with StdioProcess(command=[program]) as server:
        described = server.answer(modern_request(1, "server/discover"))["result"]
        assert described["instructions"] == "Sums."
        assert described["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "adder", "version": "1.2"}
        assert server.answer(call(2, "add", a=2, b=3))["result"]["structuredContent"] == {"result": 5}
        assert "serving adder over stdio" in server.log()
        assert "printed by the tool" in server.log()
        server.close_input()
        assert server.wait() == 0


def test_a_program_may_say_its_version(program: str) -> None:
    with StdioProcess(command=[program, "version"]) as server:
        described = server.answer(modern_request(1, "server/discover"))["result"]
        assert described["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "adder", "version": "7"}
        server.close_input()
        assert server.wait() == 0


def test_a_server_object_is_run_as_it_is(program: str) -> None:
    with StdioProcess(command=[program, "server"]) as server:
        described = server.answer(modern_request(1, "server/discover"))["result"]
        assert described["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "mine", "version": "3"}
        assert "serving mine over stdio" in server.log()
    with pytest.raises(DefinitionError, match="give name and version to the Server"):
        bridge.run(bridge.Server(add, name="mine"), name="other", version="1")


@pytest.mark.parametrize(("arguments", "status"), [(["http"], 200), (["http", "auth"], 401)])
def test_a_program_serves_over_http_and_ends_by_ctrl_c(program: str, arguments: list[str], status: int) -> None:
    with forks.popen([program, *arguments], cwd=ROOT, env=os.environ) as popen:
        try:
            process = Process(popen)
            url = process.url()
            reply = httpx.post(url, json=initialize(), headers=HEADERS, timeout=DEADLINE_SECONDS)
            assert (reply.status_code, httpx.get(url.replace("/mcp", "/readyz")).status_code) == (status, 200)
            assert process.end(signal.SIGINT) == 130
            assert process.seen == [f"serving sums at {url}"]
        finally:
            if popen.poll() is None:
                popen.kill()


@pytest.mark.parametrize(
    ("tools", "options", "told"),
    [
        ([], {}, "there are no tools, resources or prompts in"),
        ([add], {"transport": "sse"}, "transport must be 'stdio' or 'http', not 'sse'"),
        ([add], {"auth": AUTH}, "auth needs transport='http'"),
        (
            [add],
            {"transport": "http", "host": "0.0.0.0"},
            "can be reached from other machines without a key: pass auth=",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is(tools: list[Any], options: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        bridge.run(*tools, **options)


def test_a_host_that_is_none_is_an_error_that_says_so() -> None:
    with pytest.raises(BridgeError, match="cannot listen on 'no such host'"):
        bridge.run(add, transport="http", host="no such host")
