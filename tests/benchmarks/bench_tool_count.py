"""By the number of tools: registration, dispatch, lists and starts"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

import pytest

from bridge import InvocationContext, ToolBox, ToolExecutionRequest, execute, tools_from
from tests.benchmarks.many_tools import numbered
from tests.benchmarks.messages import Era, line, request
from tests.benchmarks.processes import MANY_TOOLS, cpu_clock
from tests.benchmarks.stdio_server import serving

if TYPE_CHECKING:
    from tests.benchmarks.meter import Meter

COUNTS = (1, 100, 10_000)
ROUNDS = 30
SLOW_ROUNDS = {1: 30, 100: 5, 10_000: 1}
"""Number of repetitions of an operation that takes longer with more tools."""


def named(figure: str, count: int = 1) -> str:
    """Name of a row; without a number, that of the row with which the others are compared."""
    return f"{count:,} {'tool' if count == 1 else 'tools'}: {figure}"


@cache
def box_of(count: int) -> ToolBox:
    return ToolBox([numbered(number) for number in range(count)])


@pytest.mark.parametrize("count", COUNTS)
def bench_registration(meter: Meter, count: int) -> None:
    functions = [numbered(number) for number in range(count)]
    meter.measure(
        named("registration, each", count),
        lambda: ToolBox(functions),
        rounds=SLOW_ROUNDS[count],
        warmup_rounds=0,
        units=count,
        beside=named("registration, each"),
    )


@pytest.mark.parametrize("count", COUNTS)
def bench_addition_and_removal(meter: Meter, count: int) -> None:
    tools = box_of(count)
    (one_more,) = tools_from(numbered(COUNTS[-1]))

    def add_and_remove() -> None:
        tools.add(one_more)
        tools.remove(one_more.name)

    meter.measure(
        named("one more, and away again", count),
        add_and_remove,
        rounds=ROUNDS,
        beside=named("one more, and away again"),
    )


@pytest.mark.parametrize("count", COUNTS)
def bench_dispatch(meter: Meter, count: int) -> None:
    tools, context = box_of(count), InvocationContext()
    last = ToolExecutionRequest(f"add_{count - 1}", {"a": 1, "b": 2})
    meter.measure_calls(
        named("a call of the last one, in process", count),
        lambda: execute(tools, last, context),
        beside=named("a call of the last one, in process"),
    )


@pytest.mark.parametrize("count", COUNTS)
def bench_start_to_first_list(meter: Meter, count: int) -> None:
    with ExitStack() as ended_later:

        def start() -> None:
            server = ended_later.enter_context(serving(MANY_TOOLS, tools=count))
            assert b"add_0" in server.list_first(Era.HANDSHAKE)

        meter.measure(
            named("start to first list over stdio", count),
            start,
            rounds=SLOW_ROUNDS[count],
            warmup_rounds=0,
            beside=named("start to first list over stdio"),
            teardown=ended_later.close,
        )


@pytest.mark.parametrize("count", COUNTS)
def bench_later_list(meter: Meter, count: int) -> None:
    with serving(MANY_TOOLS, tools=count) as server:
        server.list_first(Era.HANDSHAKE)
        text = line(request(Era.HANDSHAKE, "tools/list"))
        meter.measure(
            named("a later list over stdio", count),
            lambda: server.answer(text),
            rounds=ROUNDS,
            beside=named("a later list over stdio"),
            cpu_seconds=cpu_clock(server.process),
        )
