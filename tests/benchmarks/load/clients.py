"""Many clients that call a waiting tool at once, directly and through a gateway."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from tests.benchmarks.http_server import HttpServer, serving
from tests.benchmarks.load.crowd import Answer, Crowd
from tests.benchmarks.load.gateway import passing
from tests.benchmarks.load.memory import mib, peak_kib, resident_kib
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.load.sessions import open_sessions
from tests.benchmarks.load.tools import TOOL_SECONDS
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import cpu_clock
from tests.benchmarks.table import duration

_SLOW_TOOLS = str(Path(__file__).with_name("tools.py"))
_BURSTS = 5


def measure(count: int) -> Section:
    """Let all clients call at once, several times; in the handshake era each has a session of its own.

    Args:
        count: Number of clients.
    """
    section = Section(
        f"{count:,} clients at once, {_BURSTS} times, call a tool that takes {duration(TOOL_SECONDS)}",
        *(
            "all, best",
            "all, median",
            "each, p50",
            "p90",
            "p99",
            "server CPU",
            "errors",
            "memory before",
            "at its peak",
        ),
    )
    for era in Era:
        with serving(_SLOW_TOOLS) as server:
            section.add(era.name.lower(), *_figures(server, era, count))
        with (
            serving(_SLOW_TOOLS) as server,
            passing({"server": {"url": f"http://127.0.0.1:{server.port}/mcp"}}) as gateway,
        ):
            section.add(f"{era.name.lower()}, through a gateway", *_figures(gateway, era, count))
    return section


def _figures(server: HttpServer, era: Era, count: int) -> list[str]:
    with Crowd(server.port, count) as crowd:
        requests = _requests(server, era, count)
        clock = cpu_clock(server.process)
        before, worked = resident_kib(server.process), clock()
        bursts = [_burst(crowd, requests) for _ in range(_BURSTS)]
        worked_later = clock()
        totals = sorted(seconds for seconds, _ in bursts)
        answers = [answer for _, burst in bursts for answer in burst]
        cpu = None if worked is None or worked_later is None else (worked_later - worked) / len(answers)
        return [
            duration(totals[0]),
            duration(totals[_BURSTS // 2]),
            *map(duration, percentiles([answer.seconds for answer in answers])),
            "" if cpu is None else duration(cpu),
            f"{sum(not says_three(answer.text) for answer in answers):,}",
            mib(before),
            mib(peak_kib(server.process)),
        ]


def _requests(server: HttpServer, era: Era, count: int) -> list[bytes]:
    message = call(era, "add_slowly")
    if era is Era.MODERN:
        return [server.post(message, era)] * count
    return [server.post(message, era, session_id) for session_id in open_sessions(server, count)]


def _burst(crowd: Crowd, requests: list[bytes]) -> tuple[float, list[Answer]]:
    start = perf_counter()
    answers = list(crowd.ask(requests))
    return perf_counter() - start, answers
