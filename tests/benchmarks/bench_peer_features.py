"""Beside peers: resources and prompts

All serve the same text, template and prompt, and are asked in turn, round after round, as in `bench_peers.py`.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.messages import Era, line, request
from tests.benchmarks.peers import CONNECTIONS, OURS, ROUNDS, ROUTE, Cost, cost_over_http, served_over_http, tell
from tests.benchmarks.processes import LONG_SECONDS, PEER, running
from tests.benchmarks.stdio_server import StdioServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.http_server import HttpServer
    from tests.benchmarks.peers import Peers
    from tests.benchmarks.table import Table

REQUESTS = 500
KINDS: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "a read": ("resources/read", {"uri": "notes://today"}, b"It rains."),
    "a read by template": ("resources/read", {"uri": "notes://by/ada"}, b"A note of ada"),
    "a prompt": ("prompts/get", {"name": "review", "arguments": {"code": "x = 1"}}, b"Review this: x = 1"),
    "a list": ("resources/list", {}, b"notes://today"),
}
"""The method, its parameters, and a text that the response must contain."""


@pytest.mark.parametrize("era", Era)
def bench_features_over_http(
    table: Table, heading: str, every_kind: Path, peers: Peers, era: Era, pytestconfig: pytest.Config
) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    others = {name: peer for name, peer in peers.items() if name != ROUTE}
    count = REQUESTS if is_measured else CONNECTIONS
    with ExitStack() as stack:
        servers = served_over_http(stack, str(every_kind), others, era)
        for kind in KINDS:
            rounds = [
                {name: _cost_over_http(server, era, kind, count) for name, server in servers.items()}
                for _ in range(ROUNDS + 1 if is_measured else 1)
            ]
            if is_measured:
                tell(table, heading, f"HTTP, {era.value}, {kind}", rounds[1:])  # warm-up


def bench_features_over_stdio(
    table: Table, heading: str, every_kind: Path, peers: Peers, pytestconfig: pytest.Config
) -> None:
    is_measured = not pytestconfig.getoption("benchmark_disable")
    commands = {OURS: (sys.executable, ["-m", "bridge", "serve", str(every_kind)])}
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
                first = 1 + number * REQUESTS
                numbers = range(first, first + (REQUESTS if is_measured else 1))
                rounds.append({name: _cost_over_stdio(server, kind, numbers) for name, server in servers.items()})
            if is_measured:
                tell(table, heading, f"stdio, {kind}", rounds[1:])


def _cost_over_http(server: HttpServer, era: Era, kind: str, count: int) -> Cost:
    method, params, wanted = KINDS[kind]
    posts = [server.post(request(era, method, number, **params), era) for number in range(1, count + 1)]
    return cost_over_http(server, posts, count, lambda text: wanted in text)


def _cost_over_stdio(server: StdioServer, kind: str, numbers: range) -> Cost:
    method, params, wanted = KINDS[kind]
    lines = [line(request(Era.HANDSHAKE, method, number, **params)) for number in numbers]
    begun = perf_counter()
    for text in lines:
        assert wanted in server.answer(text)
    return Cost((perf_counter() - begun) / len(lines))
