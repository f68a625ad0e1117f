"""Tools that write each run to a journal, and that damage their own server on request."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import anyio

from bridge import ToolBox, tool


def note(journal: str, call: str) -> None:
    """Write a run to the journal in one write, before anything else."""
    line = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(line, f"{call}\n".encode())
    os.close(line)


@tool
async def work(journal: str, call: str) -> str:
    """Run, and return the call's ID."""
    note(journal, call)
    return call


@tool
async def hold(journal: str, call: str, port: int) -> str:
    """Run, write that to the journal, and never end."""
    note(journal, call)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"holding")
    await anyio.sleep_forever()
    return call


@tool
async def pid() -> int:
    """Return the process ID."""
    return os.getpid()


@tool
async def start_a_child() -> int:
    """Start a process that keeps this one's pipes and ignores every signal but SIGKILL."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)  # noqa: ASYNC220 - short
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child.pid


@tool
async def extra() -> None:
    """A tool that is added and removed."""


@tool(name="work_renamed")
async def work_under_another_name(journal: str, call: str) -> str:
    """Run, and return the call's ID."""
    note(journal, call)
    return call


@tool
async def change_the_list(times: int) -> None:
    """Add and remove a tool repeatedly; at the end it is there."""
    for _ in range(times):
        TOOLS.add(extra)
        await anyio.lowlevel.checkpoint()
        TOOLS.remove("extra")
        await anyio.lowlevel.checkpoint()
    TOOLS.add(extra)


@tool
async def rename_the_work() -> None:
    """Rename a tool."""
    if "work" in TOOLS:
        TOOLS.remove("work")
        TOOLS.add(work_under_another_name)
    else:
        TOOLS.remove("work_renamed")
        TOOLS.add(work)


TOOLS = ToolBox([work, hold, pid, start_a_child, change_the_list, rename_the_work])
