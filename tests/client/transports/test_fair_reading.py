"""A server that keeps the event loop busy is read in between the work of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge.client.transports.fair_reading import FairReading
from bridge.client.transports.http_connections import HttpConnection, HttpConnections

if TYPE_CHECKING:
    from collections.abc import Callable


class Wire:
    """A transport that records if it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def reads(self) -> bool:
        return self.is_read

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def write(self, _: bytes) -> None: ...

    def abort(self) -> None: ...


class Loop:
    """An event loop whose time passes by seconds with each look at it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.later: list[tuple[float, Callable[[], object]]] = []
        self._seconds = seconds
        self._now = 0.0

    def time(self) -> float:
        self._now += self._seconds
        return self._now

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        self.later.append((seconds, function))


def test_a_rest_is_as_long_as_the_work_and_ends_only_what_it_began() -> None:
    wire, loop = Wire(), Loop()
    reading = FairReading(wire, loop)  # type: ignore[arg-type]
    reading.rest_after(0.001)
    assert wire.reads()
    reading.rest_after(3.0)
    reading.rest_after(4.0)
    [(seconds, end)] = loop.later
    assert (seconds, wire.reads()) == (3.0, False)
    reading.pause()
    reading.resume()
    assert not wire.reads(), "its reader cannot shorten the rest"
    reading.pause()
    end()
    assert not wire.reads(), "its reader has paused it"
    reading.resume()
    assert wire.reads()


@pytest.mark.parametrize(("seconds", "is_read"), [(0.0, True), (1.0, False)])
def test_a_connection_rests_after_data_that_took_long(seconds: float, is_read: bool) -> None:
    wire, loop = Wire(), Loop(seconds)
    pool: Any = HttpConnections("127.0.0.1", 1, None, 1.0)
    connection = HttpConnection(pool, loop)  # type: ignore[arg-type]
    connection.connection_made(wire)  # type: ignore[arg-type]

    class Waiting:
        def done(self) -> bool:
            return False

        def set_result(self, _: object) -> None: ...

        def set_exception(self, error: Exception) -> None:
            raise error

    connection.send(b"", Waiting())
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n[")
    assert wire.reads() is is_read
