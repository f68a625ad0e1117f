"""Minutes of steady load, while workers end and a server is replaced: lost calls, repeated calls, latency and memory.

The servers run as in production: several workers, a key, metrics and limits, and Redis for sessions if it is installed.
The rate is far below the maximum of the machine, and no call is repeated.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.load.held_calls import CALLS_A_SECOND, KEY, SESSIONS, HeldCalls, Tally
from tests.benchmarks.load.held_tools import JOURNAL, LARGE_BYTES, WAIT_SECONDS
from tests.benchmarks.load.memory import Usage, mib
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.load.upkeep import WORKERS, Record, Upkeep
from tests.benchmarks.messages import Era
from tests.benchmarks.table import duration
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOLD = {
    "add": "an addition",
    "wait": f"what waits {duration(WAIT_SECONDS)}",
    "large": f"a text of {LARGE_BYTES // 1024} KiB, in a thread",
}
"""Names of the tools in the report."""

_MOST_PARTS = 10
_FEWEST_PARTS = 4
_SHORTEST_PART_SECONDS = 6.0
"""Minimum seconds of a part, if there are more than `_FEWEST_PARTS`: a worker is replaced within one."""
_EXPECTED = re.compile(r'worker \d+ ended \(exit code 0\); restarting it|\d+ workers: |\{"mcpServers": ')
"""Expected lines on standard error."""


def measure(seconds: float) -> list[Section]:
    """Apply a steady load, and replace workers and servers meanwhile.

    Args:
        seconds: Duration; extended until all replacements are done.

    Returns:
        The calls by time and by tool, the memory, and a summary, which reports what is not as expected.
    """
    parts = max(_FEWEST_PARTS, min(_MOST_PARTS, int(seconds / _SHORTEST_PART_SECONDS)))
    part_seconds = seconds / parts
    has_redis = shutil.which("redis-server") is not None
    clients = f"both eras, {SESSIONS} sessions" if has_redis else "2026-07-28 alone, for redis-server is not installed"
    section = Section(
        f"{CALLS_A_SECOND} calls a second of {clients}, at {WORKERS} workers",
        *("calls", "lost", "run twice", "p50", "p90", "p99", "max"),
        *("workers' memory", "private", "descriptors", "meanwhile"),
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal = folder / "journal"
        environment = {"BRIDGE_API_KEY": KEY, "BRIDGE_STATE_KEYS": KEY, JOURNAL: str(journal)}
        if has_redis:
            environment["BRIDGE_REDIS_URL"] = stack.enter_context(redis_server(folder)).url
        upkeep = stack.enter_context(Upkeep(parts, part_seconds, environment))
        calls = HeldCalls(upkeep.port, tuple(Era) if has_redis else (Era.MODERN,))
        tallies = calls.make(upkeep, seconds, part_seconds)
        upkeep.end()
        runs = Counter(map(int, journal.read_text(encoding="utf-8").split()))
    held = Held(
        tallies=tallies,
        run_twice=[number for number, times in runs.items() if times > 1],
        record=upkeep.record,
        part_seconds=part_seconds,
    )
    held.fill(section)
    return [section, held.tools(), held.usage(), held.verdict()]


@dataclass(frozen=True, kw_only=True)
class Held:
    """Results of the whole load."""

    tallies: list[Tally]
    """Results of the calls, by part."""
    run_twice: list[int]
    """Calls that ran more than once, by the tools' own journal."""
    record: Record
    """Replacements of workers and servers."""
    part_seconds: float

    def fill(self, section: Section) -> None:
        """Add a row for the calls of each part, with the replacements and the memory of that part."""
        twice = Counter(self._part(number / CALLS_A_SECOND) for number in self.run_twice)
        for part, (tally, sample) in enumerate(zip(self.tallies, self.record.samples, strict=True)):
            seconds = tally.all_seconds
            counts = (f"{len(seconds):,}", f"{len(tally.lost):,}", f"{twice[part]:,}")
            acts = ", ".join(act for at_seconds, act in self.record.acts if self._part(at_seconds) == part)
            name = f"{part * self.part_seconds:g} to {(part + 1) * self.part_seconds:g} s"
            section.add(name, *counts, *_times(seconds), *_cells(sample.total), acts)
        seconds = [each for tally in self.tallies for each in tally.all_seconds]
        lost = sum(len(tally.lost) for tally in self.tallies)
        section.add("all", f"{len(seconds):,}", f"{lost:,}", f"{len(self.run_twice):,}", *_times(seconds))

    def tools(self) -> Section:
        """Add a row for the calls of each tool, over the whole time."""
        section = Section("The same by tool", "calls", "p50", "p90", "p99", "max")
        for name, told in TOLD.items():
            seconds = [each for tally in self.tallies for each in tally.seconds[name]]
            section.add(told, f"{len(seconds):,}", *_times(seconds))
        return section

    def usage(self) -> Section:
        """Add rows for the memory after the first part and at the end: of the workers that stayed, and of all."""
        section = Section(
            f"The workers after {self.part_seconds:g} s and in the end",
            *("memory", "private", "descriptors", "memory", "private", "descriptors", "private"),
        )
        samples = self.record.samples
        for name, process_id in zip(("of the first server", "of the second"), self.record.steady, strict=True):
            seen = [sample.workers[process_id] for sample in samples if process_id in sample.workers]
            _compare(section, f"the one that stayed, {name}", seen[0], seen[-1])
        _compare(section, "all", samples[0].total, samples[-1].total)
        return section

    def _part(self, at_seconds: float) -> int:
        """Return the part of a point in time; the last part has no end."""
        return min(len(self.tallies) - 1, int(at_seconds / self.part_seconds))

    def verdict(self) -> Section:
        """Add the summary."""
        section = Section("What it came to", "")
        record = self.record
        lost = {number: text for tally in self.tallies for number, text in tally.lost.items()}
        strange = [line for log in record.logs for line in log.splitlines() if not _EXPECTED.search(line)]
        section.add("calls", f"{sum(len(tally.all_seconds) for tally in self.tallies):,}")
        section.add("lost", f"{len(lost):,}")
        section.add("run twice", f"{len(self.run_twice):,}")
        section.add("workers that ended and came back", f"{record.returned_workers} of {record.ended_workers}")
        section.add("servers that took over", f"{record.rolls} of 1")
        for number, text in lost.items():
            section.fail(f"call {number} was answered {text!r}")
        if self.run_twice:
            section.fail(f"calls ran twice: {self.run_twice}")
        if record.returned_workers < record.ended_workers or record.rolls < 1:
            section.fail("not all that ended came back")
        for line in strange:
            section.fail(f"a server said: {line}")
        return section


def _times(seconds: Sequence[float]) -> Iterator[str]:
    return map(duration, [*percentiles(seconds), max(seconds)])


def _cells(usage: Usage) -> tuple[str, str, str]:
    return mib(usage.resident_kib), mib(usage.private_kib), f"{usage.descriptors:,}"


def _compare(section: Section, name: str, before: Usage, after: Usage) -> None:
    section.add(name, *_cells(before), *_cells(after), f"{after.private_kib - before.private_kib:+,} KiB")
