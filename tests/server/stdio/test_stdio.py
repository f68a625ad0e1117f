from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult

from tests.server.stdio_process import DEADLINE_SECONDS, ROOT, TOOLS, StdioProcess, call, modern_request, request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams


@pytest.fixture
def server() -> Iterator[StdioProcess]:
    with StdioProcess() as process:
        yield process


# --- both eras -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_official_client_lists_calls_hears_of_progress_and_is_asked(mode: str) -> None:
    async def tell_name(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        if progress == total:
            everything_heard.set()

    everything_heard = anyio.Event()
    parameters = StdioServerParameters(command=sys.executable, args=[TOOLS], cwd=ROOT)
    with open(os.devnull, "w") as log, anyio.fail_after(DEADLINE_SECONDS):  # noqa: ASYNC230, PTH123 - opened once
        async with Client(stdio_client(parameters, errlog=log), mode=mode, elicitation_callback=tell_name) as client:
            tools = (await client.list_tools()).tools
            result = await client.call_tool("add", {"a": 2, "b": 3})
            counted = await client.call_tool("count", {"to": 3}, progress_callback=hear)
            asked = await client.call_tool("ask_for_a_name", {})
            await everything_heard.wait()
    assert "add" in [tool.name for tool in tools]
    assert result.structured_content == {"result": 5}
    assert (counted.content[0].text, heard) == ("counted", [1, 2, 3])  # type: ignore[union-attr]  # text is a Text
    assert asked.content[0].text == "accept Ada"  # type: ignore[union-attr]  # text is a Text


def test_the_first_request_fixes_the_era(server: StdioProcess) -> None:
    server.initialize()
    assert server.answer(request(1, "tools/call", name="add", arguments={"a": 1, "b": 1}))["result"]
    assert server.answer(call(2, "add", a=1, b=1))["error"]["code"] == -32600


def test_a_modern_connection_refuses_the_handshake(server: StdioProcess) -> None:
    assert server.answer(modern_request(1, "server/discover"))["result"]
    assert server.answer(request(2, "initialize", protocolVersion="2025-11-25"))["error"]["code"] == -32022
    assert server.add() == 5


def test_a_notification_before_the_first_request_does_not_fix_the_era(server: StdioProcess) -> None:
    server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert server.add() == 5


@pytest.mark.parametrize("is_modern", [False, True])
def test_a_cancelled_call_ends_and_is_not_answered(server: StdioProcess, tmp_path: Path, *, is_modern: bool) -> None:
    marker = str(tmp_path / "marker")
    if not is_modern:
        server.initialize()
    make = modern_request if is_modern else request
    meta = {"progressToken": 1}
    server.send(make(1, "tools/call", name="wait_forever", arguments={"marker": marker}, _meta=meta))
    assert server.receive()["method"] == "notifications/progress"
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    server.send(make(2, "tools/call", name="add", arguments={"a": 2, "b": 3}))
    assert server.receive()["id"] == 2
    server.close_input()
    assert server.receive_line() == b""
    assert (tmp_path / "marker").read_text() == "cleaned up"


def test_a_tool_that_only_reports_can_be_cancelled(server: StdioProcess) -> None:
    server.start("report_forever")
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "report_forever"}})
    assert server.add() == 5


# --- the streams -----------------------------------------------------------------------------------------------------


def test_what_is_printed_anywhere_goes_to_standard_error(server: StdioProcess) -> None:
    answer = server.answer(call(1, "print_everywhere"))
    assert answer["result"]["content"][0]["text"] == "done"
    assert server.log().splitlines() == [
        "printed while the tools are imported",
        "printed by Python",
        "written to the descriptor",
        "echoed by a child",
    ]


def test_standard_input_is_at_its_end_for_everybody_else(server: StdioProcess) -> None:
    answer = server.answer(call(1, "read_everywhere"))
    assert answer["result"]["structuredContent"]["result"] == ["", "", ""]


