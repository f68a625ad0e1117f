"""Read timeouts of connections, before and during a request."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from bridge.hosting.http.limits import ConnectionLimits
from bridge.tools.function import tool
from tests.cli import bounding
from tests.cli.bounding import CALL, DEADLINE_SECONDS, PROTOCOLS, answer, connected
from tests.hosting.connections import GET, POST, FakeLoop
from tests.hosting.connections import connected as made
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    import socket
    from contextlib import AbstractContextManager

    from bridge.hosting.http.connection import Connection
    from tests.hosting.connections import FakeTransport

LONG = 1000.0
SHORT = 0.05
HEAD_BYTES = CALL.index(b"\r\n\r\n") + 4

runs = threading.Event()
goes_on = threading.Event()


@tool
def wait() -> str:
    """Report that it runs, and wait."""
    runs.set()
    goes_on.wait(DEADLINE_SECONDS)
    return "done"


def served(
    protocol: str, *, silence: float = LONG, head: float = LONG, body_pause: float = LONG
) -> AbstractContextManager[int]:
    bounds = ConnectionLimits(max_silence_seconds=silence, max_head_seconds=head, max_body_pause_seconds=body_pause)
    return bounding.served(protocol, bounds, wait)


def until_closed(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection; fail if it does not."""
    text = b""
    while part := connection.recv(65_536):
        text += part
    return text


@PROTOCOLS
def test_a_connection_that_says_nothing_is_closed(protocol: str) -> None:
    with served(protocol, silence=SHORT) as port, connected(port) as connection:
        assert until_closed(connection) == b""


@PROTOCOLS
@pytest.mark.parametrize("sent", [b"P", CALL[: HEAD_BYTES - 1]], ids=["a byte", "all but one"])
def test_a_head_that_does_not_come_whole_is_answered_408_and_closed(protocol: str, sent: bytes) -> None:
    with served(protocol, head=SHORT) as port, connected(port, sent) as connection:
        assert until_closed(connection).startswith(b"HTTP/1.1 408 ")


@PROTOCOLS
def test_the_head_of_a_later_request_has_to_come_whole_too(protocol: str) -> None:
    with served(protocol, head=SHORT) as port, connected(port) as connection:
        assert answer(connection, CALL).startswith(b"HTTP/1.1 200 ")
        connection.sendall(CALL[: HEAD_BYTES - 1])
        assert b"HTTP/1.1 408 " in until_closed(connection)


@PROTOCOLS
@pytest.mark.parametrize("before", [b"", CALL], ids=["at first", "later"])
def test_an_empty_line_is_no_beginning_that_may_take_for_ever(protocol: str, before: bytes) -> None:
    with served(protocol, head=SHORT) as port, connected(port) as connection:
        if before:
            answer(connection, before)
        connection.sendall(b"\r\n")
        status = b"400" if protocol == "h11" else b"408"  # which considers it an error
        assert b"HTTP/1.1 %b " % status in until_closed(connection)


@PROTOCOLS
def test_a_head_that_comes_byte_by_byte_takes_no_longer(protocol: str) -> None:
    with served(protocol, head=SHORT) as port, connected(port, CALL[: CALL.index(b"\r\n") + 2]) as connection:
        connection.settimeout(SHORT / 10)
        with suppress(ConnectionError):  # bytes that arrive too late may be answered by a reset of the system
            for _ in range(2000):
                connection.sendall(b"a")
                with suppress(TimeoutError):
                    assert connection.recv(65_536).startswith(b"HTTP/1.1 408 ")
                    return
            pytest.fail("the head is waited for still")


@PROTOCOLS
@pytest.mark.parametrize("sent", [CALL[:HEAD_BYTES], CALL[:-1]], ids=["nothing of it", "all but one"])
def test_a_body_that_pauses_is_answered_408_and_closed(protocol: str, sent: bytes) -> None:
    with served(protocol, body_pause=SHORT) as port, connected(port, sent) as connection:
        assert until_closed(connection).startswith(b"HTTP/1.1 408 ")


@PROTOCOLS
def test_a_body_takes_longer_than_a_head_may(protocol: str) -> None:
    with served(protocol, head=SHORT) as port, connected(port, CALL[:-1]) as slow:
        with connected(port, CALL[:1]) as other:
            assert until_closed(other).startswith(b"HTTP/1.1 408 ")
        assert answer(slow, CALL[-1:]).startswith(b"HTTP/1.1 200 ")


