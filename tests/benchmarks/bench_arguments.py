"""Hostile arguments: how long they block the event loop, and what memory they take for each of their bytes

Each schema gets four megabytes of values that hypothesis finds, repeated. The time is the longest that another task
waited; the memory is the peak of the process beside the parsed request. A process for each, so that none helps another.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from datetime import date  # noqa: TC003 - read when the tools are made
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import from_json

from bridge import InvocationContext, ToolBox, ToolExecutionRequest, execute, tool
from tests.benchmarks.table import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.benchmarks.table import Table

MAX_BYTES = 4 * 1024 * 1024
SHAPES = 12
PAGE_BYTES = 4096
PAUSE_SECONDS = 0.001
ROOT = Path(__file__).parents[2]


class Model(BaseModel):
    """A model with a required field."""

    a: int


class Default(BaseModel):
    """A model without one."""

    a: int = 0


class Node(BaseModel):
    """A recursive model."""

    children: list[Node] = []
    a: int = 0


@tool
async def models(v: list[Model]) -> None: ...
@tool
async def defaults(v: list[Default]) -> None: ...
@tool
async def unions(v: list[int | Model | list[int] | bool | date | dict[str, int]]) -> None: ...
@tool
async def dates(v: list[date]) -> None: ...
@tool
async def nodes(v: list[Node]) -> None: ...
@tool
async def literals(v: list[Literal[0, 1, "x"]]) -> None: ...
@tool
async def numbers(v: list[float]) -> None: ...
@tool
async def texts(v: str) -> None: ...


TOOLS = ToolBox(models, defaults, unions, dates, nodes, literals, numbers, texts)

VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.5, "", "1", "x", "NaN", "2026-08-01", "86400", 10**309]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "children", ""]), inner),
    max_leaves=4,
)


def shapes(count: int) -> list[str]:
    """The JSON of that many different values, the same in each run."""
    found: dict[str, None] = {"{}": None, '"1"': None}

    @settings(
        derandomize=True, database=None, phases=[Phase.generate], max_examples=50 * count,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(VALUES)
    def find(value: object) -> None:
        found[json.dumps(value, separators=(",", ":"))] = None

    find()
    return list(found)[:count]


def resident_bytes() -> int:
    """The memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


async def measured(name: str, shape: str) -> Mapping[str, float]:
    """The longest that another task waited, and the most memory for each byte."""
    text = f'{{"v":[{",".join([shape] * (MAX_BYTES // (len(shape) + 1)))}]}}'
    request = ToolExecutionRequest(name, from_json(text))
    gc.collect()
    before, peak, block, is_over = resident_bytes(), 0, 0.0, False

    def look() -> None:
        nonlocal peak
        while not is_over:
            peak = max(peak, resident_bytes())
            sleep(PAUSE_SECONDS)

    async def wait() -> None:
        nonlocal block
        while not is_over:
            began = perf_counter()
            await asyncio.sleep(PAUSE_SECONDS)
            block = max(block, perf_counter() - began)

    looking, waiting = threading.Thread(target=look), asyncio.ensure_future(wait())
    looking.start()
    await asyncio.sleep(PAUSE_SECONDS)
    await execute(TOOLS, request, InvocationContext())
    is_over = True
    await waiting
    looking.join()
    return {"block": block, "memory": (peak - before) / len(text)}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", [each.name for each in TOOLS])
def bench_hostile_arguments(table: Table, heading: str, request: pytest.FixtureRequest, name: str) -> None:
    is_quick = request.config.getoption("benchmark_disable")
    if is_quick and name != "models":
        return
    worst = {"block": 0.0, "memory": 0.0}
    for shape in shapes(1 if is_quick else SHAPES):
        command = [sys.executable, "-m", "tests.benchmarks.bench_arguments", name, shape]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        worst = {key: max(value, worst[key]) for key, value in json.loads(run.stdout).items()}
    if not is_quick:
        row = f"{name}: {worst['memory']:.1f} bytes of memory for a byte at most, and the longest block"
        table.add(Row(group=heading, name=row, best_seconds=worst["block"], median_seconds=worst["block"]))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(*sys.argv[1:]))))  # noqa: T201 - what it is for