def test_a_forked_child_neither_writes_to_the_client_nor_keeps_it_waiting(server: StdioProcess) -> None:
    answer = server.answer(call(1, "fork_a_child"))
    child = answer["result"]["structuredContent"]["result"]
    try:
        server.close_input()
        assert server.receive_line() == b""
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_line_is_compact_json_in_utf8(server: StdioProcess) -> None:
    server.send(call(1, "echo", value="naïve ☃\u2028"))
    line = server.receive_line()
    assert "naïve ☃\u2028".encode() in line
    assert line == json.dumps(json.loads(line), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def test_answers_are_whole_lines_however_slowly_they_are_read(server: StdioProcess) -> None:
    lengths = {number: 50_000 + number for number in range(200)}
    for number, length in lengths.items():
        server.send(call(number, "text_of_length", length=length))
    # Nothing has been read yet, and more is waiting than a pipe holds: the loop must not be blocked.
    answers = [server.receive() for _ in lengths]
    assert {a["id"]: len(a["result"]["content"][0]["text"]) for a in answers} == lengths


def test_a_reader_that_is_slow_holds_up_no_other_call(server: StdioProcess, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    os.mkfifo(marker)
    # Opened for reading and writing, so that neither side waits for the other to open it.
    fifo = os.open(marker, os.O_RDWR)
    try:
        server.start("wait_forever", marker=str(marker))
        server.send(call("big", "text_of_length", length=1_000_000))
        server.wait_for_output()
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "wait_forever"}})
        # The cancelled tool writes this while its server waits until a megabyte has been read.
        server.wait_for_output(fifo)
        assert os.read(fifo, 100) == b"cleaned up"
    finally:
        os.close(fifo)
    assert server.receive()["id"] == "big"


def test_input_and_output_may_be_one_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, StdioProcess(stdin=theirs.fileno(), stdout=theirs.fileno()) as server:
        theirs.close()
        server.input = server.output = ours.fileno()
        assert server.add() == 5
        ours.shutdown(socket.SHUT_WR)
        assert server.wait() == 0


def test_requests_from_a_file_are_answered_into_a_file(tmp_path: Path) -> None:
    source, target = tmp_path / "requests", tmp_path / "answers"
    requests = [call(number, "add", a=number, b=1) for number in range(100)]
    source.write_text("\n".join(map(json.dumps, requests)), encoding="utf-8")
    with (
        source.open() as stdin,
        target.open("w") as stdout,
        StdioProcess(stdin=stdin.fileno(), stdout=stdout.fileno()) as server,
    ):
        assert server.wait() == 0
    answers = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert {a["id"]: a["result"]["structuredContent"]["result"] for a in answers} == {n: n + 1 for n in range(100)}


def test_a_pipe_that_others_write_to_is_given_back_as_it_was() -> None:
    ours, theirs = os.pipe()
    with open(ours, "rb") as reader, open(theirs, "wb") as writer, StdioProcess(stdout=writer.fileno()) as server:  # noqa: PTH123 - descriptors
        server.output = reader.fileno()
        assert server.add() == 5
        assert not os.get_blocking(writer.fileno())
        server.close_input()
        assert server.wait() == 0
        assert os.get_blocking(writer.fileno())


# --- the end ---------------------------------------------------------------------------------------------------------


def test_what_was_piped_in_is_answered_before_the_end() -> None:
    lines = "\n".join(json.dumps(call(number, "print_everywhere")) for number in range(10))
    done = subprocess.run(
        [sys.executable, TOOLS], input=lines, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {a["id"]: a["result"]["content"][0]["text"] for a in answers} == dict.fromkeys(range(10), "done")


@pytest.mark.parametrize("tool", ["wait_forever_in_a_thread", "block_the_loop", "refuse_to_be_cancelled"])
def test_a_tool_that_never_returns_does_not_outlive_the_input(tool: str) -> None:
    with StdioProcess("impatient") as server:
        server.start(tool)
        server.close_input()
        assert server.wait() == 0


@pytest.mark.parametrize(
    "tool", ["wait_forever_in_a_thread", "block_the_loop", "compute_in_native_code", "refuse_to_be_cancelled"]
)
def test_a_tool_that_never_returns_does_not_outlive_a_signal(server: StdioProcess, tool: str) -> None:
    server.start(tool)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_cancels_what_runs_and_lets_it_clean_up(
    server: StdioProcess, tmp_path: Path, number: signal.Signals
) -> None:
    server.start("wait_forever", marker=str(tmp_path / "marker"))
    server.process.send_signal(number)
    assert server.wait() == 0
    assert (tmp_path / "marker").read_text() == "cleaned up"
    assert "Traceback" not in server.log()


def test_an_input_that_closes_cancels_what_runs_and_lets_it_clean_up(server: StdioProcess, tmp_path: Path) -> None:
    server.start("wait_forever", marker=str(tmp_path / "marker"))
    server.close_input()
    assert server.wait() == 0
    assert (tmp_path / "marker").read_text() == "cleaned up"


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["wait_plainly", "wait_plainly_in_a_thread"])
@pytest.mark.parametrize("is_modern", [False, True])
def test_a_call_that_runs_when_the_input_closes_is_answered_that_the_connection_is_closed(
    tool: str, *, is_modern: bool
) -> None:
    with StdioProcess() as server:
        if not is_modern:
            server.initialize()
        calls = [(modern_request if is_modern else request)(key, "tools/call", name=tool, arguments={}) for key in "ab"]
        server.send(*calls, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "b"}})
        server.close_input()
        closed = {"code": -32000, "message": "Connection closed"}
        assert server.receive() == {"jsonrpc": "2.0", "id": "a", "error": closed}
        assert server.receive_line() == b""
        assert server.wait() == 0


