"""Tools for a steady load: little work, waiting, and a large result. Each run is written to a journal."""

from __future__ import annotations

import os

import anyio

from bridge import ToolBox, tool
from tests.faults.served import note

JOURNAL = "BENCHMARK_JOURNAL"
"""Environment variable with the path of the journal."""
LARGE_BYTES = 100 * 1024
WAIT_SECONDS = 0.02

_DIGITS = 16


@tool
async def add(number: int, one: int) -> int:
    """Add two numbers."""
    _note(number)
    return number + one


@tool
async def wait(number: int) -> str:
    """Wait as for another service, and return the number and the process ID."""
    _note(number)
    await anyio.sleep(WAIT_SECONDS)
    return f"{number} {os.getpid()}"


@tool
def large(number: int) -> str:
    """Return the number many times; a plain function, which runs in a thread."""
    _note(number)
    return large_text(number)


def large_text(number: int) -> str:
    """Return the result of `large`."""
    return f"{number:0{_DIGITS}}" * (LARGE_BYTES // _DIGITS)


def _note(number: int) -> None:
    note(os.environ[JOURNAL], str(number))


TOOLS = ToolBox([add, wait, large])
