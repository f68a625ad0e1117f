"""Servers of peers beside ours, and the time of a request to each of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from tests.benchmarks.http_server import HttpServer, serving
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.messages import Era
from tests.benchmarks.processes import LONG_SECONDS, PEER, cpu_clock, running
from tests.benchmarks.table import Ratios, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import ExitStack

    from tests.benchmarks.table import Table

OURS, OFFICIAL, FASTMCP, ROUTE, LIMIT = "bridge", "official SDK", "FastMCP", "bare route", "bare protocol"
CONNECTIONS = 16
ROUNDS = 8
CALLS = 2000

Peers = Mapping[str, tuple[str, str]]
"""Return the Python and the argument of `peer_server.py` for each peer that can be installed."""


class Cost(NamedTuple):
    """Seconds of one request, by round."""

    time: float
    cpu: float | None = None
    """Processor seconds of the server; None if they are not measured."""


def served_over_http(stack: ExitStack, path: str, peers: Peers, era: Era) -> dict[str, HttpServer]:
    """Serve a file, and the same by the peers; in the handshake era each has a session."""
    servers = {OURS: stack.enter_context(serving(path, limit_seconds=LONG_SECONDS))}
    for name, (python, word) in peers.items():
        if era is Era.MODERN or name not in (ROUTE, LIMIT):
            command = (PEER, word, "http", *(["sessions"] if era is Era.HANDSHAKE else []))
            process = stack.enter_context(
                running(*command, python=python, limit_seconds=LONG_SECONDS, stderr=subprocess.PIPE)
            )
            servers[name] = HttpServer(process)
    if era is Era.HANDSHAKE:
        for server in servers.values():
            server.open_session()
    return servers


def cost_over_http(
    server: HttpServer, requests: Iterable[bytes], count: int, is_right: Callable[[bytes], bool]
) -> Cost:
    """Send requests over all connections, and check their responses."""
    clock = cpu_clock(server.process)
    with Crowd(server.port, CONNECTIONS) as crowd:
        worked, begun = clock(), perf_counter()
        answers = list(crowd.ask(requests))
        took, worked_later = perf_counter() - begun, clock()
    wrong = [each.text for each in answers if not is_right(each.text)]
    assert wrong == [], wrong[0]
    return Cost(took / count, None if worked is None or worked_later is None else (worked_later - worked) / count)


def tell(
    table: Table, heading: str, what: str, rounds: list[dict[str, Cost]], memory: Mapping[str, int] | None = None
) -> None:
    """Add a row for each peer, beside ours."""
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
