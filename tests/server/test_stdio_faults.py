from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.stdio_process import StdioProcess, call, modern_request, request

if TYPE_CHECKING:
    from collections.abc import Iterator


def _short(value: object) -> str:
    return repr(value)[:24]


@pytest.fixture(scope="module")
def serving() -> Iterator[StdioProcess]:
    """One server for all faults, which still serves after each of them."""
    with StdioProcess() as process:
        yield process


@pytest.fixture
def server(serving: StdioProcess) -> Iterator[StdioProcess]:
    yield serving
    assert serving.add() == 5
    assert serving.complaints() == []


@pytest.mark.parametrize(
    "text",
    [
        b"not json",
        b"{",
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping"',
        b"'single quotes'",
        b"\xff\xfe\xfd",
        b'{"jsonrpc": "2.0", "id": 1, "method": "\xc3\x28"}',
        bytes(byte for byte in range(256) if byte != ord("\n")),
        b"\x00",
        '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'.encode("utf-16-le"),
        b"[" * 20_000,
        *([b"[" * 20_000 + b"]" * 20_000] if sys.version_info < (3, 14) else []),  # which parses 65,000 levels
        b'{"a":' * 20_000,
        b'{"jsonrpc": "2.0", "id": ' + b"1" * 5000 + b', "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": ' + b"1" * 5000 + b"}}",
    ],
    ids=_short,
)
def test_text_that_is_no_json_is_a_parse_error(server: StdioProcess, text: bytes) -> None:
    server.send(text)
    answer = server.receive()
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [request(1, "ping"), request(2, "ping")],
        "ping",
        1,
        None,
        True,
        {},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": 2.0, "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": False, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.0, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": {}, "method": "ping"},
        {"jsonrpc": "2.0", "id": [1], "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method": None},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "method": ["ping"]},
        {"jsonrpc": "2.0", "id": 1, "result": 5},
        {"jsonrpc": "2.0", "id": 1, "error": "no"},
        {"jsonrpc": "2.0", "id": True, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": 5},
    ],
    ids=_short,
)
def test_json_that_is_no_message_is_an_invalid_request(server: StdioProcess, value: Any) -> None:
    server.send(json.dumps(value).encode())
    answer = server.receive()
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize("params", [[], [1], "a", 1, True])
@pytest.mark.parametrize("message_id", ["mine", "\ud800"], ids=_short)
def test_params_that_are_no_object_are_invalid_params_of_that_request(
    server: StdioProcess, params: Any, message_id: str
) -> None:
    bad = {"jsonrpc": "2.0", "id": message_id, "method": "tools/list", "params": params}
    server.send_raw(json.dumps(bad).encode() + b"\nnot json\n")  # in one piece: what follows is answered too
    answer, next_answer = server.receive(), server.receive()
    assert (answer["id"], answer["error"]["code"]) == (message_id, -32602)
    assert (next_answer["id"], next_answer["error"]["code"]) == (None, -32700)


@pytest.mark.parametrize("text", [b"", b" ", b"\t\r", b"\r"])
def test_a_blank_line_is_ignored(server: StdioProcess, text: bytes) -> None:
    server.send(text, call(1, "add", a=1, b=1))
    assert server.receive()["id"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        {"jsonrpc": "2.0", "id": "99", "error": {"code": 1, "message": "no"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}},
        {"jsonrpc": "2.0", "error": {"code": -32700, "message": "what?"}},
    ],
    ids=_short,
)
def test_a_reply_that_nobody_waits_for_is_ignored(server: StdioProcess, reply: Any) -> None:
    server.send(reply, call(1, "add", a=1, b=1))
    assert server.receive()["id"] == 1


def test_a_notification_that_nobody_knows_is_ignored(server: StdioProcess) -> None:
    server.send({"jsonrpc": "2.0", "method": "notifications/unheard_of"}, call(1, "add", a=1, b=1))
    assert server.receive()["id"] == 1


@pytest.mark.parametrize(
    "params", [{}, {"requestId": []}, {"requestId": {}}, {"requestId": 99}, {"requestId": True}, None]
)
def test_a_cancellation_of_nothing_is_ignored(server: StdioProcess, params: Any) -> None:
    cancellation = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    server.send(cancellation, call(1, "add", a=1, b=1))
    assert server.receive()["id"] == 1


def test_an_unknown_method_is_said_to_be_unknown(server: StdioProcess) -> None:
    assert server.answer(modern_request(1, "tools/unheard_of"))["error"]["code"] == -32601


def test_an_unknown_tool_is_invalid_params(server: StdioProcess) -> None:
    assert server.answer(call(1, "subtract"))["error"]["code"] == -32602


@pytest.mark.parametrize(
    "message_id", [0, -1, 10**4000, "", "1", "ü\u2028", "\ud800", "x" * 100_000, "null"], ids=_short
)
def test_every_integer_and_every_string_is_an_id(server: StdioProcess, message_id: int | str) -> None:
    assert server.answer(call(message_id, "add", a=1, b=1))["result"]["structuredContent"] == {"result": 2}


def test_a_byte_order_mark_is_forgiven(server: StdioProcess) -> None:
    text = b"\xef\xbb\xbf" + json.dumps(call("bom", "add", a=1, b=1)).encode()
    assert "result" in server.answer(text, "bom")


def test_a_line_may_end_as_on_windows(server: StdioProcess) -> None:
    assert "result" in server.answer(json.dumps(call("crlf", "add", a=1, b=1)).encode() + b"\r", "crlf")


