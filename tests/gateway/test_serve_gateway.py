"""``bridge serve`` as a gateway: real processes from the caller to the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, TextContent

from tests import forks
from tests.cli.conftest import Process
from tests.client.conftest import SERVED, reports
from tests.gateway.conftest import write_config
from tests.interop.counterpart import MODERN
from tests.processes import ROOT, serving
from tests.server.auth.guarded import talking
from tests.server.http_server import call as tool_call
from tests.server.http_server import initialize
from tests.server.stdio_process import StdioProcess, request

if TYPE_CHECKING:
    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

    from tests.client.reports import Reports

__all__ = ["reports"]

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 40
SERVE = ("-m", "bridge", "serve")
HTTP = ("--transport", "http", "--port", "0")

HEADERS = """
    from bridge import InvocationContext, tool

    @tool
    async def headers(context: InvocationContext) -> dict[str, str]:
        '''Tell the headers of the call.'''
        return dict(context.headers)
"""


ASKS = """
    import socket
    from bridge import InvocationContext, tool

    def say(port: int, word: str) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(word.encode())

    @tool("Ask, and say what is done before and after it.")
    async def greet(port: int, context: InvocationContext) -> str:
        say(port, "began")
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("Who are you?", form, key="who")
        say(port, "ended")
        return f"Hello {answer.content['name']}"
