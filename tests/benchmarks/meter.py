"""Measurement by pytest-benchmark, whose figures are recorded in the table of the run."""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from tests.benchmarks.table import Ratios, Row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.benchmarks.table import Table

_ROUNDS_FOR_P99 = 200
_CALLS_IN_A_ROUND = 1000


class _Timed:
    """A function, and the seconds of each of its rounds."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []

    def __call__(self) -> None:
        began, worked = perf_counter(), process_time()
        self._function()
        self.seconds.append(perf_counter() - began)
        self.cpu_seconds.append(process_time() - worked)


class Meter:
    """Measures one benchmark.

    Args:
        benchmark: The fixture of pytest-benchmark.
        table: Receives the figures.
        group: Heading of the figures.
    """

    def __init__(self, benchmark: Any, table: Table, group: str) -> None:
        self._benchmark = benchmark
        self._table = table
        self._group = group

    def measure(
        self,
        name: str,
        function: Callable[..., object],
        *,
        rounds: int,
        warmup_rounds: int = 1,
        units: int = 1,
        beside: str | None = None,
        cpu_seconds: Callable[[], float | None] = lambda: None,
        setup: Callable[[], object] | None = None,
        teardown: Callable[..., object] | None = None,
    ) -> None:
        """Run a function round after round.

        Args:
            name: Name of the figure.
            function: One round, called with the arguments that ``setup`` returns as pytest-benchmark expects them.
            rounds: Number of rounds that count.
            warmup_rounds: Number of rounds before them, which do not count.
            units: Units of work in one round; the figures are those of one unit.
            beside: Name of an earlier figure of the same group with which this one is compared.
            cpu_seconds: Returns the server's processor seconds so far.
            setup: Called before each round, and not measured.
            teardown: Called after each round with the arguments of the function, and not measured.
        """
        before = cpu_seconds()
        self._benchmark.pedantic(function, rounds=rounds, warmup_rounds=warmup_rounds, setup=setup, teardown=teardown)
        after = cpu_seconds()
        if self._benchmark.stats is None:  # --benchmark-disable: it ran once, as a test
            return
        took = sorted(seconds / units for seconds in self._benchmark.stats.stats.data)
        worked = None if before is None or after is None else (after - before) / (rounds + warmup_rounds) / units
        self._table.add(
            Row(
                group=self._group,
                name=name,
                best_seconds=took[0],
                median_seconds=took[len(took) // 2],
                # The maximum of few rounds is chance, and that of many units together is not visible.
                p99_seconds=took[len(took) * 99 // 100] if units == 1 and rounds >= _ROUNDS_FOR_P99 else None,
                cpu_seconds=worked,
                beside=beside,
            )
        )

    def compare(
        self,
        name: str,
        function: Callable[[], object],
        other_name: str,
        other_function: Callable[[], object],
        *,
        rounds: int,
        warmup_rounds: int = 1,
        units: int = 1,
    ) -> None:
        """Run two functions in turn, round after round; the order changes after each round.

        Args:
            name: Name of the figure.
            function: One round of it.
            other_name: Name of the figure that it is compared with.
            other_function: One round of that.
            rounds: Number of rounds of each that count.
            warmup_rounds: Number of rounds before them, which do not count.
            units: Units of work in one round; the figures are those of one unit.
        """
        other, own = _Timed(other_function), _Timed(function)
        turns = [other, own]

        def both() -> None:
            for turn in turns:
                turn()
            turns.reverse()

        self._benchmark.pedantic(both, rounds=rounds, warmup_rounds=warmup_rounds)
        if self._benchmark.stats is None:
            return
        ratios = Ratios(
            time=_ratio(own.seconds[warmup_rounds:], other.seconds[warmup_rounds:]),
            cpu=_ratio(own.cpu_seconds[warmup_rounds:], other.cpu_seconds[warmup_rounds:]),
        )
        for timed, row_name in ((other, other_name), (own, name)):
            took = [seconds / units for seconds in timed.seconds[warmup_rounds:]]
            self._table.add(
                Row(
                    group=self._group,
                    name=row_name,
                    best_seconds=min(took),
                    median_seconds=median(took),
                    beside=other_name,
                    ratios=ratios,
                )
            )

    def measure_calls(
        self,
        name: str,
        call: Callable[[], Awaitable[object]],
        *,
        calls: int = _CALLS_IN_A_ROUND,
        rounds: int = 100,
        beside: str | None = None,
    ) -> None:
        """Await something repeatedly in an event loop; the figures are those of one call.

        Args:
            name: Name of the figure.
            call: Returns the awaitable; it is called within the measured time.
            calls: Calls of one round.
            rounds: Number of rounds that count.
            beside: Name of an earlier figure of the same group with which this one is compared.
        """

        async def repeat() -> None:
            for _ in range(calls):
                await call()

        with asyncio.Runner() as runner:
            self.measure(name, lambda: runner.run(repeat()), rounds=rounds, units=calls, beside=beside)


def _ratio(own: list[float], other: list[float]) -> float:
    """Return the ratio of two figures, round by round."""
    return median(mine / its for mine, its in zip(own, other, strict=True) if its > 0)
