"""Fixtures of the fault tests, and the table that ``make faults`` prints at the end."""

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
_BY_CLIENT = "--by-http-client"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_BY_CLIENT, action="store_true", help="send the requests of the faults by the general HTTP client")


@pytest.fixture(scope="session", autouse=True)
def watchdog() -> None:
    """Start the watchdog of children before the trials, which would count its pipe: it stays open with the process."""
    anyio.run(_start_child)


async def _start_child() -> None:
    async with child_process([sys.executable, "-c", ""], "child", environment={}, cwd=None, scrub=str):
        pass


@pytest.fixture
def trials(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trials]:
    """Runs trials; their results are added to the table."""
    if sys.platform != "linux":
        pytest.skip("what is leaked is read from /proc, which Linux has")
    monkeypatch.setattr(
        forks, "IS_POSSIBLE", False
    )  # a fork inherits sockets of the tests, which would count as leaked
    trials = Trials(tmp_path, by_client=request.config.getoption(_BY_CLIENT, default=False))
    yield trials
    request.node.user_properties.extend((_KEY, asdict(outcome)) for outcome in trials.outcomes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table; test reports carry the results, so the process that ran a trial does not matter."""
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
