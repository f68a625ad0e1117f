"""Latency under load: connections that are never idle, and calls at a steady pace."""

from __future__ import annotations

from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING

from tests.benchmarks.http_server import serving
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.pace import Pace
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import TOOLS, cpu_clock
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.http_server import HttpServer
    from tests.benchmarks.load.pace import Outcome

CONNECTIONS = 16
_PACES = (500, 1000, 2000, 4000)
"""Calls a second, few enough for one client to send them on time."""
_KEPT_CALLS = 1000
_IDS = 1000
"""Number of IDs before they repeat; no two open requests have the same."""


def measure(calls: int) -> list[Section]:
    """Measure latency without pauses, and at several paces.

    Args:
        calls: Calls of a row; at a pace, for each thousand of calls a second.
    """
    return [_saturated(calls), _paced(calls)]


def _saturated(calls: int) -> Section:
    section = Section(
        f"Latency of {calls:,} calls over {CONNECTIONS} connections that are never idle",
        *("p50", "p90", "p99", "worst", "server CPU", "calls a second", "errors"),
    )
    with serving(TOOLS) as server:
        server.open_session()
        for era in Era:
            section.add(era.name.lower(), *_figures(server, era, calls))
    return section


def _paced(calls: int) -> Section:
    section = Section(
        "Latency of calls that come steadily, from when each should have begun",
        *("calls", "p50", "p90", "p99", "worst", "sent late, p99", "server CPU", "errors"),
    )
    with serving(TOOLS) as server:
        server.open_session()
        for era in Era:
            _at_pace(server, era, _PACES[0], calls)  # warm-up
            for calls_a_second in _PACES:
                clock = cpu_clock(server.process)
                worked, start = clock(), perf_counter()
                outcomes = _at_pace(server, era, calls_a_second, calls)
                worked_later, took = clock(), perf_counter() - start
                seconds = [outcome.seconds for outcome in outcomes]
                section.add(
                    f"{era.name.lower()}, {calls_a_second:,} a second",
                    f"{len(outcomes):,}",
                    *map(duration, [*percentiles(seconds), max(seconds)]),
                    duration(percentiles([outcome.late_seconds for outcome in outcomes])[-1]),
                    "" if worked is None or worked_later is None else f"{(worked_later - worked) / took:.0%}",
                    f"{sum(not says_three(outcome.text) for outcome in outcomes):,}",
                )
    return section


def _at_pace(server: HttpServer, era: Era, calls_a_second: int, calls: int) -> list[Outcome]:
    with Pace(server.port, calls_a_second, _KEPT_CALLS) as pace:
        return list(pace.ask(requests(server, era, calls * calls_a_second // 1000)))


def requests(server: HttpServer, era: Era, count: int) -> Iterator[bytes]:
    """Return calls of the addition; in the handshake era in the session that is open."""
    return islice(cycle([server.post(call(era, "add", number), era) for number in range(1, _IDS + 1)]), count)


def _figures(server: HttpServer, era: Era, calls: int) -> list[str]:
    clock = cpu_clock(server.process)
    with Crowd(server.port, CONNECTIONS) as crowd:
        list(crowd.ask(requests(server, era, calls // 10)))  # warm-up
        worked, start = clock(), perf_counter()
        answers = list(crowd.ask(requests(server, era, calls)))
        took, worked_later = perf_counter() - start, clock()
    seconds = [answer.seconds for answer in answers]
    cpu = "" if worked is None or worked_later is None else duration((worked_later - worked) / calls)
    errors = sum(not says_three(answer.text) for answer in answers)
    return [*map(duration, [*percentiles(seconds), max(seconds)]), cpu, f"{calls / took:,.0f}", f"{errors:,}"]
