from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourceUpdated
from mcp_types import ElicitResult

from tests import forks
from tests.cli.draining import SERVED, heard

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from tests.cli.conftest import Process, Run, Start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are handed down, and /proc is read")

DEADLINE_SECONDS = 60
TOOLS = """
    import os
    from bridge import InvocationContext, ResourceBox, resource, tool


    @tool
    def pid() -> int:
        '''Tell which process this is.'''
        return os.getpid()


    @tool
    async def greet(context: InvocationContext) -> str:
        '''Ask for a name, and greet.'''
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("Who?", form, key="name")
        return f"Hello {answer.content['name']}, from {os.getpid()}"


    @resource("notes://a")
    def note() -> str:
        '''A note.'''
        return ""


    notes = ResourceBox(note)


    @tool
    def change() -> int:
        '''Announce a change of the note.'''
        notes.updated("notes://a")
        return os.getpid()
"""
HOLDING = str(Path(SERVED).resolve())
SERVE = ("serve", "tools.py", "--transport", "http", "--port", "0", "--workers", "2")


@pytest.fixture(autouse=True)
def tools(directory: Path) -> None:
    (directory / "tools.py").write_text(dedent(TOOLS), encoding="utf-8")


def children(process: Process) -> list[int]:
    number = process.popen.pid
    return [int(child) for child in Path(f"/proc/{number}/task/{number}/children").read_text().split()]


def is_running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def answered(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


def text_of(result: CallToolResult) -> str:
    return result.content[0].text  # type: ignore[union-attr]  # it is a text


async def until_both_answered(url: str, protocol: Any) -> set[int]:
    """Call over new connections until two processes have answered."""
    seen: set[int] = set()
    with anyio.fail_after(DEADLINE_SECONDS):
        while len(seen) < 2:
            async with Client(url, mode=protocol) as client:
                seen.add(int(text_of(await client.call_tool("pid", {}))))
    return seen


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["2026-07-28", pytest.param("legacy", marks=pytest.mark.slow)])
async def test_all_workers_answer_at_one_url_that_is_said_once(start: Start, protocol: str) -> None:
    with start(*SERVE) as process:
        url = process.url()
        assert await until_both_answered(url, protocol) == set(children(process))
        assert process.end(signal.SIGTERM) == 0
        assert [line for line in process.seen if "serving" in line][1:] == []


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_a_client_carries_between_rounds_is_opened_by_every_worker(start: Start) -> None:
    with start(*SERVE) as process, anyio.fail_after(DEADLINE_SECONDS):
        url = process.url()
        seen: set[str] = set()
        while len(seen) < 2:
            async with Client(url, mode="2026-07-28", elicitation_callback=answered) as client:
                greeting, _, number = text_of(await client.call_tool("greet", {})).rpartition(" ")
            assert greeting == "Hello Ada, from"
            seen.add(number)


@pytest.mark.anyio
async def test_an_update_that_one_worker_announces_is_sent_to_the_clients_of_all(start: Start) -> None:
    with start(*SERVE) as process, anyio.fail_after(DEADLINE_SECONDS):
        url = process.url()
        seen: set[str] = set()
        async with (
            Client(url, mode="2026-07-28") as watching,
            watching.listen(resource_subscriptions=["notes://a"]) as updates,
        ):
            while len(seen) < 2:
                async with Client(url, mode="2026-07-28") as client:
                    seen.add(text_of(await client.call_tool("change", {})))
                assert await anext(updates) == ResourceUpdated("notes://a")


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_handshake_era_has_no_sessions_and_is_told_so(start: Start) -> None:
    with start(*SERVE) as process:
        url = process.url()
        said = process.line_with("handshake era")
        assert said == (
            "2 workers: SSE and tasks are off, and clients of the handshake era are served without sessions: "
            "tools cannot ask them, and changes are not announced to them (--redis-url enables sessions and tasks)"
        )
        async with Client(url, mode="legacy", elicitation_callback=answered) as client:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed is False
            asked = await client.call_tool("greet", {})
        assert asked.is_error
        assert (
            text_of(asked) == "this server has no sessions with clients of this protocol version, and cannot ask them"
        )
        origin = url.removesuffix("/mcp")
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{origin}/sse")).status_code == 404
            refused = await http.get(url, headers={"accept": "text/event-stream"})
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_a_worker_that_dies_is_started_again_and_the_others_go_on(start: Start) -> None:
    with start(*SERVE) as process:
        origin = process.url().removesuffix("/mcp")
        killed, other = children(process)
        os.kill(killed, signal.SIGKILL)
        assert process.line_with("ended").endswith(" ended (SIGKILL); restarting it")
        assert httpx.get(f"{origin}/readyz").status_code == 200
        while len(children(process)) < 2:
            assert httpx.get(f"{origin}/readyz").status_code == 200
        assert other in children(process)
        assert killed not in children(process)


