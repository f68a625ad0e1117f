"""What the faults share, and the table that ends their run; ``make faults`` prints it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.client.transports.process import child_process
from tests import forks
from tests.faults.table import Outcome, markdown
from tests.faults.trial import Trials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KEY = "fault"
_NO_FAST_PATH = "--no-fast-path"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_NO_FAST_PATH, action="store_true", help="send and answer every request of the faults by the SDK")


@pytest.fixture(scope="session", autouse=True)
def watchdog() -> None:
    """Start the watchdog of children, whose pipe stays open while the process lasts, so that no trial counts it."""
    anyio.run(_start_child)


async def _start_child() -> None:
    async with child_process([sys.executable, "-c", ""], "child", environment={}, cwd=None, scrub=str):
        pass


@pytest.fixture
def trials(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trials]:
    """Tries faults; their outcomes come into the table of the run."""
    if sys.platform != "linux":
        pytest.skip("what is leaked is read from /proc, which Linux has")
    monkeypatch.setattr(forks, "IS_POSSIBLE", False)  # a fork has sockets of the tests' own, which count as leaked
    trials = Trials(tmp_path, fast_path=not request.config.getoption(_NO_FAST_PATH, default=False))
    yield trials
    request.node.user_properties.extend((_KEY, asdict(outcome)) for outcome in trials.outcomes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table; reports carry the outcomes, so that it does not matter which process tried what."""
    outcomes = [
        Outcome(**value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for name, value in report.user_properties
        if name == _KEY
    ]
    for line in markdown(outcomes):
        terminalreporter.write_line(line)
