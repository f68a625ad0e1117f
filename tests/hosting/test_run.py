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
    if "server" in sys.argv:
        bridge.run(bridge.Server(add, name="mine", version="3"))
    if "method" in sys.argv:
        bridge.Server(add, name="mine", version="7").run()
    __version__ = "1.2"
    sums = bridge.Server(add, name="sums")
    if "http" in sys.argv:
        bridge.run(sums, transport="http", port=0, auth=auth if "auth" in sys.argv else None)
    if "path" in sys.argv:
        sums.run("http", port=0, path="/sums")
    bridge.run([add])
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
        assert described["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "adder", "version": "1.2"}
        assert server.answer(call(2, "add", a=2, b=3))["result"]["structuredContent"] == {"result": 5}
        assert "serving adder over stdio" in server.log()
        assert "printed by the tool" in server.log()
        server.close_input()
        assert server.wait() == 0


@pytest.mark.parametrize(("way", "version"), [("server", "3"), ("method", "7")])
def test_a_server_object_is_run_as_it_is(program: str, way: str, version: str) -> None:
    with StdioProcess(command=[program, way]) as server:
        described = server.answer(modern_request(1, "server/discover"))["result"]
        assert described["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "mine", "version": version}
        assert "serving mine over stdio" in server.log()
        server.close_input()
        assert server.wait() == 0


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_what_describes_a_server_is_refused_beside_it(transport: Any) -> None:
    options: Any = {"name": "other"}
    with pytest.raises(TypeError, match=r"run\(\) takes no name: give it to the Server"):
        bridge.run(bridge.Server(add, name="mine"), transport=transport, **options)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="port must be from 0 to 65535, not 65536"):
        bridge.run(add, transport="http", port=65536)


@pytest.mark.parametrize(("arguments", "status"), [(["http"], 200), (["http", "auth"], 401), (["path"], 200)])
def test_a_program_serves_over_http_and_ends_by_ctrl_c(program: str, arguments: list[str], status: int) -> None:
    with forks.popen([program, *arguments], cwd=ROOT, env=os.environ) as popen:
        try:
            process = Process(popen)
            url = process.url()
            reply = httpx.post(url, json=initialize(), headers=HEADERS, timeout=DEADLINE_SECONDS)
            ready = httpx.get(url.rpartition("/")[0] + "/readyz")
            assert (reply.status_code, ready.status_code) == (status, 200)
            assert url.endswith("/sums" if arguments == ["path"] else "/mcp")
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
        ([add], {"port": 0, "sse": False}, "port and sse need transport='http'"),
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
