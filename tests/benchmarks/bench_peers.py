"""Beside peers: one tool that adds two integers

All serve the same tool, and are asked in turn, round after round. FastMCP is installed into a cache folder; where that
cannot be done, it is left out. The bare route is one of Starlette that validates, adds and answers.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.benchmarks.http_server import HttpServer, serving
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.latency import requests
from tests.benchmarks.load.memory import resident_kib
from tests.benchmarks.messages import Era, call, line, says_three
from tests.benchmarks.processes import LONG_SECONDS, PEER, cpu_clock, running
from tests.benchmarks.stdio_server import StdioServer
from tests.benchmarks.table import Ratios, Row
from tests.interop.packages import fastmcp_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.benchmarks.table import Table

OURS, OFFICIAL, FASTMCP, ROUTE = "bridge", "official SDK", "FastMCP", "bare route"
CONNECTIONS = 16
ROUNDS = 8
CALLS = 2000


class Cost(NamedTuple):
    """What one of a round took, in seconds."""

    time: float
    cpu: float | None = None
    """How long a processor worked for the server; None where that is not measured."""


@pytest.fixture(scope="module")
def pythons(request: pytest.FixtureRequest) -> Mapping[str, tuple[str, str]]:
    """The Python and the word of `peer_server.py` for each peer that can be had."""
    found = {OFFICIAL: (sys.executable, "official"), ROUTE: (sys.executable, "route")}
    if request.config.getoption("--benchmark-disable"):
        return found
    try:
        return found | {FASTMCP: (fastmcp_python(), "fastmcp")}
    except pytest.skip.Exception:
        return found


@pytest.mark.parametrize("era", Era)
def bench_calls_over_http(
    table: Table,
    heading: str,
    one_tool: Path,
    pythons: Mapping[str, tuple[str, str]],
    era: Era,
    pytestconfig: pytest.Config,
) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    with ExitStack() as stack:
        servers = {OURS: stack.enter_context(serving(str(one_tool), limit_seconds=LONG_SECONDS))}
        for name, (python, word) in pythons.items():
            if era is Era.MODERN or name != ROUTE:
                command = (PEER, word, "http", *(["sessions"] if era is Era.HANDSHAKE else []))
                process = stack.enter_context(
                    running(*command, python=python, limit_seconds=LONG_SECONDS, stderr=subprocess.PIPE)
                )
                servers[name] = HttpServer(process)
        if era is Era.HANDSHAKE:
            for server in servers.values():
                server.open_session()
        rounds: list[dict[str, Cost]] = []
        for _ in range(ROUNDS + 1 if is_measured else 1):
            calls = CALLS if is_measured else CONNECTIONS
            rounds.append({name: _calls(server, era, calls) for name, server in servers.items()})
    if is_measured:
        _tell(table, heading, f"HTTP, {era.value}, a call", rounds[1:])  # the first warms them up


def bench_stdio(
    table: Table, heading: str, one_tool: Path, pythons: Mapping[str, tuple[str, str]], pytestconfig: pytest.Config
) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    commands = {OURS: (sys.executable, ["-m", "bridge", "serve", str(one_tool)])}
    commands |= {name: (python, [PEER, word, "stdio"]) for name, (python, word) in pythons.items() if name != ROUTE}
    starts: list[dict[str, Cost]] = []
    calls: list[dict[str, Cost]] = []
    memory: dict[str, int] = {}
    for _ in range(ROUNDS if is_measured else 1):
        start: dict[str, Cost] = {}
        called: dict[str, Cost] = {}
        for name, (python, command) in commands.items():
            begun = perf_counter()
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            with running(*command, python=python, **pipes) as process:
                server = StdioServer(process)
                assert b'"add"' in server.list_first(Era.HANDSHAKE)
                start[name] = Cost(perf_counter() - begun)
                called[name] = _calls_over_stdio(server, CALLS // 4 if is_measured else 1)
                memory[name] = resident_kib(process)
        starts.append(start)
        calls.append(called)
    if is_measured:
        _tell(table, heading, "stdio, from start to the first list", starts, memory)
        _tell(table, heading, "stdio, a call", calls)


def _calls(server: HttpServer, era: Era, calls: int) -> Cost:
    clock = cpu_clock(server.process)
    with Crowd(server.port, CONNECTIONS) as crowd:
        worked, begun = clock(), perf_counter()
        answers = list(crowd.ask(requests(server, era, calls)))
        took, worked_later = perf_counter() - begun, clock()
    wrong = [each.text for each in answers if not says_three(each.text)]
    assert wrong == [], wrong[0]
    return Cost(took / calls, None if worked is None or worked_later is None else (worked_later - worked) / calls)


def _calls_over_stdio(server: StdioServer, calls: int) -> Cost:
    lines = [line(call(Era.HANDSHAKE, "add", number)) for number in range(2, calls + 2)]
    begun = perf_counter()
    for text in lines:
        assert says_three(server.answer(text))
    return Cost((perf_counter() - begun) / calls)


def _tell(
    table: Table, heading: str, what: str, rounds: list[dict[str, Cost]], memory: Mapping[str, int] | None = None
) -> None:
    for name in rounds[0]:
        costs = [each[name] for each in rounds]
        worked = [cost.cpu for cost in costs if cost.cpu is not None]
        table.add(
            Row(
                group=heading,
                name=f"{what}: {name}",
                best_seconds=min(cost.time for cost in costs),
                median_seconds=median(cost.time for cost in costs),
                cpu_seconds=median(worked) if worked else None,
                memory_kib=None if memory is None else memory[name],
                beside=f"{what}: {OURS}",
                ratios=Ratios(
                    time=median(each[name].time / each[OURS].time for each in rounds),
                    cpu=_ratio([(each[name].cpu, each[OURS].cpu) for each in rounds]),
                ),
            )
        )


def _ratio(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    known = [own / ours for own, ours in pairs if own is not None and ours]
    return median(known) if known else None
