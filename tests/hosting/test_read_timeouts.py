"""Read timeouts of connections, before and during a request."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.hosting.connection_limits import ConnectionLimits
from bridge.hosting.protocols import with_read_timeouts
from bridge.tools.function import tool
from tests.cli import bounding
from tests.cli.bounding import CALL, DEADLINE_SECONDS, PROTOCOLS, answer, connected
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from contextlib import AbstractContextManager

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


class Loop:
    """An event loop whose time a test advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, act: Callable[[], None]) -> Any:
        timer = (self.now + seconds, act)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def pass_to(self, now: float) -> None:
        self.now = now
        for timer in [timer for timer in self.timers if timer[0] <= now]:
            self.timers.remove(timer)
            timer[1]()


class Receiving:
    """Attributes of uvicorn's protocols for a connection that receives a body."""

    timeout_keep_alive_task = None

    def __init__(self) -> None:
        self.loop = Loop()
        self.cycle: Any = None
        self.flow = SimpleNamespace(read_paused=False)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        self.cycle = SimpleNamespace(response_complete=False, response_started=False, more_body=data != b"end")


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes | None] = []

    def is_closing(self) -> bool:
        return None in self.written

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.written.append(None)


def receiving() -> tuple[Any, Transport]:
    bounds = ConnectionLimits(max_silence_seconds=9, max_head_seconds=10, max_body_pause_seconds=10)
    transport = Transport()
    connection = with_read_timeouts(Receiving, bounds, b"too late")()
    connection.connection_made(transport)
    return connection, transport


def test_a_body_may_take_long_while_parts_of_it_come() -> None:
    connection, transport = receiving()
    for now in (0, 8, 16, 24):
        connection.loop.pass_to(now)
        connection.data_received(b"part")
    connection.loop.pass_to(33)
    assert transport.written == []
    connection.loop.pass_to(34)
    assert transport.written == [b"too late", None]


def test_a_body_that_is_not_read_is_not_late() -> None:
    connection, transport = receiving()
    connection.data_received(b"part")
    connection.flow.read_paused = True
    connection.loop.pass_to(15)
    connection.flow.read_paused = False
    connection.loop.pass_to(24)
    assert transport.written == []
    connection.loop.pass_to(25)
    assert transport.written == [b"too late", None]


def test_nothing_is_written_into_an_answer_that_has_begun() -> None:
    connection, transport = receiving()
    connection.data_received(b"part")
    connection.cycle.response_started = True
    connection.loop.pass_to(10)
    assert transport.written == [None]


@pytest.mark.parametrize("sent", [[b"end"], [b"part", b"end"]])
def test_no_timer_is_left_of_a_request_that_came_whole(sent: list[bytes]) -> None:
    connection, _ = receiving()
    for data in sent:
        connection.data_received(data)
    assert connection.loop.timers == []


def test_no_timer_is_left_of_a_connection_that_is_gone() -> None:
    connection, _ = receiving()
    connection.data_received(b"part")
    connection.connection_lost(None)
    assert connection.loop.timers == []
