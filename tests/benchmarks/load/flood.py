"""A flood: one caller sends far above its rate, and the latency of an honest caller beside it is measured.

Each connection of the flood waits for its response before it sends again, as clients do that ignore 429.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from tests.benchmarks.http_server import HttpServer, bearing, serving
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import TOOLS, cpu_clock, running
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 300
_RATE = "100/1"
_HONEST_CALLS_A_SECOND = 50
_HONEST = "honest-honest-honest-honest"
_FLOODING = "flooding-flooding-flooding"
_END = b"\0"


def measure(seconds: float) -> Section:
    """Call at a steady pace, alone and beside a flood, with limits and without.

    Args:
        seconds: Duration of each row.
    """
    section = Section(
        f"{_HONEST_CALLS_A_SECOND} calls a second by one caller; another floods by {CONNECTIONS} connections",
        *("honest calls", "lost", "p50", "p90", "p99", "flood's requests", "answered", "refused", "server CPU"),
    )
    limits = ("--rate", _RATE, "--concurrency", "16")
    for name, options, is_flooded in (
        ("alone, no limits", (), False),
        (f"alone, --rate {_RATE}", limits, False),
        (f"beside the flood, --rate {_RATE}", limits, True),
        ("beside the flood, no limits", (), True),
    ):
        keys = ("--api-key", f"{_HONEST},{_FLOODING}")
        with serving(TOOLS, *keys, *options, limit_seconds=seconds + 60) as server:
            section.add(name, *_row(server, seconds, is_flooded=is_flooded))
    return section


def _row(server: HttpServer, seconds: float, *, is_flooded: bool) -> Iterator[str]:
    request, clock = _request(server, _HONEST), cpu_clock(server.process)
    flood = Flood(server.port, _request(server, _FLOODING), CONNECTIONS if is_flooded else 0)
    with flood.running(), server.connect() as connection:
        latencies, lost = [], 0
        worked, start = clock(), perf_counter()
        for number in range(int(seconds * _HONEST_CALLS_A_SECOND)):
            # The pace is part of what is measured: a call does not wait for the one before it.
            sleep(max(0.0, start + number / _HONEST_CALLS_A_SECOND - perf_counter()))
            sent = perf_counter()
            lost += not says_three(connection.answer(request))
            latencies.append(perf_counter() - sent)
        worked_later, took = clock(), perf_counter() - start
    yield f"{len(latencies):,}"
    yield f"{lost:,}"
    yield from map(duration, percentiles(latencies))
    yield f"{flood.answered + flood.refused:,}"
    yield f"{flood.answered:,}"
    yield f"{flood.refused:,}"
    yield "" if worked is None or worked_later is None else f"{(worked_later - worked) / took:.0%}"


def _request(server: HttpServer, key: str) -> bytes:
    return bearing(key, server.post(call(Era.MODERN, "add"), Era.MODERN))


class Flood:
    """Flood a server from a process of its own, so that its processor time is not the honest caller's.

    Args:
        port: The server's port on this machine.
        request: The request that is sent again and again.
        connections: Number of connections; 0 for no flood.
    """

    def __init__(self, port: int, request: bytes, connections: int) -> None:
        self._port, self._request = port, request
        self._connections = connections
        self.answered = 0
        self.refused = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Flood it during this block; afterwards the responses are counted."""
        if not self._connections:
            yield
            return
        arguments = ("-m", f"{__package__}.flood", str(self._port), str(self._connections))
        with running(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(self._request)
            process.stdin.write(_END)
            process.stdin.flush()
            process.stdout.readline()  # the first response has arrived
            yield
            process.stdin.close()
            self.answered, self.refused = map(int, process.stdout.readline().split())


def _flood(port: int, connections: int) -> None:
    """Send the text of standard input repeatedly until standard input closes, and print the counts."""
    request = b""
    while not request.endswith(_END):
        request += os.read(0, 65_536)
    is_over = threading.Event()
    threading.Thread(target=_set_at_end, args=(is_over,), daemon=True).start()
    answered = refused = 0
    with Crowd(port, connections) as crowd:
        for answer in crowd.ask(repeat(request.removesuffix(_END))):
            if not answered + refused:
                print(flush=True)  # noqa: T201 - it begins
            answered += answer.text.startswith(b"HTTP/1.1 200")
            refused += answer.text.startswith(b"HTTP/1.1 429")
            if is_over.is_set():
                break
    print(answered, refused, flush=True)  # noqa: T201 - what it is for


def _set_at_end(event: threading.Event) -> None:
    os.read(0, 1)
    event.set()


if __name__ == "__main__":
    _flood(int(sys.argv[1]), int(sys.argv[2]))
