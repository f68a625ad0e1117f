"""Measure what a model reads with all tools, tool search and code mode: ``python -m tests.benchmarks.tool_modes``.

A gateway serves twelve servers: the four of ``servers/``, which run, and eight with the recorded definitions of
``tests/doctor/recorded``, whose tools are not called. The steps of a model that makes no mistake are in `tasks`; each
call is made and has to return what the task needs. Prints a table in Markdown.
"""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory

from tests.benchmarks.tool_modes.gateway import MODES, running, written
from tests.benchmarks.tool_modes.host import Host
from tests.benchmarks.tool_modes.tasks import TASKS


def table() -> str:
    """Measure all tasks in all modes, and return the table."""
    heads = ["task", "tools", "first request", "requests of the model", "calls", "tokens read", "seconds of calls"]
    lines = [f"| {' | '.join(heads)} |", "|---|---" + "|---:" * 5 + "|"]
    with TemporaryDirectory() as folder:
        configuration = written(folder)
        rows: dict[str, list[str]] = {task.name: [] for task in TASKS}
        for mode in MODES:
            with running(configuration, mode) as url:
                for task in TASKS:
                    host = Host(url, task.question)
                    host.follow(task.steps[mode], task.answer)
                    cells = [task.name, f"`{mode}`", f"{host.first_tokens:,}", str(host.requests), str(host.calls)]
                    cells += [f"{host.read_tokens:,}", f"{host.seconds:.2f}"]
                    rows[task.name].append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *(line for task in TASKS for line in rows[task.name])])


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
