"""Over stdio: a real process, one client"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.messages import Era, call, line, says_three
from tests.benchmarks.processes import TOOLS, cpu_clock, running
from tests.benchmarks.stdio_server import StdioServer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.benchmarks.meter import Meter

STARTS = 15
CALLS = 2000
SENT_TOGETHER = 50
ROUNDS_TOGETHER = 100
PYTHON = "start of Python itself"


def bench_start_of_python(meter: Meter) -> None:
    def start() -> None:
        with running("-c", "print()", stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()

    meter.measure(PYTHON, start, rounds=STARTS)


@pytest.mark.parametrize("opening", Era)
def bench_start_to_first_list(meter: Meter, opening: Era, one_tool: Path) -> None:
    with ExitStack() as ended_later:

        def start() -> None:
            server = ended_later.enter_context(serving(str(one_tool)))
            assert b'"add"' in server.list_first(opening)

        meter.measure(
            f"start to first list, {opening.name.lower()}",
            start,
            rounds=STARTS,
            beside=PYTHON,
            teardown=ended_later.close,
        )


@pytest.fixture(scope="module", params=Era)
def era(request: pytest.FixtureRequest) -> Era:
    found: Era = request.param
    return found


@pytest.fixture(scope="module")
def server(era: Era) -> Iterator[StdioServer]:
    with serving(TOOLS) as server:
        server.list_first(era)
        yield server


def bench_calls_sent_together(meter: Meter, server: StdioServer, era: Era) -> None:
    lines = b"".join(line(call(era, "add", number)) for number in range(1, SENT_TOGETHER + 1))

    def ask_all() -> None:
        server.send(lines)
        for _ in range(SENT_TOGETHER):
            assert says_three(server.receive())

    meter.measure(
        f"tools/call, {era.name.lower()}: {SENT_TOGETHER} sent together, each",
        ask_all,
        rounds=ROUNDS_TOGETHER,
        units=SENT_TOGETHER,
        cpu_seconds=cpu_clock(server.process),
    )


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("add", "async tool"),
        ("add_in_place", "sync tool, run_in_thread=False"),
        ("add_in_thread", "sync tool in a thread"),
        ("add_in_context", "async tool with a context"),
        ("add_and_report", "async tool, progress not asked for"),
    ],
)
def bench_call(meter: Meter, server: StdioServer, era: Era, tool: str, kind: str) -> None:
    text = line(call(era, tool))
    assert says_three(answer := server.answer(text)), answer
    beside = f"tools/call, {era.name.lower()}: async tool"
    meter.measure(
        f"tools/call, {era.name.lower()}: {kind}",
        lambda: server.answer(text),
        rounds=CALLS,
        warmup_rounds=100,
        beside=beside,
        cpu_seconds=cpu_clock(server.process),
    )
