"""Attempts to start and reach servers: their order, and the errors."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from bridge.client import Connection, HttpTransport, ServerConfig, StdioTransport
from bridge.client.transports import stdio_lines
from bridge.errors import OutcomeUnknownError, ServerAuthError, ServerFailure, ServerUnavailableError
from tests.client.conftest import DEADLINE_SECONDS, RemoteServer, forked, opened, proxied, python_config
from tests.client.scripted import listed, scripted_config
from tests.server.http_server import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.client.guard import Guard

pytestmark = pytest.mark.anyio


LONG_LINES = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}, "instructions": "x" * 2**19}
        result = {"protocolVersion": "2025-11-25", **told}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif message["method"] == "tools/call":
        if message["params"]["name"] == "answer":
            sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":"' % message["id"])
        for _ in range(2**9):
            sys.stdout.write("x" * 2**16)
        sys.stdout.flush()
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}), flush=True)
"""


async def failure_of(config: ServerConfig) -> ServerFailure:
    """Check that opening a connection fails with one plain error, and leaves nothing open."""
    connection = Connection(config)
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ServerUnavailableError) as caught:
        await connection.open()
    assert connection.last_error is caught.value
    return caught.value.failure


def http_config(url: str, **settings: Any) -> ServerConfig:
    return ServerConfig(name="remote", transport=HttpTransport(url, **settings))


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def test_where_the_type_is_not_given_a_post_is_tried_before_a_get(guard: Guard) -> None:
    sse = guard.url.replace("/mcp", "/sse")
    async with opened(http_config(sse)) as connection:
        assert connection.status().transport == "sse"
    posted, got = guard.seen.index(("POST", "/sse")), guard.seen.index(("GET", "/sse"))
    assert posted < got


async def test_what_was_found_out_once_is_not_tried_again(guard: Guard) -> None:
    connection = Connection(http_config(guard.url.replace("/mcp", "/sse")))
    came_back = anyio.Event()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with connection:
            await connection.call_tool("add", {"a": 1, "b": 1})
            before = guard.seen.count(("POST", "/sse"))
            connection.on_state(lambda state: came_back.set() if state.value == "ready" else None)
            guard.status, guard.refusals = 404, 1
            await connection.call_tool("add", {"a": 1, "b": 1})
            await came_back.wait()
    assert guard.seen.count(("POST", "/sse")) == before


async def test_a_type_that_is_given_is_kept_to(guard: Guard) -> None:
    failure = await failure_of(http_config(guard.url.replace("/mcp", "/sse"), kind="http"))
    assert ("GET", "/sse") not in guard.seen
    assert failure.reason == "no MCP server at this URL (HTTP 405)"


async def test_a_url_with_nothing_behind_it_says_so(guard: Guard) -> None:
    failure = await failure_of(http_config(guard.url.replace("/mcp", "/nothing")))
    assert failure == ServerFailure(
        server="remote",
        phase="connecting",
        reason="no MCP server at this URL (HTTP 404)",
        address=guard.url.replace("/mcp", "/nothing"),
        hint="check the path: it is often /mcp or /sse",
    )


async def test_a_web_page_is_no_server() -> None:
    page = Starlette(routes=[Route("/", lambda _: HTMLResponse("<h1>"))])  # a POST gets 405
    with serving(page) as origin:
        failure = await failure_of(http_config(f"{origin}/"))
    assert failure.reason == "no MCP server at this URL: its answer is not an event stream"
    assert failure.hint == "check the path: it is often /mcp or /sse"


async def test_a_server_that_refuses_connections_says_so() -> None:
    failure = await failure_of(http_config("http://127.0.0.1:9/mcp"))
    assert (failure.reason, failure.hint) == ("connection refused", "is the server running, and on that port?")


async def test_a_host_that_does_not_exist_says_so() -> None:
    failure = await failure_of(http_config("http://there-is-no-such-host.invalid/mcp"))
    assert "ame" in failure.reason or "address" in failure.reason


async def test_http_where_https_is_wanted_says_so(guard: Guard) -> None:
    failure = await failure_of(http_config(guard.url.replace("http:", "https:")))
    assert failure.reason.startswith("TLS: ")