@pytest.mark.parametrize("depth", [150, 250, 400, 950, 9_000, 30_000])
def test_a_deeply_nested_argument_is_answered(server: StdioProcess, depth: int) -> None:
    """Python parses 900 to 65,000 levels, depending on its version."""
    text = json.dumps(call(1, "echo", value="HERE")).encode()
    server.send(text.replace(b'"HERE"', b"[" * depth + b"]" * depth))
    answer = server.receive()
    assert "result" in answer or "error" in answer


@pytest.mark.parametrize("text", [b"NaN", b"-Infinity", b"1e999", b'"\\ud800"', b"9" * 4000], ids=_short)
def test_an_argument_that_not_everybody_calls_json_is_answered(server: StdioProcess, text: bytes) -> None:
    line = json.dumps(call("odd", "echo", value="HERE")).encode().replace(b'"HERE"', text)
    answer = server.answer(line, "odd")
    assert "result" in answer or "error" in answer


def test_many_messages_in_one_write_are_all_answered(server: StdioProcess) -> None:
    server.send(*(call(number, "add", a=number, b=number) for number in range(1000)))
    answers = [server.receive() for _ in range(1000)]
    assert {a["id"]: a["result"]["structuredContent"]["result"] for a in answers} == {n: 2 * n for n in range(1000)}


def test_a_message_in_pieces_is_put_together(server: StdioProcess) -> None:
    first, second = (json.dumps(call(name, "add", a=1, b=1)).encode() + b"\n" for name in ("first", "second"))
    text = first + second[:-1]
    for start in range(len(text)):
        server.send_raw(text[start : start + 1])
    server.send_raw(b"\n")
    assert [server.receive()["id"], server.receive()["id"]] == ["first", "second"]


# --- mistakes of this side -------------------------------------------------------------------------------------------


def test_a_request_that_cannot_be_answered_is_told_so_and_costs_its_neighbours_nothing() -> None:
    with StdioProcess("unlistable") as server:
        assert server.add() == 5
        server.send(modern_request("list", "tools/list"), call("beside", "add", a=1, b=2))
        answers = {each["id"]: each for each in (server.receive(), server.receive())}
        told = {"code": -32603, "message": "the request 'tools/list' failed; the server's log says why"}
        assert answers["list"]["error"] == told
        assert answers["beside"]["result"]["structuredContent"] == {"result": 3}
        assert "Unable to serialize unknown type" in server.log()
        server.close_input()
        assert server.wait() == 0


def test_a_tool_that_raises_what_ends_generators_has_failed() -> None:
    with StdioProcess() as server:
        assert server.add() == 5
        told = {"code": -32603, "message": "the request for 'end_as_a_generator' failed; the server's log says why"}
        assert server.answer(modern_request(1, "tools/call", name="end_as_a_generator"))["error"] == told
        assert "GeneratorExit" in server.log()
        assert server.add() == 5


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize("name", ["interrupt", "interrupt_in_a_thread", "interrupt_in_place"])
def test_a_tool_that_raises_what_a_signal_raises_only_fails(server: StdioProcess, name: str, progress: bool) -> None:
    asked = call(1, name) if progress else modern_request(1, "tools/call", name=name)
    result = server.answer(asked)["result"]
    assert (result["isError"], result["content"][0]["text"]) == (True, "the tool tried to end the process")


# --- long lines ------------------------------------------------------------------------------------------------------


def test_a_line_up_to_the_limit_is_read_and_one_beyond_is_refused() -> None:
    padded = json.dumps(call("long", "add", a=1, b=1)).encode().ljust(1000)
    with StdioProcess("short-lines") as server:
        assert "result" in server.answer(padded, "long")
        server.send(padded + b" ")
        answer = server.receive()
        assert (answer["id"], answer["error"]["code"]) == ("long", -32600)
        told = "a message may have 1000 bytes at most; bridge serve --max-request-bytes allows more"
        assert answer["error"]["message"] == told
        assert server.add() == 5


def test_a_message_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    with StdioProcess() as server:
        floods: list[list[object]] = [[{}] * 35_000, [1] * 200_000]
        for values in floods:
            server.send(json.dumps(call("many", "add", a=values, b=1)).encode())
            answer = server.receive()
            assert (answer["id"], answer["error"]["code"]) == ("many", -32600)
            assert "send fewer at once, or raise --max-request-bytes" in answer["error"]["message"]
        assert server.add() == 5


def test_a_line_beyond_the_limit_is_not_kept_in_memory() -> None:
    with StdioProcess() as server:
        assert server.add() == 5
        before_kilobytes = _peak_kilobytes(server)
        server.send(b"x" * 100_000_000)
        assert server.receive()["error"]["code"] == -32600
        assert _peak_kilobytes(server) - before_kilobytes < 30_000
        assert server.add() == 5


def test_a_last_line_without_its_newline_counts() -> None:
    with StdioProcess() as server:
        server.send_raw(json.dumps(call(1, "add", a=1, b=1)).encode())
        server.close_input()
        assert server.receive()["id"] == 1
        assert server.wait() == 0


def test_half_a_message_at_the_end_is_a_parse_error() -> None:
    with StdioProcess() as server:
        server.send_raw(b'{"jsonrpc": "2.0", "id"')
        server.close_input()
        assert server.receive()["error"]["code"] == -32700
        assert server.wait() == 0


def _peak_kilobytes(server: StdioProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])
