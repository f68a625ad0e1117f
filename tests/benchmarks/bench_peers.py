"""Beside peers: one tool that adds two integers

All serve the same tool, and are measured in turn, round after round. FastMCP is installed into a cache folder; if that
fails, it is left out. The bare route is a Starlette route that validates, adds and answers.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.load.latency import requests
from tests.benchmarks.load.memory import resident_kib
from tests.benchmarks.messages import Era, call, line, says_three
from tests.benchmarks.peers import (
    CALLS,
    CONNECTIONS,
    OURS,
    ROUNDS,
    ROUTE,
    Cost,
    cost_over_http,
    served_over_http,
    tell,
)
from tests.benchmarks.processes import PEER, running
from tests.benchmarks.stdio_server import StdioServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.http_server import HttpServer
    from tests.benchmarks.peers import Peers
    from tests.benchmarks.table import Table


@pytest.mark.parametrize("era", Era)
def bench_calls_over_http(
    table: Table,
    heading: str,
    one_tool: Path,
    peers: Peers,
    era: Era,
    pytestconfig: pytest.Config,
) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    with ExitStack() as stack:
        servers = served_over_http(stack, str(one_tool), peers, era)
        rounds: list[dict[str, Cost]] = []
        for _ in range(ROUNDS + 1 if is_measured else 1):
            calls = CALLS if is_measured else CONNECTIONS
            rounds.append({name: _calls(server, era, calls) for name, server in servers.items()})
    if is_measured:
        tell(table, heading, f"HTTP, {era.value}, a call", rounds[1:])  # warm-up


def bench_stdio(table: Table, heading: str, one_tool: Path, peers: Peers, pytestconfig: pytest.Config) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    commands = {OURS: (sys.executable, ["-m", "bridge", "serve", str(one_tool)])}
    commands |= {name: (python, [PEER, word, "stdio"]) for name, (python, word) in peers.items() if name != ROUTE}
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
        tell(table, heading, "stdio, from start to the first list", starts, memory)
        tell(table, heading, "stdio, a call", calls)


def _calls(server: HttpServer, era: Era, calls: int) -> Cost:
    return cost_over_http(server, requests(server, era, calls), calls, says_three)


def _calls_over_stdio(server: StdioServer, calls: int) -> Cost:
    lines = [line(call(Era.HANDSHAKE, "add", number)) for number in range(2, calls + 2)]
    begun = perf_counter()
    for text in lines:
        assert says_three(server.answer(text))
    return Cost((perf_counter() - begun) / calls)
