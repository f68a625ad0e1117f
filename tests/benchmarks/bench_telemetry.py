"""Cost of observing: a call over streamable HTTP, with what is switched on

The servers are in one process, and are measured in turn, round after round, so that other load on the machine affects
all of them. The processor time is that of all threads of the process, until everything is counted and written.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from tests.benchmarks.http_server import Connection, bearing, post
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import running
from tests.benchmarks.table import Ratios, Row

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.benchmarks.meter import Meter
    from tests.benchmarks.table import Table

STARTS = 3
ROUNDS = 20
CALLS = 500
OFF = "nothing"
SPANS = 1000

EACH = "of which each is kept"


class Cost(NamedTuple):
    """Seconds of a call."""

    time: float
    """Seconds for which the client waited."""
    cpu: float
    """Processor seconds of the server, during the call and afterwards."""


class Watched:
    """The servers.

    Args:
        process: Their process.
        stack: Closes the connections to them.
    """

    def __init__(self, process: subprocess.Popen[bytes], stack: ExitStack) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input: IO[bytes] = process.stdin
        self._output: IO[bytes] = process.stdout
        request = post(call(Era.MODERN, "add"), Era.MODERN)
        reached: dict[str, tuple[int, str | None]] = json.loads(self._output.readline())
        self._ways = {
            name: (stack.enter_context(Connection(port)), bearing(credential, request) if credential else request)
            for name, (port, credential) in reached.items()
        }
        self._worked_seconds = self._clock()

    def call(self, name: str, calls: int) -> Cost:
        """Call one of the servers repeatedly, one call after the other."""
        (connection, request), begun_at = self._ways[name], perf_counter()
        for _ in range(calls):
            assert says_three(connection.answer(request))
        seconds = perf_counter() - begun_at
        before, self._worked_seconds = self._worked_seconds, self._clock()
        return Cost(seconds / calls, (self._worked_seconds - before) / calls)

    def _clock(self) -> float:
        self._input.write(b"\n")
        self._input.flush()
        return float(self._output.readline())


def bench_what_is_switched_on(tmp_path: Path, table: Table, heading: str, pytestconfig: pytest.Config) -> None:
    def watching(name: str, share: float | None = None) -> dict[str, Any]:
        return {"metrics": True, "log": True, "audit_log": str(tmp_path / name), "traced_share": share}

    variants: dict[str, dict[str, Any]] = {
        OFF: {},
        "nothing, once more": {},
        "--metrics": {"metrics": True},
        "--log-format json": {"log": True},
        "--audit-log": {"audit_log": str(tmp_path / "alone")},
        "--metrics --log-format json --audit-log": watching("three"),
        "--traces, of which one call in a hundred is kept": {"traced_share": 0.01},
        "all four": watching("four", 0.01),
        f"--traces, {EACH}": {"traced_share": 1},
        f"all four, {EACH}": watching("each", 1),
        "--rate": {"limits": {"rate": 10**9}},
        "--concurrency": {"limits": {"concurrency": 64}},
        "a key": {"credential": "key"},
        "a JWT": {"credential": "jwt"},
        "--metrics --traces, of which one call in a hundred is kept": {"metrics": True, "traced_share": 0.01},
        "a JWT, and these": {"credential": "jwt", "metrics": True, "traced_share": 0.01},
    }
    # The destination of traces is not measured.
    environment = os.environ | {"OTEL_TRACES_EXPORTER": "none", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
    is_measured = not pytestconfig.getoption("benchmark_disable")
    costs: dict[str, list[Cost]] = {name: [] for name in variants}
    for _ in range(STARTS if is_measured else 1):
        with ExitStack() as stack:
            # The log needs a reader; a file costs the servers no more than a pipe, and other processes nothing.
            pipes: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": stack.enter_context((tmp_path / "log").open("wb")),
            }
            command = ("-m", "tests.benchmarks.watched_server", json.dumps(variants))
            watched = Watched(stack.enter_context(running(*command, env=environment, **pipes)), stack)
            for number in range(ROUNDS + 1 if is_measured else 1):
                for name in variants:
                    cost = watched.call(name, CALLS if is_measured else 1)
                    if number > 0:  # warm-up
                        costs[name].append(cost)
    if is_measured:
        for name, each in costs.items():
            _tell(table, heading, name, each, costs[OFF])


def bench_a_span_alone(meter: Meter) -> None:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - as above

    from bridge.telemetry.conventions import SERVER_OPERATION_DURATION, TOOLS_CALL  # noqa: PLC0415 - for this alone
    from bridge.telemetry.instruments import Instruments, OperationSeries, Peer  # noqa: PLC0415 - as above

    durations = Instruments().durations[SERVER_OPERATION_DURATION]
    series = OperationSeries(durations, TOOLS_CALL, "add", Peer("http", Era.MODERN.value))
    attributes = {**series.labels, "jsonrpc.request.id": "1"}
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("benchmarks")

    def spans() -> None:
        for _ in range(SPANS):
            tracer.start_span(series.span_name, None, SpanKind.SERVER, attributes).end()

    meter.measure("a span of OpenTelemetry's SDK alone, with a call's attributes", spans, rounds=50, units=SPANS)


def _tell(table: Table, heading: str, name: str, costs: list[Cost], off: list[Cost]) -> None:
    ratios = [(own.time / other.time, own.cpu / other.cpu) for own, other in zip(costs, off, strict=True)]
    table.add(
        Row(
            group=heading,
            name=name,
            best_seconds=min(cost.time for cost in costs),
            median_seconds=median(cost.time for cost in costs),
            cpu_seconds=median(cost.cpu for cost in costs),
            beside=OFF,
            ratios=Ratios(time=median(time for time, _ in ratios), cpu=median(cpu for _, cpu in ratios)),
        )
    )