def test_of_several_calls_of_one_id_the_first_is_answered_when_the_input_closes_and_others_are_refused(
    server: StdioProcess,
) -> None:
    server.send(*(call(7, "count", to=to) for to in (30, 1, 60)))
    server.close_input()
    lines = iter(server.receive_line, b"")
    answers = [message for line in lines if (message := json.loads(line)).get("id") == 7]
    assert [each.get("error", {}).get("code") for each in answers] == [-32600, -32600, None]
    assert server.wait() == 0


def test_a_signal_that_a_tool_handles_ends_nothing(server: StdioProcess) -> None:
    for number in range(20):
        answer = server.answer(modern_request(number, "tools/call", name="signal_itself", arguments={}))
        assert answer["result"]["structuredContent"] == {"result": 1}
    server.start("compute_in_native_code")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def test_a_signal_ends_a_server_that_nobody_has_asked_anything(server: StdioProcess) -> None:
    server.answer(b"not json")  # it serves
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def test_an_input_that_closes_at_once_ends_it(server: StdioProcess) -> None:
    server.close_input()
    assert server.wait() == 0
    assert server.log() == "printed while the tools are imported\n"


def test_an_output_that_nobody_reads_ends_it_quietly(server: StdioProcess) -> None:
    assert server.add() == 5
    server.close_output()
    server.send(call(1, "add", a=1, b=1))
    assert server.wait() == 0
    assert server.log() == "printed while the tools are imported\n"


def test_a_full_output_does_not_keep_it_from_ending(server: StdioProcess) -> None:
    server.send(call(1, "text_of_length", length=30_000_000))
    assert os.read(server.output, 1) == b"{"
    server.close_input()
    assert server.wait() == 0


@pytest.mark.parametrize("setting", ["pidfd", "no-pidfd"])
def test_the_death_of_the_parent_ends_it_though_the_pipe_stays_open(setting: str) -> None:
    launcher = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    with StdioProcess(command=["-c", launcher, TOOLS, setting]) as parent:
        assert parent.add() == 5
        parent.process.kill()
        # The write end of its input is still open here; its output ends only with the process.
        assert parent.receive_line() == b""


def test_the_death_of_the_parent_ends_a_server_whose_loop_is_blocked() -> None:
    launcher = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    with StdioProcess(command=["-c", launcher, TOOLS]) as parent:
        parent.start("block_the_loop")
        parent.process.kill()
        assert parent.receive_line() == b""


# --- the start -------------------------------------------------------------------------------------------------------


def test_the_sdk_is_not_imported() -> None:
    program = f"""
import sys, runpy, atexit
atexit.register(lambda: print(*(name in sys.modules for name in ("mcp", "mcp_types", "starlette", "uvicorn"))))
runpy.run_path({TOOLS!r}, run_name="__main__")
"""
    with StdioProcess(command=["-c", program]) as server:
        assert server.answer(b"not json")["error"]["code"] == -32700
        server.initialize(elicitation={})
        server.send(request(1, "tools/call", name="ask_for_a_name", arguments={}, _meta={"progressToken": 1}))
        asked = server.receive()
        server.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})
        assert server.receive()["result"]["content"][0]["text"] == "decline None"
        server.close_input()
        assert server.wait() == 0
        assert server.log().splitlines()[-1] == "False False False False"


def test_a_client_is_the_same_for_all_of_its_calls(server: StdioProcess) -> None:
    server.initialize()
    for number, meta in enumerate([{}, {"com.example/unusual": 1}, {}]):
        answer = server.answer(request(number, "tools/call", name="count_clients", arguments={}, _meta=meta))
        assert answer["result"]["structuredContent"] == {"result": 1}
