"""Over streamable HTTP: a real process, connections that are kept"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.http_server import HttpServer, serving
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import TOOLS, cpu_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.meter import Meter

CALLS = 1500
CONNECTIONS = 16


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with serving(TOOLS) as server:
        server.open_session()
        yield server


@pytest.mark.parametrize(
    ("tool", "kind", "meta"),
    [
        ("add", "async tool", {}),
        ("add_in_place", "sync tool, run_in_thread=False", {}),
        ("add_in_thread", "sync tool in a thread", {}),
        ("add_in_context", "async tool with a context", {}),
        ("add_and_report", "async tool, progress not asked for", {}),
        ("add_and_report", "async tool, progress asked for, through the SDK", {"progressToken": 1}),
    ],
)
@pytest.mark.parametrize("era", Era)
def bench_call(meter: Meter, server: HttpServer, era: Era, tool: str, kind: str, meta: dict[str, int]) -> None:
    with server.connect() as connection:
        raw = server.post(call(era, tool, **meta), era)
        assert says_three(answer := connection.answer(raw)), answer
        meter.measure(
            f"tools/call, {era.name.lower()}: {kind}",
            lambda: connection.answer(raw),
            rounds=CALLS,
            warmup_rounds=100,
            beside=f"tools/call, {era.name.lower()}: async tool",
            cpu_seconds=cpu_clock(server.process),
        )


@pytest.mark.parametrize("era", Era)
def bench_calls_over_many_connections(meter: Meter, server: HttpServer, era: Era) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(CONNECTIONS)]
        requests = [server.post(call(era, "add", number), era) for number in range(1, CONNECTIONS + 1)]

        def ask_all() -> None:
            for connection, raw in zip(connections, requests, strict=True):
                connection.send(raw)
            for connection in connections:
                assert says_three(connection.receive())

        meter.measure(
            f"tools/call, {era.name.lower()}: on {CONNECTIONS} connections at once, each",
            ask_all,
            rounds=CALLS // CONNECTIONS,
            units=CONNECTIONS,
            beside=f"tools/call, {era.name.lower()}: async tool",
            cpu_seconds=cpu_clock(server.process),
        )
