"""Processes that are measured; each is ended with its context, and at the latest at its time limit."""

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
FEATURES = str(Path(__file__).with_name("features.py"))
MANY_TOOLS = str(Path(__file__).with_name("many_tools.py"))
PEER = str(Path(__file__).with_name("peer_server.py"))

LIMIT_SECONDS = 120.0
"""Default lifetime in seconds; then the process is killed, and its output ends."""
LONG_SECONDS = 5 * LIMIT_SECONDS
"""Lifetime of processes that are measured in many rounds, on a busy machine too."""


@contextmanager
def running(
    *arguments: str, python: str = sys.executable, limit_seconds: float = LIMIT_SECONDS, **settings: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python.

    Args:
        arguments: Arguments after ``python``.
        python: Path of the interpreter.
        limit_seconds: Maximum lifetime.
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
    """Return a function that returns the processor seconds of a process; None if the system does not report them."""
    clock = ctypes.c_int()
    find_clock = getattr(ctypes.CDLL(None), "clock_getcpuclockid", None)  # POSIX, and not on macOS
    if find_clock is None or find_clock(process.pid, ctypes.byref(clock)) != 0:
        return lambda: None
    return lambda: time.clock_gettime(clock.value)


def children(process: subprocess.Popen[bytes]) -> set[int]:
    """Return the running child processes of a process; on Linux."""
    return set(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()))
