"""What it costs to be watched: a call over streamable HTTP, with what is switched on

The servers are asked in turn, round after round, so that what else runs on the machine meets them all. A server's
processor time is that of all its threads, from the beginning of a round to that of the next: what is written later
counts. Which memory a process happens to get makes some hundredths, so that each is started more than once.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from statistics import median
from threading import Thread
from typing import TYPE_CHECKING

from tests.benchmarks.http_server import serving
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import TOOLS, cpu_clock
from tests.benchmarks.table import Ratios, Row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.benchmarks.http_server import HttpServer
    from tests.benchmarks.meter import Meter
    from tests.benchmarks.table import Table

STARTS = 4
ROUNDS = 8
CALLS = 1000
OFF = "nothing"
SPANS = 1000

METRICS, LOG, TRACES = ("--metrics",), ("--log-format", "json"), ("--traces",)
EACH = "of which each is kept"


class Watched:
    """A server with something switched on, and a connection to it.

    Args:
        server: The server.
        stack: Closes the connection.
    """

    def __init__(self, server: HttpServer, stack: ExitStack) -> None:
        self._connection = stack.enter_context(server.connect())
        self._request = server.post(call(Era.MODERN, "add"), Era.MODERN)
        self._clock: Callable[[], float | None] = cpu_clock(server.process)
        self.began: list[float] = []
        assert server.process.stderr is not None
        Thread(target=deque, args=(server.process.stderr, 0), daemon=True).start()  # somebody has to read the log

    def call(self, calls: int) -> None:
        """One round."""
        began = self._clock()
        if began is not None:
            self.began.append(began)
        for _ in range(calls):
            assert says_three(self._connection.answer(self._request))

    @property
    def cpu_seconds(self) -> list[float]:
        """How long a processor worked for a call, by rounds that were followed by another; the first warms it up."""
        return [(after - before) / CALLS for before, after in zip(self.began[1:], self.began[2:], strict=False)]


def bench_what_is_switched_on(
    tmp_path: Path, table: Table, heading: str, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")  # where traces go to is not what is measured

    def audit(name: str) -> tuple[str, str]:
        return "--audit-log", str(tmp_path / name)

    variants = {
        OFF: (),
        "nothing, once more": (),
        "--metrics": METRICS,
        "--log-format json": LOG,
        "--audit-log": audit("alone"),
        "--metrics --log-format json --audit-log": (*METRICS, *LOG, *audit("three")),
        "--traces, of which one call in a hundred is kept": TRACES,
        "all four": (*METRICS, *LOG, *audit("four"), *TRACES),
        f"--traces, {EACH}": TRACES,
        f"all four, {EACH}": (*METRICS, *LOG, *audit("each"), *TRACES),
    }
    is_measured = not pytestconfig.getoption("benchmark_disable")
    cpu_seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(STARTS if is_measured else 1):
        with ExitStack() as stack:
            watched = {}
            for name, options in variants.items():
                monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
                monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "1" if name.endswith(EACH) else "0.01")
                watched[name] = Watched(stack.enter_context(serving(TOOLS, *options)), stack)
            for _ in range(ROUNDS + 2 if is_measured else 1):
                for each in watched.values():
                    each.call(CALLS if is_measured else 1)
            for name, each in watched.items():
                cpu_seconds[name] += each.cpu_seconds
    if is_measured:
        _tell(table, heading, cpu_seconds)


def bench_a_span_alone(meter: Meter) -> None:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - as above

    from bridge.telemetry.conventions import SERVER_OPERATION_DURATION, TOOLS_CALL  # noqa: PLC0415 - for this alone
    from bridge.telemetry.measures import Metric, Peer, Series  # noqa: PLC0415 - as above

    series = Series(Metric(SERVER_OPERATION_DURATION), TOOLS_CALL, "add", Peer("http", Era.MODERN.value))
    attributes = {**series.labels, "jsonrpc.request.id": "1"}
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("benchmarks")

    def spans() -> None:
        for _ in range(SPANS):
            tracer.start_span(series.span_name, None, SpanKind.SERVER, attributes).end()

    meter.measure("a span of OpenTelemetry's SDK alone, with a call's attributes", spans, rounds=50, units=SPANS)


def _tell(table: Table, heading: str, cpu_seconds: dict[str, list[float]]) -> None:
    off = cpu_seconds[OFF]
    for name, each in cpu_seconds.items():
        if each:
            ratio = median(own / other for own, other in zip(each, off, strict=True))
            table.add(
                Row(
                    group=heading,
                    name=name,
                    best_seconds=min(each),
                    median_seconds=median(each),
                    cpu_seconds=median(each),
                    beside=OFF,
                    ratios=Ratios(time=ratio, cpu=ratio),
                )
            )