"""


def served_entry(**settings: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [*SERVE, SERVED], "cwd": str(ROOT), **settings}


async def call(client: Client, name: str, /, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    return block.text


async def names(client: Client) -> set[str]:
    return {each.name for each in (await client.list_tools(cache_mode="refresh")).tools}


async def test_files_configurations_and_urls_are_served_together(tmp_path: Path) -> None:
    (tmp_path / "local.py").write_text(dedent(HEADERS))
    first = write_config(tmp_path / "work.json", calc=served_entry(include=["add"]))
    second = write_config(tmp_path / "home.json", calc=served_entry(include=["add", "pid"]))
    with serving(*SERVE, SERVED, *HTTP) as remote:
        url = f"{remote.origin}/mcp"
        targets = (first, f"{second}#calc", url, str(tmp_path / "local.py"))
        with anyio.fail_after(DEADLINE_SECONDS), serving(*SERVE, *targets, *HTTP) as gateway:
            async with Client(f"{gateway.origin}/mcp") as client:
                listed = await names(client)
                assert {"headers", "calc_add", "home-calc_add", "127.0.0.1_add"} <= listed
                for name in ("calc_add", "home-calc_add", "127.0.0.1_add"):
                    assert await call(client, name, a=1, b=2) == "3"
                assert await call(client, "127.0.0.1_pid") == str(remote.process.pid)


async def test_a_key_for_the_tools_of_one_server_never_reaches_another(tmp_path: Path) -> None:
    send = "from bridge import tool\n\n@tool\ndef {}() -> str:\n    'Send.'\n    return {!r}\n"
    for server, named in (("good", "send"), ("evil", "good_send"), ("worse", "send")):
        (tmp_path / f"{server}.py").write_text(send.format(named, server))
    entries = {
        name: {"command": sys.executable, "args": [*SERVE, str(tmp_path / f"{name}.py")], "cwd": str(ROOT)}
        for name in ("evil", "worse", "good")
    }
    config = write_config(tmp_path / "mcp.json", **entries)
    keys = tmp_path / "keys"
    keys.write_text("someone secret-of-32-characters-or-more-000 tools=good_*\n")
    own = {"Authorization": "Bearer secret-of-32-characters-or-more-000"}
    for mode in ("always", "on_collision"):
        options = (*HTTP, "--api-keys", str(keys), "--prefix", mode)
        with serving(*SERVE, config, *options) as gateway, anyio.fail_after(DEADLINE_SECONDS):
            async with (
                httpx2.AsyncClient(headers=own) as http,
                Client(streamable_http_client(f"{gateway.origin}/mcp", http_client=http)) as client,
            ):
                assert await names(client) == {"good_send"}
                assert await call(client, "good_send") == "good"


async def test_a_command_is_served_again_over_stdio() -> None:
    arguments = [*SERVE, "--name", "again", "--", sys.executable, *SERVE, SERVED]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Client(StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)) as client:
            assert client.server_info is not None
            assert client.server_info.name == "again"
            assert await call(client, "add", a=1, b=2) == "3"


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_url_with_prompts_alone_is_served_to_the_official_client(tmp_path: Path, mode: str) -> None:
    (tmp_path / "upstream.py").write_text(
        "from bridge import prompt\n\n@prompt\ndef hi() -> str:\n    return 'hello'\n"
    )
    with (
        serving(*SERVE, str(tmp_path / "upstream.py"), *HTTP) as upstream,
        serving(*SERVE, f"{upstream.origin}/mcp", *HTTP) as gateway,
        anyio.fail_after(DEADLINE_SECONDS),
    ):
        async with Client(f"{gateway.origin}/mcp", mode=mode) as client:
            assert [each.name for each in (await client.list_prompts()).prompts] == ["hi"]
            (message,) = (await client.get_prompt("hi")).messages
            assert isinstance(message.content, TextContent)
            assert message.content.text == "hello"
            assert (await client.list_tools()).tools == []
            assert (await client.list_resources()).resources == []


async def test_a_callers_headers_reach_a_server_only_where_they_are_allowed_and_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "upstream.py").write_text(dedent(HEADERS))
    seen: dict[str, dict[str, str]] = {}

    async def ask(origin: str, tenant: str) -> None:
        own = {"X-Tenant": tenant, "X-Other": tenant, "Authorization": f"Bearer secret-of-{tenant}"}
        async with (
            httpx2.AsyncClient(headers=own) as http,
            Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as client,
        ):
            for _ in range(5):
                seen[tenant] = json.loads(await call(client, "headers"))
                assert seen[tenant]["x-tenant"] == tenant

    with serving(*SERVE, str(tmp_path / "upstream.py"), *HTTP) as upstream:
        options = ("--forward-headers", "x-tenant", *HTTP)
        with serving(*SERVE, f"{upstream.origin}/mcp", *options) as gateway, anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for tenant in ("acme", "globex", "initech"):
                    tasks.start_soon(ask, gateway.origin, tenant)
    assert not [headers for headers in seen.values() if "x-other" in headers or "authorization" in headers]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_what_asks_in_the_middle_has_run_once_by_its_servers_own_journal(
    reports: Reports, tmp_path: Path, transport: str
) -> None:
    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    (tmp_path / "asks.py").write_text(dedent(ASKS))
    entry: dict[str, Any] = {"command": sys.executable, "args": [*SERVE, str(tmp_path / "asks.py")]}
    with ExitStack() as stack:
        if transport == "http":
            upstream = stack.enter_context(serving(*SERVE, str(tmp_path / "asks.py"), *HTTP))
            entry = {"url": f"{upstream.origin}/mcp"}
        config = write_config(tmp_path / "mcp.json", old={**entry, "protocol": "legacy"})
        gateway = stack.enter_context(serving(*SERVE, config, *HTTP))
        with anyio.fail_after(DEADLINE_SECONDS):
            async with Client(f"{gateway.origin}/mcp", mode=MODERN, elicitation_callback=elicit) as client:
                assert await call(client, "greet", port=reports.port) == "Hello Ada"
                await reports.wait_for("ended")
    assert reports.words == ["began", "ended"]


def test_a_credential_cannot_be_allowed() -> None:
    done = subprocess.run(
        [sys.executable, *SERVE, "http://127.0.0.1:9/mcp", "--forward-headers", "x-a,Authorization"],
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("bridge: the header 'Authorization' carries credentials")


async def test_a_configuration_is_read_again_and_only_what_changed_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    config = write_config(path, kept=served_entry(prefix="kept_"), gone=served_entry(prefix="gone_"))
    with serving(*SERVE, config, "--reload", *HTTP) as gateway, anyio.fail_after(DEADLINE_SECONDS):
        async with Client(f"{gateway.origin}/mcp") as client:
            before = await call(client, "kept_pid")
            async with client.listen(tools_list_changed=True) as changes:
                path.write_text("{ this is no configuration")
                write_config(path, kept=served_entry(prefix="kept_"), new=served_entry(prefix="new_"))
                while not {"kept_pid", "new_pid"} <= (listed := await names(client)) or "gone_pid" in listed:
                    await anext(changes)
            assert await call(client, "kept_pid") == before
            assert await call(client, "new_add", a=1, b=1) == "2"


async def test_a_gateway_says_which_servers_are_missing_at_its_start(tmp_path: Path) -> None:
    asleep = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    config = write_config(tmp_path / "mcp.json", calc=served_entry(), asleep=asleep)
    options = ("--start-wait", "8", "--instructions", "Count.")
    with serving(*SERVE, config, *options, *HTTP) as gateway, anyio.fail_after(DEADLINE_SECONDS):
        async with Client(f"{gateway.origin}/mcp") as client:
            assert "calc_add" in await names(client)
            missing = "Tools of these servers are missing until they are available: 'asleep'."
            assert client.instructions == f"Count.\n\n{missing}"


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse", "stdio"])
def test_a_server_that_hangs_at_the_start_delays_no_session_and_no_call_of_another(kind: str, tmp_path: Path) -> None:
    asleep = {
        "command": sys.executable,
        "args": ["-c", "import sys; sys.stdin.read()"],
        "connectTimeoutSeconds": 3600,
    }
    config = write_config(tmp_path / "mcp.json", calc={**served_entry(), "required": True}, asleep=asleep)
    options, message = ("--start-wait", "3600"), tool_call("calc_add", {"a": 1, "b": 2}) | {"id": 7}
    if kind == "stdio":
        with StdioProcess(command=[*SERVE, config, *options]) as peer:
            assert "'asleep'" in peer.answer(initialize())["result"]["instructions"]
            answer = peer.answer(message)
    else:
        with forks.popen([*SERVE, config, *options, *HTTP], cwd=ROOT, env=os.environ) as popen:
            process = Process(popen)
            try:
                with talking(kind, process.url().removesuffix("/mcp"), "none") as client:
                    answer = client.ask(message)
            finally:
                assert process.end(signal.SIGTERM) == 0
    assert answer["result"]["content"][0]["text"] == "3"


def test_a_profile_over_stdio_starts_its_servers_alone_and_keeps_their_names(tmp_path: Path) -> None:
    hung = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "required": True}
    config = Path(write_config(tmp_path / "mcp.json", calc=served_entry(include=["add"]), hung=hung))
    profiles = {"sums": {"servers": ["calc"], "rename": {"calc_add": "plus"}}, "calc": {"servers": ["calc"]}}
    config.write_text(json.dumps({**json.loads(config.read_text()), "profiles": profiles}))
    for profile, name in (("sums", "plus"), ("calc", "calc_add")):
        with StdioProcess(command=[*SERVE, str(config), "--profile", profile]) as peer:
            peer.answer(initialize())
            assert [each["name"] for each in peer.answer(request(2, "tools/list"))["result"]["tools"]] == [name]


async def test_a_gateway_that_is_asked_to_end_ends_its_servers_with_all_that_they_started(reports: Reports) -> None:
    arguments = [sys.executable, *SERVE, "--", sys.executable, *SERVE, SERVED]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with await anyio.open_process(arguments, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            await speak(process, reports.port)
            process.send_signal(signal.SIGTERM)
            await reports.wait_for("grandchild ended")
            assert await process.wait() == 0


async def test_a_gateway_whose_input_closes_ends_its_servers_with_all_that_they_started(reports: Reports) -> None:
    arguments = [sys.executable, *SERVE, "--", sys.executable, *SERVE, SERVED]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with await anyio.open_process(arguments, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            await speak(process, reports.port)
            assert process.stdin is not None
            await process.stdin.aclose()
            await reports.wait_for("grandchild ended")
            assert await process.wait() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_over_http_a_signal_ends_the_servers_too(reports: Reports, number: int, code: int) -> None:
    with serving(*SERVE, *HTTP, "--", sys.executable, *SERVE, SERVED) as gateway, anyio.fail_after(DEADLINE_SECONDS):
        async with Client(f"{gateway.origin}/mcp") as client:
            await call(client, "start_a_child", port=reports.port)
        os.kill(gateway.process.pid, number)
        await reports.wait_for("grandchild ended")
        assert await anyio.to_thread.run_sync(gateway.process.wait) == code


async def speak(process: anyio.abc.Process, port: int) -> None:
    """Open a session, and let the server behind start a process that ignores every signal but SIGKILL."""
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    await process.stdin.send(line({"id": 1, "method": "initialize", "params": hello}))
    await process.stdin.send(line({"method": "notifications/initialized"}))
    start = {"name": "start_a_child", "arguments": {"port": port}}
    await process.stdin.send(line({"id": 2, "method": "tools/call", "params": start}))
    said = b""
    while b'"id":2' not in said:
        said += await process.stdout.receive()


def line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


@pytest.mark.parametrize("transport", [(), HTTP])
def test_without_a_required_server_nothing_is_served(tmp_path: Path, transport: tuple[str, ...]) -> None:
    config = write_config(tmp_path / "mcp.json", dead={"url": "http://127.0.0.1:9/mcp", "required": True})
    done = subprocess.run(
        [sys.executable, *SERVE, config, *transport],
        stdin=subprocess.PIPE,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "bridge: server 'dead', connecting: connection refused "
        "(at: http://127.0.0.1:9/mcp; hint: is the server running, and on that port?)"
    )
    assert "Traceback" not in done.stderr


SLOW = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"started")
connection.close()
last = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
last.sendall(b"ended")  # the word is heard when the connection ends
sys.stdin.read()
"""


@pytest.mark.parametrize(("transport", "number", "code"), [((), signal.SIGTERM, 0), (HTTP, signal.SIGINT, 130)])
async def test_a_gateway_that_waits_for_its_servers_to_start_can_be_ended(
    reports: Reports, transport: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    child = [sys.executable, "-c", SLOW, str(reports.port)]
    arguments = [sys.executable, *SERVE, *transport, "--", *child]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with await anyio.open_process(arguments, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            await reports.wait_for("started")
            process.send_signal(number)
            await reports.wait_for("ended")
            assert await process.wait() == code
