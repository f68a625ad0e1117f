"""What is called while a load is held: little work, waiting, and much to send. Each run is written into a journal."""

from __future__ import annotations

import os

import anyio

from bridge import ToolBox, tool
from tests.faults.served import note

JOURNAL = "BENCHMARK_JOURNAL"
"""The variable that says where the journal is."""
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
    """Wait as for somebody else, and tell the number and which process this is."""
    _note(number)
    await anyio.sleep(WAIT_SECONDS)
    return f"{number} {os.getpid()}"


@tool
def large(number: int) -> str:
    """Tell the number again and again; a plain function, which runs in a thread."""
    _note(number)
    return large_text(number)


def large_text(number: int) -> str:
    """What `large` answers."""
    return f"{number:0{_DIGITS}}" * (LARGE_BYTES // _DIGITS)


def _note(number: int) -> None:
    note(os.environ[JOURNAL], str(number))


TOOLS = ToolBox([add, wait, large])