@pytest.mark.slow
def test_while_a_worker_starts_again_the_others_alone_say_at_the_admin_port_how_the_server_is(
    start: Start, directory: Path
) -> None:
    (directory / "child.py").write_text(
        "import os\nfrom bridge import tool\nif os.path.exists('gate'):\n    open('gate').read()\n"
        "@tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"
    )
    child = forks.entry("-m", "bridge", "serve", "child.py", cwd=str(directory))
    configuration = {"mcpServers": {"sums": {**child, "required": True}}}
    (directory / "mcp.json").write_text(json.dumps(configuration), encoding="utf-8")
    gate = directory / "gate"
    with start("serve", "mcp.json", *SERVE[2:], "--admin-port", "0") as process:
        admin = process.line_with("operations at ").rpartition(" ")[2]
        process.url()
        os.mkfifo(gate)
        os.kill(children(process)[0], signal.SIGKILL)
        with gate.open("w"):  # once the new worker's own child waits for the lock
            assert [httpx.get(f"{admin}/readyz").json() for _ in range(30)] == [{"ready": True, "missing": []}] * 30
        assert process.end(signal.SIGTERM) == 0


def test_a_target_that_cannot_be_served_is_said_once_with_its_exit_code(run: Run, directory: Path) -> None:
    (directory / "broken.py").write_text("1 / 0\n")
    broken = run("serve", "broken.py", *SERVE[2:])
    assert broken.returncode == 1
    assert broken.stderr.count("Traceback") == 1
    assert broken.stderr.endswith("ZeroDivisionError: division by zero\n")
    missing = run("serve", "nowhere.py", *SERVE[2:])
    assert (missing.returncode, missing.stderr.count("bridge: ")) == (2, 1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--transport", "sse"), "--transport sse needs a single process"),
    ],
)
def test_what_does_not_go_with_several_workers_is_said(run: Run, more: tuple[str, ...], said: str) -> None:
    done = run(*SERVE, *more)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.anyio
async def test_calls_that_run_in_any_worker_end_before_all_end(start: Start) -> None:
    results: list[str] = []

    async def call(url: str, port: int) -> None:
        async with Client(url, mode="2026-07-28") as client:
            await client.list_tools()  # otherwise each call would request the list after its result
            results.append(text_of(await client.call_tool("hold", {"port": port})))

    with anyio.fail_after(DEADLINE_SECONDS), start("serve", HOLDING, *SERVE[2:]) as process:
        url = process.url()
        async with heard() as hearing, anyio.create_task_group() as calls:
            for _ in range(4):
                calls.start_soon(call, url, hearing.port)
            held = [await hearing.running() for _ in range(4)]
            process.popen.send_signal(signal.SIGTERM)
            while True:  # until nothing listens any more
                try:
                    async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])):
                        pass
                except OSError:
                    break
            for stream in held:
                await stream.send(b"done")
        assert results == ["done"] * 4
        assert await anyio.to_thread.run_sync(process.popen.wait) == 0


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_second_signal_ends_all_at_once(start: Start) -> None:
    async def call(url: str, port: int) -> None:
        try:
            async with Client(url, mode="2026-07-28") as client:
                await client.call_tool("hold", {"port": port})
        except* (httpx2.RemoteProtocolError, MCPError):  # unchanged
            pass

    with anyio.fail_after(DEADLINE_SECONDS), start("serve", HOLDING, *SERVE[2:]) as process:
        url = process.url()
        workers = children(process)
        async with heard() as hearing, anyio.create_task_group() as calls:
            calls.start_soon(call, url, hearing.port)
            await hearing.running()
            process.popen.send_signal(signal.SIGTERM)
            await anyio.to_thread.run_sync(process.line_with, "draining")
            process.popen.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(process.popen.wait) == 128 + signal.SIGTERM
        assert not any(is_running(worker) for worker in workers)


