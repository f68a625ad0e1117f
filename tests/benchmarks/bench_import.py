"""Imports: time that a program waits before its own code runs

The first figures are of whole processes, beside one that imports nothing. The others name the packages that are
imported before the first list over stdio, as ``python -X importtime`` reports them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.messages import INITIALIZE, INITIALIZED, Era, line, request
from tests.benchmarks.processes import LIMIT_SECONDS, running
from tests.benchmarks.table import Row

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.meter import Meter
    from tests.benchmarks.table import Table

NOTHING = "python -c pass"
ROUNDS = 10
STARTS = 5
IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)")
MICROSECOND = 1e-6
SHOWN_PACKAGES = 8


@pytest.mark.parametrize(
    ("name", "program"),
    [
        (NOTHING, "pass"),
        ("import bridge", "import bridge"),
        ("bridge.tool and bridge.ToolBox", "import bridge; bridge.tool, bridge.ToolBox"),
        ("import pydantic and a model", "import pydantic; pydantic.BaseModel"),
        ("import mcp", "import mcp"),
    ],
)
def bench_import(meter: Meter, name: str, program: str) -> None:
    def start() -> None:
        with running("-c", program) as process:
            assert process.wait(LIMIT_SECONDS) == 0

    meter.measure(name, start, rounds=ROUNDS, beside=NOTHING)


def bench_packages_of_a_start(table: Table, heading: str, one_tool: Path) -> None:
    starts = [_packages(_log_of_a_start(one_tool)) for _ in range(STARTS)]
    seconds = {package: sorted(start[package].seconds for start in starts) for package in starts[0]}
    for package in sorted(seconds, key=lambda package: -seconds[package][STARTS // 2])[:SHOWN_PACKAGES]:
        table.add(
            Row(
                group=heading,
                name=f"of a start over stdio: {package}, {starts[0][package].modules} modules",
                best_seconds=seconds[package][0],
                median_seconds=seconds[package][STARTS // 2],
            )
        )


@dataclass(slots=True)
class Package:
    """Seconds that a package took to import, without those that it imported."""

    seconds: float = 0.0
    modules: int = 0


def _packages(log: str) -> dict[str, Package]:
    packages: dict[str, Package] = defaultdict(Package)
    for microseconds, module in IMPORTED.findall(log):
        name = module.partition(".")[0]
        package = packages["the standard library" if name in sys.stdlib_module_names else name]
        package.seconds += int(microseconds) * MICROSECOND
        package.modules += 1
    return packages


def _log_of_a_start(path: Path) -> str:
    messages = (INITIALIZE, INITIALIZED, request(Era.HANDSHAKE, "tools/list"))
    lines = b"".join(line(message) for message in messages)
    command = [sys.executable, "-X", "importtime", "-m", "bridge", "serve", str(path)]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=LIMIT_SECONDS, check=True)
    assert b'"add"' in done.stdout
    return done.stderr.decode()