async def test_credentials_are_asked_for_by_an_error_of_its_own(guard: Guard) -> None:
    guard.key = "Bearer right"
    with pytest.raises(ServerAuthError) as caught:
        await Connection(http_config(guard.url, headers={"Authorization": "Bearer wrong-and-secret"})).open()
    assert caught.value.failure.reason == "it asks for credentials (HTTP 401)"
    assert caught.value.failure.hint is not None
    assert caught.value.failure.hint.startswith("the key is missing, wrong or expired: give one by --header")
    assert "wrong-and-secret" not in str(caught.value)


@pytest.mark.parametrize("kind", ["http", "sse", None])
async def test_a_server_that_takes_connections_and_says_nothing_is_given_up_in_time(
    kind: Any, remote: RemoteServer
) -> None:
    async with proxied(remote) as proxy:
        proxy.is_silent = True
        transport = HttpTransport(f"http://127.0.0.1:{proxy.port}/mcp", kind=kind)
        config = ServerConfig(name="remote", transport=transport, connect_timeout_seconds=0.3)
        failure = await failure_of(config)
    assert failure.reason == "no handshake within 0.3 seconds"


async def test_no_secret_of_a_url_or_a_header_is_in_an_error() -> None:
    url = "http://me:hunter2-and-more@127.0.0.1:9/mcp?token=swordfish-and-more"
    connection = Connection(http_config(url, headers={"X-Key": "opensesame-and-more"}))
    with pytest.raises(ServerUnavailableError) as caught:
        await connection.open()
    shown = f"{caught.value} {caught.value!r} {connection.status()!r} {caught.value.brief}"
    assert not [secret for secret in ("hunter2", "swordfish", "opensesame") if secret in shown]


# --- children --------------------------------------------------------------------------------------------------------


async def test_a_command_that_does_not_exist_says_so() -> None:
    failure = await failure_of(ServerConfig(name="x", transport=StdioTransport("there-is-no-such-command")))
    assert failure == ServerFailure(
        server="x",
        phase="starting",
        reason="command not found: 'there-is-no-such-command'",
        address="there-is-no-such-command",
        hint="install it, or give its full path: it is searched for in the PATH of the server's environment",
        is_permanent=True,
    )


async def test_a_path_that_does_not_exist_is_not_searched_for() -> None:
    failure = await failure_of(ServerConfig(name="x", transport=StdioTransport("/no/such/program")))
    assert failure.hint == "there is no such file: correct its path, or install it"


async def test_a_command_with_its_arguments_in_one_text_is_told_to_split_it() -> None:
    failure = await failure_of(ServerConfig(name="x", transport=StdioTransport(f"{sys.executable} -m bridge")))
    assert failure.hint == "split it: 'command' is only the program, 'args' is the list of its arguments"


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param("while True: sys.stdout.write('y\\n' * 1000)", id="lines"),
        pytest.param(
            "for _ in range(2**9): sys.stdout.write('y' * 2**16)\nsys.stdout.flush()\nsys.stdin.read()", id="one line"
        ),
    ],
)
async def test_a_flood_that_is_no_protocol_is_given_up_early_and_said_to_be_none(flood: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        failure = await failure_of(python_config(f"import sys\n{flood}"))
    assert failure.reason == "this is not an MCP server: its output is not JSON-RPC"
    assert failure.is_permanent


async def test_a_first_message_may_be_long() -> None:
    async with opened(python_config(LONG_LINES, protocol="legacy")) as connection:
        assert connection.server_info is not None
        assert len(connection.server_info.instructions or "") == 2**19


@pytest.mark.parametrize("name", ["flood", "answer"])
async def test_a_line_that_does_not_end_is_not_read_to_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_lines, "MAX_MESSAGE_BYTES", 2**20)
    async with opened(python_config(LONG_LINES, protocol="legacy")) as connection:
        with pytest.raises(OutcomeUnknownError) as caught:
            await connection.call_tool(name, {})
    failure = caught.value.failure
    assert failure.reason == "a line of its output is longer than 1 MiB; it may have run: the outcome is unknown"
    assert failure.hint == "split its results: each message is one line"


async def test_who_says_much_before_the_protocol_is_still_listened_to() -> None:
    banner = "print('loading\\n' * 1000, flush=True)\n"
    config = scripted_config([listed("add")], {})
    assert isinstance(config.transport, StdioTransport)
    code = banner + config.transport.args[-1]
    transport = replace(config.transport, args=(*config.transport.args[:-1], code))
    async with Connection(replace(config, transport=transport)) as connection:
        assert [tool["name"] for tool in (await connection.list_tools()).tools] == ["add"]


