"""The summary of the cluster tests, which ``make faults`` prints at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

KEY = "cluster"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the ends of the calls."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, told in getattr(report, "user_properties", ()):
                if name == KEY and report.when == "call":
                    terminalreporter.write_line(str(told))
