"""Latency under load: connections that are never idle, in both eras, with the fast path and without."""

from __future__ import annotations

from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING

from tests.benchmarks.http_server import serving
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import TOOLS, cpu_clock
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.http_server import HttpServer

CONNECTIONS = 16
_IDS = 1000
"""How many ids there are before they come again: no two requests that are under way have the same."""


def measure(calls: int) -> Section:
    """Call as fast as a server answers.

    Args:
        calls: How many calls a row is.
    """
    section = Section(
        f"Latency of {calls:,} calls over {CONNECTIONS} connections that are never idle",
        *("p50", "p90", "p99", "worst", "server CPU", "calls a second", "errors"),
    )
    for options, name in (((), "fast path"), (("--no-fast-path",), "through the SDK")):
        with serving(TOOLS, *options) as server:
            server.open_session()
            for era in Era:
                section.add(f"{era.name.lower()}, {name}", *_figures(server, era, calls))
    return section


def requests(server: HttpServer, era: Era, count: int) -> Iterator[bytes]:
    """Calls of the addition, one after the other; in the handshake era in the session that is open."""
    return islice(cycle([server.post(call(era, "add", number), era) for number in range(1, _IDS + 1)]), count)


def _figures(server: HttpServer, era: Era, calls: int) -> list[str]:
    clock = cpu_clock(server.process)
    with Crowd(server.port, CONNECTIONS) as crowd:
        list(crowd.ask(requests(server, era, calls // 10)))  # warm
        worked, start = clock(), perf_counter()
        answers = list(crowd.ask(requests(server, era, calls)))
        took, worked_later = perf_counter() - start, clock()
    seconds = [answer.seconds for answer in answers]
    cpu = "" if worked is None or worked_later is None else duration((worked_later - worked) / calls)
    errors = sum(not says_three(answer.text) for answer in answers)
    return [*map(duration, [*percentiles(seconds), max(seconds)]), cpu, f"{calls / took:,.0f}", f"{errors:,}"]
