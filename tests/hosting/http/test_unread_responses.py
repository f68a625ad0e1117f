"""Connections of clients that do not read their responses are closed."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from bridge.hosting.http import unread_responses
from bridge.hosting.http.limits import ConnectionLimits
from bridge.server.server import Server
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.cli import bounding
from tests.cli.bounding import CALL, DEADLINE_SECONDS, PROTOCOLS, add, answer, connected
from tests.server.http_mutations import (
    Sessions,
    handshake,
    initialize,
    modern,
    post,
    request,
    without_body,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = 1000.0
SHORT = 0.05
RESULT_BYTES = 20_000_000
MAX_CALLS = 5000
MANY = modern("tools/call", name="many", arguments={}).raw
CALL_MANY = request("tools/call", name="many", arguments={})
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@tool
async def many() -> str:
    """Return much text."""
    return "x" * RESULT_BYTES


@contextmanager
def asked(port: int, raw: bytes = MANY) -> Iterator[socket.socket]:
    """Open a connection with large responses, and read nothing."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.settimeout(DEADLINE_SECONDS)
        connection.connect(("127.0.0.1", port))
        connection.sendall(raw)
        yield connection


@contextmanager
def cutting_off() -> Iterator[threading.Event]:
    """Set once the server has aborted a connection: its client notices that only after it has read the rest."""
    cut_off = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "whose client left" in record.getMessage():
                cut_off.set()

    logger, watch = logging.getLogger("bridge.hosting"), Watch()
    level = logger.level
    logger.addHandler(watch)
    logger.setLevel(logging.INFO)
    try:
        yield cut_off
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)


def length_of_all(connection: socket.socket) -> int:
    """Return the number of bytes until the response is complete, or the connection is closed."""
    length = 0
    while length < RESULT_BYTES and (part := connection.recv(1_000_000)):
        length += len(part)
    return length


@PROTOCOLS
def test_a_client_that_reads_nothing_for_too_long_is_cut_off(protocol: str) -> None:
    bounds = ConnectionLimits(max_unread_seconds=SHORT)
    with cutting_off() as cut_off, bounding.served(protocol, bounds, many) as port, asked(port) as unread:
        assert cut_off.wait(DEADLINE_SECONDS)
        assert length_of_all(unread) < RESULT_BYTES
        with connected(port) as other:
            assert answer(other, CALL).startswith(b"HTTP/1.1 200")


@PROTOCOLS
def test_where_too_much_is_unread_one_is_cut_off_and_the_others_are_not(protocol: str) -> None:
    bounds = ConnectionLimits(max_unread_seconds=LONG, max_unread_bytes=25_000_000)
    with (
        cutting_off() as cut_off,
        bounding.served(protocol, bounds, many) as port,
        asked(port) as one,
        asked(port) as other,
    ):
        assert cut_off.wait(DEADLINE_SECONDS)
        lengths = sorted(map(length_of_all, (one, other)))
    assert lengths[0] < RESULT_BYTES <= lengths[1]


def taken(port: int, raw: bytes) -> bytes:
    """Send a request until it is admitted; return the head of the response."""
    while True:
        with connected(port, raw) as connection:
            head = answer(connection)
        if b" 503 " not in head.splitlines()[0]:
            assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")), head
            return head


def call_over_sse(port: int, stream: socket.socket) -> None:
    """Call `many` over a stream."""
    head = answer(stream)
    while (target := re.search(rb"data: (/messages/\S+)\r?\n", head)) is None:
        head += stream.recv(65_536)
    for message in (json.loads(initialize().body), INITIALIZED, CALL_MANY | {"id": 2}):
        taken(port, post(target[1].decode(), message).raw)


@pytest.mark.parametrize("protocol", ["direct", "h11"])
@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
def test_a_client_that_hangs_up_on_what_it_does_not_read_gives_memory_and_places_back(
    protocol: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_responses, "COLLECTED_BYTES", RESULT_BYTES // 2)
    monkeypatch.setattr(unread_responses, "_COLLECTION_SECONDS", (SHORT, 10 * SHORT))
    bounds = ConnectionLimits(max_connections=2 if kind == "sse" else 1)
    server = Server(ToolBox(add, many), name="tests", max_calls=1)
    with bounding.served(protocol, bounds, server=server, max_sessions=1) as port:
        taken(port, CALL)
        raw, again = MANY, CALL
        if kind == "handshake":
            found = re.search(rb"mcp-session-id: (\w+)", taken(port, initialize().raw))
            assert found is not None
            session = Sessions(found[1].decode(), "", "")
            taken(port, handshake(session, INITIALIZED).raw)
            raw, again = (handshake(session, each).raw for each in (CALL_MANY, request("ping") | {"id": 3}))
        elif kind == "sse":
            raw, again = without_body("GET", "/sse").raw, initialize().raw
        tracemalloc.start()
        try:
            with asked(port, raw) as unread:
                if kind == "sse":
                    call_over_sse(port, unread)
                while b"xxx" not in unread.recv(65_536):
                    pass
                assert tracemalloc.get_traced_memory()[0] > RESULT_BYTES // 2, "the rest waits in the server"
            taken(port, again)
            for _ in range(MAX_CALLS):
                if tracemalloc.get_traced_memory()[0] <= RESULT_BYTES // 10:
                    break
                taken(port, CALL if kind == "sse" else again)
            else:
                pytest.fail("the unread response stayed in memory")
        finally:
            tracemalloc.stop()
