"""Limits of the number of connections and of the head of a request."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from bridge.hosting.http.limits import MAX_HEADERS, ConnectionLimits
from bridge.tools.function import tool
from tests.cli.bounding import CALL, DEADLINE_SECONDS, PROTOCOLS, answer, answers, connected, served
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    import socket

BOUNDS = ConnectionLimits(max_header_bytes=2000, max_connections=2)


def with_headers(*headers: bytes) -> bytes:
    return CALL.replace(b"\r\n", b"\r\n" + b"".join(header + b"\r\n" for header in headers), 1)


@PROTOCOLS
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(with_headers(b"x: " + b"a" * 2000), id="one that is long"),
        pytest.param(with_headers(*[b"x-%d: %b" % (number, b"a" * 90) for number in range(20)]), id="several"),
        pytest.param(with_headers(*[b"x:"] * MAX_HEADERS), id="many"),
        pytest.param(b"POST /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="an address"),
    ],
)
def test_a_head_over_its_bounds_is_answered_431(protocol: str, raw: bytes) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        assert answer(connection, raw).startswith(b"HTTP/1.1 431 ")


@PROTOCOLS
def test_a_head_that_never_ends_is_answered_431_before_it_does(protocol: str) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        assert answer(connection, b"POST /mcp HTTP/1.1\r\nHost: x\r\nx: " + b"a" * 2000).startswith(b"HTTP/1.1 431 ")


@PROTOCOLS
def test_a_head_that_comes_in_pieces_is_counted_as_a_whole(protocol: str) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\n")
        assert answer(connection, b"x: " + b"a" * 1000 + b"\r\ny: " + b"a" * 1000).startswith(b"HTTP/1.1 431 ")


@PROTOCOLS
def test_heads_behind_one_another_are_measured_each_for_itself(protocol: str) -> None:
    long = with_headers(b"x: " + b"a" * 1500)
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        connection.sendall(long + long)
        text = b""
        while text.count(b"HTTP/1.1 200 ") < 2 and (part := connection.recv(65_536)):
            text += part
        assert text.count(b"HTTP/1.1 200 ") == 2
        assert answer(connection, with_headers(b"x: " + b"a" * 2000)).startswith(b"HTTP/1.1 431 ")


@PROTOCOLS
def test_a_long_body_and_many_requests_are_no_long_head(protocol: str) -> None:
    raw = modern("tools/call", name="add", arguments={"a": 1, "b": 2, "c": "c" * 5000}).raw
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        for _ in range(5):
            assert answer(connection, raw).startswith(b"HTTP/1.1 200 ")


@PROTOCOLS
def test_a_connection_too_many_is_answered_503_and_closed(protocol: str) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as one, connected(port) as two:
        assert answer(one, CALL).startswith(b"HTTP/1.1 200 ")
        assert answer(two, CALL).startswith(b"HTTP/1.1 200 ")
        with connected(port) as three:
            refused = answer(three, CALL)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 5\r\n" in refused
            error = json.loads(refused.partition(b"\r\n\r\n")[2])["error"]
            assert (error["code"], error["data"]) == (-32005, {"limit": "--max-connections", "retryAfterSeconds": 5})
        assert answer(one, CALL).startswith(b"HTTP/1.1 200 ")
        two.close()
        answers: list[bytes] = []
        while not (answers and answers[-1].startswith(b"HTTP/1.1 200 ")):
            with connected(port) as four:
                answers.append(answer(four, CALL))


OTHER = "127.0.0.2"
OTHER_ADDRESSES = pytest.mark.skipif(
    sys.platform != "linux", reason="only there every address of 127.0.0.0/8 is this machine's"
)
UNFINISHED = CALL[:-1]
LISTEN = modern("subscriptions/listen", notifications={"toolsListChanged": True}).raw


@OTHER_ADDRESSES
@PROTOCOLS
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(UNFINISHED, id="half a request"),
        pytest.param(LISTEN, id="a stream"),
    ],
)
def test_an_address_with_fewer_connections_takes_the_place_of_one_with_most(protocol: str, raw: bytes) -> None:
    bounds = ConnectionLimits(max_connections=4)
    with served(protocol, bounds) as port, ExitStack() as stack:
        mine = [stack.enter_context(connected(port)) for _ in range(4)]
        for each in mine:  # all are open, since they were answered
            assert answer(each, CALL).startswith(b"HTTP/1.1 200 ")
        if raw:
            for each in mine:
                each.sendall(raw)
                if raw is LISTEN:
                    assert b"200 OK" in each.recv(65_536)
        others = [stack.enter_context(connected(port, client=OTHER)) for _ in range(3)]
        said = [answer(each, CALL).split()[1] for each in others]
        assert said == [b"200", b"200", b"503"]
        for each in mine[:2]:
            while each.recv(65_536):
                pass  # until the end, which arrives at once
        if raw is not LISTEN:
            for each in mine[2:]:
                assert answer(each, CALL[len(raw) :]).startswith(b"HTTP/1.1 200 ")


@OTHER_ADDRESSES
@PROTOCOLS
def test_a_connection_on_which_a_call_runs_keeps_its_place(protocol: str) -> None:
    started, go_on = threading.Semaphore(0), threading.Event()

    @tool
    def hold() -> str:
        """Wait."""
        started.release()
        assert go_on.wait(DEADLINE_SECONDS)
        return "done"

    bounds = ConnectionLimits(max_connections=3)
    with served(protocol, bounds, hold) as port, ExitStack() as stack:
        mine = [stack.enter_context(connected(port, modern("tools/call", name="hold").raw)) for _ in range(3)]
        for _ in mine:
            assert started.acquire(timeout=DEADLINE_SECONDS)
        with connected(port, client=OTHER) as other:
            assert answer(other, CALL).startswith(b"HTTP/1.1 503 ")
        go_on.set()
        for each in mine:
            assert answer(each).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("path", [b"/healthz", b"/readyz"])
@PROTOCOLS
def test_a_probe_is_answered_however_many_connections_there_are(protocol: str, method: bytes, path: bytes) -> None:
    probe = b"%b %b HTTP/1.1\r\nHost: 10.0.0.7\r\n\r\n" % (method, path)
    with served(protocol, BOUNDS) as port, connected(port), connected(port), connected(port) as three:
        three.sendall(probe)
        text = b"".join(iter(lambda: three.recv(65_536), b""))
        assert text.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("behind", [CALL, b"GET /healthz HTTP/1.1\r\n"])
@PROTOCOLS
def test_nothing_gets_in_behind_a_probe_where_there_are_too_many_connections(protocol: str, behind: bytes) -> None:
    probe = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with served(protocol, BOUNDS) as port, connected(port), connected(port), connected(port) as three:
        three.sendall(probe + behind)
        text = b"".join(iter(lambda: three.recv(65_536), b""))
        assert text.startswith(b"HTTP/1.1 503 ")
        assert text.count(b"HTTP/1.1 ") == 1


def test_what_is_not_http_is_answered_400_as_ever() -> None:
    with served("direct", BOUNDS) as port, connected(port) as connection:
        assert answer(connection, b"\x16\x03\x01 no HTTP\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def in_chunks(raw: bytes, *trailers: bytes) -> bytes:
    """Return a request whose body is one chunk, with trailers after it."""
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    framing = b"Transfer-Encoding: chunked"
    return b"\r\n".join([*lines, framing, b"", b"%x" % len(body), body, b"0", *trailers, b"", b""])


@PROTOCOLS
def test_trailers_are_dropped_and_the_connection_goes_on(protocol: str) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        connection.sendall(in_chunks(CALL, b"a: 1", b"Host: evil.example", b"Expect: 100-continue") + CALL)
        assert [head.split()[1] for head, _ in answers(connection, 2)] == [b"200", b"200"]


@PROTOCOLS
@pytest.mark.parametrize("name", [b"Mcp-Name", b"Mcp-Method", b"MCP-Protocol-Version", b"Host", b"Content-Type"])
def test_a_trailer_is_no_header(protocol: str, name: bytes) -> None:
    (line,) = [line for line in CALL.split(b"\r\n") if line.startswith(name + b":")]
    without = CALL.replace(line + b"\r\n", b"", 1)
    with served(protocol, BOUNDS) as port:
        with connected(port) as connection:
            expected = answer(connection, in_chunks(without)).split(b"\r\n")[0]
        with connected(port) as connection:
            found = answer(connection, in_chunks(without, line)).split(b"\r\n")[0]
    assert (found, found.startswith(b"HTTP/1.1 4")) == (expected, True)


@PROTOCOLS
@pytest.mark.parametrize(
    "behind",
    [b"0\r\nx: " + b"a" * 50_000, b"0\r\n" + b"a: b\r\n" * 10_000, b"0;" + b"a" * 50_000, b"1;a=" + b"b" * 50_000],
    ids=["a long trailer", "many trailers", "a long extension", "another"],
)
def test_what_is_neither_head_nor_body_is_bounded(protocol: str, behind: bytes) -> None:
    head, _, body = in_chunks(CALL).partition(b"\r\n\r\n")
    with served(protocol, BOUNDS) as port, connected(port, head + b"\r\n\r\n" + body[: body.rindex(b"0\r\n")]) as it:
        text = b""
        for start in range(0, len(behind), 500):
            try:
                it.sendall(behind[start : start + 500])
            except ConnectionError:
                break
        while part := received(it):
            text += part
        assert text.startswith(b"HTTP/1.1 431 ")


@PROTOCOLS
def test_many_small_chunks_are_no_long_trailer(protocol: str) -> None:
    head, _, body = CALL.partition(b"\r\n\r\n")
    raw = in_chunks(head + b"\r\n\r\n").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    raw += b"".join(b"1;name=value\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    assert len(raw) > 2 * BOUNDS.max_header_bytes
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        assert answer(connection, raw).startswith(b"HTTP/1.1 200 ")


@PROTOCOLS
def test_what_is_no_http_behind_an_answer_that_has_begun_closes_the_connection(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A response may be sent before its request is complete, which may then be malformed."""
    head = b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        assert answer(connection, head).startswith(b"HTTP/1.1 421 ")
        connection.sendall(b"zzzzz\r\nzz\r\n")
        assert b"HTTP/1.1" not in connection.recv(65_536)
        with connected(port) as other:
            assert answer(other, CALL).startswith(b"HTTP/1.1 200 ")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def received(connection: socket.socket) -> bytes:
    """Return the next bytes; none if the connection was closed, in any way."""
    try:
        return connection.recv(65_536)
    except ConnectionError:
        return b""
