"""Beside peers: resources and prompts

All serve the same tool, text, template and prompt, and are measured in turn, round after round, as in `bench_peers.py`.
The limit, a bare protocol, does the same without MCP.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.messages import KINDS, Era, line, request
from tests.benchmarks.peers import (
    CONNECTIONS,
    LIMIT,
    OURS,
    ROUNDS,
    ROUTE,
    Cost,
    cost_over_http,
    served_over_http,
    tell,
)
from tests.benchmarks.processes import FEATURES, LONG_SECONDS, PEER, running
from tests.benchmarks.stdio_server import StdioServer

if TYPE_CHECKING:
    from tests.benchmarks.http_server import HttpServer
    from tests.benchmarks.peers import Peers
    from tests.benchmarks.table import Table

REQUESTS = 1000
FIRST_ID = 1000
"""IDs of the same length: a client's next one seldom has another."""


@pytest.mark.parametrize("era", Era)
def bench_features_over_http(table: Table, heading: str, peers: Peers, era: Era, pytestconfig: pytest.Config) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    others = {name: peer for name, peer in peers.items() if name != ROUTE} | {LIMIT: (sys.executable, "limit")}
    count = REQUESTS if is_measured else CONNECTIONS
    with ExitStack() as stack:
        servers = served_over_http(stack, FEATURES, others, era)
        for kind in KINDS:
            rounds = [
                {name: _cost_over_http(server, era, kind, count) for name, server in servers.items()}
                for _ in range(ROUNDS + 1 if is_measured else 1)
            ]
            if is_measured:
                tell(table, heading, f"HTTP, {era.value}, {kind}", rounds[1:])  # warm-up


def bench_features_over_stdio(table: Table, heading: str, peers: Peers, pytestconfig: pytest.Config) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    commands = {OURS: (sys.executable, ["-m", "bridge", "serve", FEATURES])}
    commands |= {name: (python, [PEER, word, "stdio"]) for name, (python, word) in peers.items() if name != ROUTE}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        servers: dict[str, StdioServer] = {}
        for name, (python, command) in commands.items():
            process = stack.enter_context(running(*command, python=python, limit_seconds=LONG_SECONDS, **pipes))
            servers[name] = StdioServer(process)
            servers[name].open(Era.HANDSHAKE)
        for kind in KINDS:
            rounds: list[dict[str, Cost]] = []
            for number in range(ROUNDS + 1 if is_measured else 1):
                first = FIRST_ID + number * REQUESTS
                numbers = range(first, first + (REQUESTS if is_measured else 1))
                rounds.append({name: _cost_over_stdio(server, kind, numbers) for name, server in servers.items()})
            if is_measured:
                tell(table, heading, f"stdio, {kind}", rounds[1:])


def _cost_over_http(server: HttpServer, era: Era, kind: str, count: int) -> Cost:
    method, params, wanted = KINDS[kind]
    posts = [server.post(request(era, method, number, **params), era) for number in range(FIRST_ID, FIRST_ID + count)]
    return cost_over_http(server, posts, count, lambda text: wanted in text)


def _cost_over_stdio(server: StdioServer, kind: str, numbers: range) -> Cost:
    method, params, wanted = KINDS[kind]
    lines = [line(request(Era.HANDSHAKE, method, number, **params)) for number in numbers]
    begun = perf_counter()
    for text in lines:
        assert wanted in server.answer(text)
    return Cost((perf_counter() - begun) / len(lines))
