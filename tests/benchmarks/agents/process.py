"""Processes that measure agents: one for each agent, which take turns, setting by setting."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.agents.conversation import Setting

_ROOT = Path(__file__).parents[3]
_LIMIT_SECONDS = 300.0
"""Maximum lifetime in seconds; then the process is killed, and its measurement fails."""


class AgentProcess:
    """A process that measures one agent; see `measuring`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(self, setting: Setting, seconds: float) -> dict[str, list[float]]:
        """Return the minimum and the median seconds of each figure.

        Args:
            setting: Setting of a turn.
            seconds: Duration; a few rounds are always measured.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(asdict(setting) | {'seconds': seconds})}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the agent's process ended; what it said stands above"
        figures: dict[str, list[float]] = json.loads(line)
        return figures


@contextmanager
def measuring(python: str, agent: str) -> Iterator[AgentProcess]:
    """Run the process of an agent.

    Args:
        python: A Python that has the agent.
        agent: ``bridge``, ``bridge_together``, ``pydantic_ai`` or ``langchain``.
    """
    command = [python, "-m", "tests.benchmarks.agents", agent]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        watchdog = Timer(_LIMIT_SECONDS, process.kill)
        watchdog.start()
        try:
            yield AgentProcess(process)
        finally:
            watchdog.cancel()
            process.kill()
