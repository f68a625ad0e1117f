"""How many connections there may be, and how long the head of a request."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from bridge.cli.bounded_h11 import h11_within
from bridge.cli.connection_bounds import MAX_HEADERS, ConnectionBounds, bounded
from bridge.cli.http_protocol import http_protocol
from bridge.cli.joined_writes import joining
from bridge.server import http_app
from bridge.server.http import direct_way
from bridge.tools.toolbox import ToolBox
from tests.server import http_server
from tests.server.http_mutations import modern
from tests.server.tools import silent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from bridge.tools.context import InvocationContext

DEADLINE_SECONDS = 10
BOUNDS = ConnectionBounds(max_header_bytes=2000, max_connections=2)
CALL = modern("tools/call", name="add", arguments={"a": 1, "b": 2}).raw


async def _add(arguments: Mapping[str, Any], _: InvocationContext) -> Any:
    return arguments["a"] + arguments["b"]


@contextmanager
def served(protocol: str = "direct", bounds: ConnectionBounds = BOUNDS) -> Iterator[int]:
    app = http_app(ToolBox(silent("add", _add)))
    kinds = {
        "direct": lambda: http_protocol(direct_way(app, lambda: True), bounds),
        "httptools": lambda: http_protocol(None, bounds),
        "h11": lambda: joining(bounded(h11_within(bounds), bounds)),
    }
    with http_server.serving(app, http=kinds[protocol]()) as origin:
        yield int(origin.rpartition(":")[2])


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as connection:
        yield connection


def answer(connection: socket.socket, raw: bytes) -> bytes:
    connection.sendall(raw)
    text = b""
    while b"\r\n\r\n" not in text and (part := connection.recv(65_536)):
        text += part
    return text


def with_headers(*headers: bytes) -> bytes:
    return CALL.replace(b"\r\n", b"\r\n" + b"".join(header + b"\r\n" for header in headers), 1)


@pytest.mark.parametrize("protocol", ["direct", "httptools", "h11"])
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
    with served(protocol) as port, connected(port) as connection:
        assert answer(connection, raw).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("protocol", ["direct", "httptools", "h11"])
def test_a_head_that_never_ends_is_answered_431_before_it_does(protocol: str) -> None:
    with served(protocol) as port, connected(port) as connection:
        assert answer(connection, b"POST /mcp HTTP/1.1\r\nHost: x\r\nx: " + b"a" * 2000).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("protocol", ["direct", "httptools", "h11"])
def test_a_head_that_comes_in_pieces_is_counted_as_a_whole(protocol: str) -> None:
    with served(protocol) as port, connected(port) as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\n")
        assert answer(connection, b"x: " + b"a" * 1000 + b"\r\ny: " + b"a" * 1000).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("protocol", ["direct", "httptools", "h11"])
def test_heads_behind_one_another_are_measured_each_for_itself(protocol: str) -> None:
    long = with_headers(b"x: " + b"a" * 1500)
    with served(protocol) as port, connected(port) as connection:
        connection.sendall(long + long)
        text = b""
        while text.count(b"HTTP/1.1 200 ") < 2 and (part := connection.recv(65_536)):
            text += part
        assert text.count(b"HTTP/1.1 200 ") == 2
        assert answer(connection, with_headers(b"x: " + b"a" * 2000)).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("protocol", ["direct", "httptools", "h11"])
def test_a_long_body_and_many_requests_are_no_long_head(protocol: str) -> None:
    raw = modern("tools/call", name="add", arguments={"a": 1, "b": 2, "c": "c" * 5000}).raw
    with served(protocol) as port, connected(port) as connection:
        for _ in range(5):
            assert answer(connection, raw).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("protocol", ["direct", "httptools", "h11"])
def test_a_connection_too_many_is_answered_503_and_closed(protocol: str) -> None:
    with served(protocol) as port, connected(port) as one, connected(port) as two:
        assert answer(one, CALL).startswith(b"HTTP/1.1 200 ")
        assert answer(two, CALL).startswith(b"HTTP/1.1 200 ")
        with connected(port) as three:
            refused = answer(three, CALL)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 5\r\n" in refused
        assert answer(one, CALL).startswith(b"HTTP/1.1 200 ")
        two.close()
        answers: list[bytes] = []
        while not (answers and answers[-1].startswith(b"HTTP/1.1 200 ")):
            with connected(port) as four:
                answers.append(answer(four, CALL))


def test_what_is_not_http_is_answered_400_as_ever() -> None:
    with served() as port, connected(port) as connection:
        assert answer(connection, b"\x16\x03\x01 no HTTP\r\n\r\n").startswith(b"HTTP/1.1 400 ")
