"""Fixtures of the benchmarks, which are in ``bench_*.py`` and collected by ``make bench`` only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.meter import Meter
from tests.benchmarks.peers import FASTMCP, OFFICIAL, ROUTE, Peers
from tests.benchmarks.table import Table
from tests.interop.packages import fastmcp_python

_TABLE = pytest.StashKey[Table]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", metavar="FILE", help="add the figures to a file of JSON, which charts are made of")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLE] = Table()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_TABLE].lines():
        terminalreporter.write_line(line)
    if (path := config.getoption("--figures", default=None)) is not None:
        config.stash[_TABLE].write(Path(path))


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Table:
    """The table, printed at the end of the run."""
    return request.config.stash[_TABLE]


@pytest.fixture
def heading(request: pytest.FixtureRequest) -> str:
    """Heading of a module's figures: the first line of its docstring."""
    return (request.module.__doc__ or "").partition("\n")[0]


@pytest.fixture
def meter(benchmark: Any, table: Table, heading: str) -> Meter:
    """Records figures of the module in the table of the run."""
    return Meter(benchmark, table, heading)


@pytest.fixture
def one_tool(tmp_path: Path) -> Path:
    """Path of a file with one tool, as a newcomer writes it."""
    path = tmp_path / "calculator.py"
    path.write_text(
        "from bridge import tool\n\n\n@tool\nasync def add(a: int, b: int) -> int:\n"
        '    """Add two numbers."""\n    return a + b\n',
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="session")
def peers(request: pytest.FixtureRequest) -> Peers:
    """The peers; FastMCP is left out if it cannot be installed."""
    found = {OFFICIAL: (sys.executable, "official"), ROUTE: (sys.executable, "route")}
    if request.config.getoption("--benchmark-disable"):
        return found
    try:
        return found | {FASTMCP: (fastmcp_python(), "fastmcp")}
    except pytest.skip.Exception:
        return found
