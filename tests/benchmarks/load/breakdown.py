"""Processor time of one call, by part, over HTTP and over stdio.

The total is measured on a real server. Below it stand a server that answers a constant, and the parts within the
process, each timed alone. No profiler runs, since it would slow the parts down unevenly.

A flame graph shows more detail, less exactly. While ``make load LOAD='latency soak'`` runs:

    pip install py-spy && py-spy record --pid $(pgrep -f 'bridge serve' | head -1) --native --output flame.svg
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import http_server, stdio_server
from tests.benchmarks.http_server import HttpServer
from tests.benchmarks.load.parts import Part, http_parts, stdio_parts
from tests.benchmarks.load.section import Section
from tests.benchmarks.messages import Era, call, line
from tests.benchmarks.processes import TOOLS, cpu_clock, running
from tests.benchmarks.stdio_server import StdioServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FLOORS = str(Path(__file__).with_name("floors.py"))
_ROUNDS = 15
_MICROSECONDS = 1e6
_REST = "what is not seen in isolation: caches that others use meanwhile, the collector, waiting"


def measure(calls: int) -> list[Section]:
    """Measure both breakdowns.

    Args:
        calls: Calls of one round.
    """
    return [_http(calls), _stdio(calls)]


def _http(calls: int) -> Section:
    section = Section("One modern tools/call over HTTP", "server CPU", "of the whole")
    with (
        http_server.serving(TOOLS) as server,
        running("-m", f"{__package__}.floors", "http", stderr=subprocess.PIPE) as process,
    ):
        floor = HttpServer(process)
        raw = server.post(call(Era.MODERN, "add"), Era.MODERN)
        with server.connect() as connection, floor.connect() as bare:
            asked = [lambda: connection.answer(raw), lambda: bare.answer(raw)]
            whole, under = _cpu_seconds([server.process, process], asked, calls)
    parts = asyncio.run(http_parts(raw))
    _fill(section, whole, Part(name="socket, event loop, uvicorn and its parser", seconds=under), parts)
    return section


def _stdio(calls: int) -> Section:
    section = Section("One tools/call of the handshake era over stdio", "server CPU", "of the whole")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with stdio_server.serving(TOOLS) as server, running("-m", f"{__package__}.floors", "stdio", **pipes) as process:
        server.open(Era.HANDSHAKE)
        floor = StdioServer(process)
        text = line(call(Era.HANDSHAKE, "add"))
        asked = [lambda: server.answer(text), lambda: floor.answer(text)]
        whole, under = _cpu_seconds([server.process, process], asked, calls)
    parts = asyncio.run(stdio_parts())
    _fill(section, whole, Part(name="pipes, event loop, lines", seconds=under), parts)
    return section


def _cpu_seconds(
    processes: Sequence[subprocess.Popen[bytes]], asked: Sequence[Callable[[], object]], calls: int
) -> list[float]:
    """Return the processor seconds per call of each server: the minimum of several rounds, which alternate."""
    found: list[list[float]] = [[] for _ in processes]
    for _ in range(_ROUNDS):
        for process, ask, rows in zip(processes, asked, found, strict=True):
            clock = cpu_clock(process)
            before = clock()
            for _ in range(calls):
                ask()
            after = clock()
            if before is None or after is None:
                sys.exit("this system does not tell how long a processor works for another process")
            rows.append((after - before) / calls)
    return [min(rows) for rows in found]


def _fill(section: Section, whole: float, floor: Part, parts: list[Part]) -> None:
    rest = whole - floor.seconds - sum(part.seconds for part in parts)
    for part in (floor, *parts, Part(name=_REST, seconds=rest), Part(name="the whole", seconds=whole)):
        section.add(part.name, f"{part.seconds * _MICROSECONDS:.1f} µs", f"{part.seconds / whole:.0%}")