@pytest.mark.slow
def test_workers_end_with_a_parent_that_was_killed(start: Start) -> None:
    with start(*SERVE) as process:
        process.url()
        ends = [os.pidfd_open(worker) for worker in children(process)]
        process.end(signal.SIGKILL)
        for end in ends:
            assert select.select([end], [], [], DEADLINE_SECONDS)[0]
            os.close(end)


@pytest.mark.slow
def test_no_secret_stands_on_the_command_line_of_a_worker(start: Start) -> None:
    secrets = ("--api-key", "k" * 32, "--state-keys", "s" * 32)
    with start(*SERVE, *secrets) as process:
        process.url()
        for child in children(process):
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            assert b"--workers" in words
            assert not {b"k" * 32, b"s" * 32, b"--api-key", b"--state-keys"} & set(words)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("admin", [(), ("--admin-port", "0")])
async def test_metrics_of_all_workers_stand_on_one_page_whoever_answers(start: Start, admin: tuple[str, ...]) -> None:
    with start(*SERVE, "--metrics", *admin) as process:
        page = process.line_with("operations at ").rpartition(" ")[2] if admin else None
        url = process.url()
        await until_both_answered(url, "2026-07-28")
        async with httpx.AsyncClient() as http:
            pages = [(await http.get(f"{page or url.removesuffix('/mcp')}/metrics")).text for _ in range(6)]
    counts = [
        re.findall(
            r'^mcp_server_operation_duration_seconds_count\{worker="(\d)".*"tools/call".* (\d+)', text, re.MULTILINE
        )
        for text in pages
    ]
    assert {worker for worker, _ in counts[0]} == {"1", "2"}
    assert counts == [counts[0]] * 6
    assert pages[0].count("# TYPE mcp_server_operation_duration_seconds histogram") == 1


@pytest.mark.slow
@pytest.mark.anyio
async def test_workers_share_an_audit_log(start: Start, directory: Path) -> None:
    with start(*SERVE, "--audit-log", "audit.jsonl") as process:
        await until_both_answered(process.url(), "2026-07-28")
        assert process.end(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in (directory / "audit.jsonl").read_text().splitlines()]
    assert len(lines) >= 2
    assert {line["tool"] for line in lines} == {"pid"}


def test_the_number_of_processes_that_all_workers_start_is_said(start: Start, directory: Path) -> None:
    servers = {name: forks.entry("-m", "bridge", "serve", "tools.py") for name in ("a", "b")}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    with start("serve", "mcp.json", "--transport", "http", "--port", "0", "--workers", "2") as process:
        line = process.line_with("over stdio for itself")
        assert "2 workers: each starts the 2 servers over stdio for itself, so up to 4 processes run" in line
        assert process.end(signal.SIGTERM) == 0


ASLEEP = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "connectTimeoutSeconds": 3600}
HUNG = ("serve", "mcp.json", "--transport", "http", "--port", "0", "--workers", "2", "--start-wait", "3600")


def test_the_urls_of_profiles_are_said_although_a_server_hangs(start: Start, directory: Path) -> None:
    servers = {"tools": forks.entry("-m", "bridge", "serve", "tools.py"), "asleep": ASLEEP}
    configuration = {"mcpServers": servers, "profiles": {"team": {}, "default": {"servers": ["tools"]}}}
    (directory / "mcp.json").write_text(json.dumps(configuration))
    with start(*HUNG) as process:
        assert process.line_with("serving mcp/team at ").endswith("/mcp/team")
        assert process.line_with("serving mcp/default at ").endswith("/mcp")
        assert process.end(signal.SIGTERM) == 0