@PROTOCOLS
def test_a_head_in_parts_that_comes_in_time_is_answered_and_the_connection_kept(protocol: str) -> None:
    with served(protocol, silence=SHORT) as port, connected(port, CALL[:10]) as connection:
        with connected(port) as other:
            assert until_closed(other) == b""
        assert answer(connection, CALL[10:]).startswith(b"HTTP/1.1 200 ")
        with connected(port) as other:
            assert until_closed(other) == b""
        assert answer(connection, CALL).startswith(b"HTTP/1.1 200 ")


@PROTOCOLS
def test_a_call_takes_what_time_it_takes(protocol: str) -> None:
    runs.clear()
    goes_on.clear()
    raw = modern("tools/call", name="wait", arguments={}).raw
    with (
        served(protocol, silence=SHORT, head=SHORT, body_pause=SHORT) as port,
        connected(port, raw) as connection,
    ):
        assert runs.wait(DEADLINE_SECONDS)
        for part in (b"", CALL[:1], CALL[:-1]):
            with connected(port, part) as other:
                until_closed(other)
        goes_on.set()
        assert answer(connection).startswith(b"HTTP/1.1 200 ")


def receiving() -> tuple[Connection, FakeTransport, FakeLoop]:
    limits = ConnectionLimits(max_silence_seconds=9, max_head_seconds=10, max_body_pause_seconds=10)
    loop = FakeLoop()
    return *made(limits=limits, loop=loop), loop


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_body_may_take_long_while_parts_of_it_come() -> None:
    connection, transport, loop = receiving()
    for now, data in ((0, POST), (8, b"a"), (16, b"b"), (24, b"c")):
        loop.run_until(now)
        connection.data_received(data)
    loop.run_until(33)
    assert (transport.written, transport.is_closed) == ([], False)
    loop.run_until(34)
    assert (transport.written[0][:13], transport.is_closed) == (b"HTTP/1.1 408 ", True)


@pytest.mark.anyio
async def test_a_body_that_is_not_read_is_not_late() -> None:
    connection, transport, loop = receiving()
    connection.data_received(POST.replace(b"10", b"100000"))
    connection.data_received(b"a" * 90_000)
    assert transport.is_reading_paused
    loop.run_until(15)
    connection.resume_reading()
    loop.run_until(24)
    assert not transport.is_closed
    loop.run_until(25)
    assert (transport.written[0][:13], transport.is_closed) == (b"HTTP/1.1 408 ", True)


@pytest.mark.anyio
async def test_nothing_is_written_into_an_answer_that_has_begun() -> None:
    connection, transport, loop = receiving()
    connection.data_received(POST)
    assert connection._reply is not None
    connection._reply.begin(200, [])
    loop.run_until(1)
    del transport.written[:]
    loop.run_until(10)
    assert (transport.written, transport.is_closed) == ([], True)


@pytest.mark.anyio
@pytest.mark.parametrize("sent", [[POST + 10 * b"a"], [POST[:20], POST[20:], 10 * b"a"]])
async def test_a_request_that_came_whole_takes_its_time(sent: list[bytes]) -> None:
    connection, transport, loop = receiving()
    for data in sent:
        connection.data_received(data)
    loop.run_until(1000)
    assert (transport.written, transport.is_closed, loop.timers) == ([], False, [])


@pytest.mark.anyio
async def test_part_of_the_next_head_is_timed_once_its_turn_has_come() -> None:
    connection, transport, loop = receiving()
    connection.data_received(GET + GET[:10])
    loop.run_until(1000)
    assert connection._reply is not None
    connection._reply.respond(200, [], b"")
    loop.run_until(1009)
    assert not transport.is_closed
    loop.run_until(1010)
    assert (transport.written[-1][:13], transport.is_closed) == (b"HTTP/1.1 408 ", True)


@pytest.mark.anyio
async def test_no_timer_is_left_of_a_connection_that_is_gone() -> None:
    connection, _, loop = receiving()
    connection.data_received(POST)
    connection.connection_lost(None)
    assert all(timer.cancelled() for timer in loop.timers)