async def test_a_file_that_may_not_be_run_says_so(tmp_path: Path) -> None:
    file = tmp_path / "server"
    file.write_text("#!/bin/sh\n")
    failure = await failure_of(ServerConfig(name="x", transport=StdioTransport(str(file))))
    assert (failure.reason, failure.hint) == (f"{str(file)!r} is not executable", "make it executable")


async def test_a_folder_that_does_not_exist_says_so() -> None:
    transport = StdioTransport(sys.executable, cwd="/there/is/no/such/folder")
    failure = await failure_of(ServerConfig(name="x", transport=transport))
    assert failure.reason == "cannot change to its folder '/there/is/no/such/folder': No such file or directory"


async def test_a_child_that_ends_at_once_leaves_its_last_words_and_its_exit_code() -> None:
    failure = await failure_of(python_config("import sys; print('no licence', file=sys.stderr); sys.exit(7)"))
    assert failure.reason == "it ended before the handshake"
    assert failure.last_words == ("no licence",)
    assert (failure.exit_code, failure.hint) == (7, "run the command by hand to see its output")


async def test_a_child_that_runs_no_server_is_named_as_such() -> None:
    failure = await failure_of(python_config("from bridge import tool"))
    assert failure.reason == "it ended before the handshake"
    assert (failure.exit_code, failure.hint) == (0, "it runs no server: serve a file of tools by bridge serve FILE")


async def test_a_child_that_says_something_else_on_its_output_has_that_in_the_error() -> None:
    failure = await failure_of(python_config("print('Welcome to my server!')"))
    assert failure.last_words == ("(on standard output) Welcome to my server!",)


async def test_words_among_the_messages_of_a_child_do_no_harm() -> None:
    code = """
import json, sys
print("Starting...", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print("got", request["method"], flush=True)
    if "id" in request:
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"},
                  "tools": [], "content": []}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
    async with opened(python_config(code, protocol="legacy")) as connection:
        assert (await connection.list_tools()).tools == []
        assert (await connection.call_tool("x", {}))["content"] == []


async def test_a_call_of_a_child_that_has_closed_its_input_ends_at_once() -> None:
    code = """
import json, os, signal, sys
for line in iter(sys.stdin.readline, ""):
    request = json.loads(line)
    if "id" in request:
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"},
                  "tools": []}
        if is_last := request["method"] == "tools/list":
            os.close(0)
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
        if is_last:
            signal.pause()
"""
    async with opened(python_config(code, protocol="legacy")) as connection:
        await connection.list_tools()
        with anyio.fail_after(DEADLINE_SECONDS / 2), pytest.raises(OutcomeUnknownError):
            await connection.call_tool("x", {})


async def test_a_child_that_never_answers_is_given_up_in_time() -> None:
    failure = await failure_of(python_config("import sys; sys.stdin.read()", connect_timeout_seconds=0.5))
    assert failure.reason == "no handshake within 0.5 seconds"


async def test_a_child_that_greets_with_nonsense_says_so() -> None:
    code = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {"hello": 1}}), flush=True)
"""
    failure = await failure_of(python_config(code, protocol="legacy"))
    assert (failure.reason, failure.hint) == ("its handshake is not valid MCP", "is it an MCP server?")


async def test_secrets_of_the_environment_are_in_no_error() -> None:
    code = "import os, sys; sys.exit('bad key ' + os.environ['KEY'])"
    config = python_config(code, env={"KEY": "swordfish-and-more"})
    failure = await failure_of(config)
    assert failure.last_words == ("bad key ***",)


# --- the loop underneath ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("route", ["stdio", "http"])
async def test_connections_work_on_trio_too(route: str, steady: RemoteServer, anyio_backend: str) -> None:
    transport = (
        HttpTransport(steady.url)
        if route == "http"
        else forked("-m", "bridge", "serve", "tests/client/served.py:TOOLS")
    )
    async with opened(ServerConfig(name="x", transport=transport)) as connection:
        assert (await connection.call_tool("add", {"a": 1, "b": 2}))["structuredContent"] == {"result": 3}


async def test_a_message_of_too_many_values_is_not_parsed() -> None:
    code = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "tools/call":
        print('{"jsonrpc": "2.0", "id": 1, "result": {"x": [' + "[]," * 500_001, flush=True)
    elif "id" in request:
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
    async with opened(python_config(code, protocol="legacy")) as connection:
        with pytest.raises(OutcomeUnknownError, match="objects and arrays, of 500,000 at most"):
            await connection.call_tool("x", {})
