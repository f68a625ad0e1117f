"""Processes that are measured: each ends with its context, and at the latest when its time is over."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
TOOLS = str(Path(__file__).with_name("tools.py"))
MANY_TOOLS = str(Path(__file__).with_name("many_tools.py"))
PEER = str(Path(__file__).with_name("peer_server.py"))

LIMIT_SECONDS = 120.0
"""How long a process may run unless told otherwise; then it is killed, and whoever reads from it finds its output
closed."""
LONG_SECONDS = 5 * LIMIT_SECONDS
"""The same for those that are measured in many rounds, on a busy machine too."""


@contextmanager
def running(
    *arguments: str, python: str = sys.executable, limit_seconds: float = LIMIT_SECONDS, **settings: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python.

    Args:
        arguments: What stands after ``python``.
        python: Which Python.
        limit_seconds: How long it may run.
        settings: As for `subprocess.Popen`.
    """
    with subprocess.Popen([python, *arguments], cwd=ROOT, **settings) as process:
        watchdog = Timer(limit_seconds, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def cpu_clock(process: subprocess.Popen[bytes]) -> Callable[[], float | None]:
    """What says how many seconds a processor has worked for a process; None where the system does not tell."""
    clock = ctypes.c_int()
    find_clock = getattr(ctypes.CDLL(None), "clock_getcpuclockid", None)  # POSIX, and not on macOS
    if find_clock is None or find_clock(process.pid, ctypes.byref(clock)) != 0:
        return lambda: None
    return lambda: time.clock_gettime(clock.value)


def children(process: subprocess.Popen[bytes]) -> set[int]:
    """The processes that a process has started, and that have not ended; on Linux."""
    return set(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()))
