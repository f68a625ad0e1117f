"""What it costs to be watched: a call over streamable HTTP, with what is switched on

The servers are asked in turn, round after round, so that what else runs on the machine meets them all; the server's
processor time is that of all its threads, of those that write logs too.
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
    from tests.benchmarks.table import Table

ROUNDS = 40
CALLS = 300
OFF = "nothing"


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
        self.cpu_seconds: list[float] = []
        assert server.process.stderr is not None
        Thread(target=deque, args=(server.process.stderr, 0), daemon=True).start()  # somebody has to read the log

    def call(self, calls: int) -> None:
        """One round."""
        before = self._clock()
        for _ in range(calls):
            assert says_three(self._connection.answer(self._request))
        after = self._clock()
        if before is not None and after is not None:
            self.cpu_seconds.append((after - before) / calls)


def bench_what_is_switched_on(
    tmp_path: Path, table: Table, heading: str, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")  # where traces go to is not what is measured

    def audit(name: str) -> tuple[str, str]:
        return "--audit-log", str(tmp_path / name)

    variants = {
        OFF: (),
        "--metrics": ("--metrics",),
        "--traces, of which one call in a hundred is kept": ("--traces",),
        "--audit-log": audit("alone"),
        "--log-format json": ("--log-format", "json"),
        "--metrics --traces --audit-log": ("--metrics", "--traces", *audit("together")),
        "--metrics --traces --audit-log --log-format json": (
            "--metrics", "--traces", *audit("all"), "--log-format", "json",
        ),
    }  # fmt: skip
    is_measured = not pytestconfig.getoption("benchmark_disable")
    with ExitStack() as stack:
        watched = {
            name: Watched(stack.enter_context(serving(TOOLS, *options)), stack) for name, options in variants.items()
        }
        for _ in range(ROUNDS if is_measured else 1):
            for each in watched.values():
                each.call(CALLS if is_measured else 1)
    if not is_measured:
        return
    off = watched[OFF].cpu_seconds
    for name, each in watched.items():
        if not each.cpu_seconds:
            continue
        ratio = median(own / other for own, other in zip(each.cpu_seconds, off, strict=True))
        table.add(
            Row(
                group=heading,
                name=name,
                best_seconds=min(each.cpu_seconds),
                median_seconds=median(each.cpu_seconds),
                cpu_seconds=median(each.cpu_seconds),
                beside=OFF,
                ratios=Ratios(time=ratio, cpu=ratio),
            )
        )
