"""Processes, tasks and sockets that exist, as the system reports them, and those that have leaked."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

LET_GO_SECONDS = 10
"""Seconds after which a resource that is still there counts as leaked."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Resources of an event loop and its process."""

    tasks: frozenset[asyncio.Task[object]]
    sockets: frozenset[str]
    """Sockets and pipes, by their inodes."""

    @classmethod
    def now(cls) -> Holdings:
        """Return the current resources."""
        return cls(frozenset(asyncio.all_tasks()), frozenset(_sockets()))

    async def leaked_tasks(self, seconds: float = LET_GO_SECONDS) -> list[str]:
        """Return the tasks that were started since, and do not end within this time."""
        begun = asyncio.all_tasks() - self.tasks
        _, left = await asyncio.wait(begun, timeout=seconds) if begun else ((), ())
        return [task.get_name() for task in left]

    async def leaked_sockets(self, seconds: float = LET_GO_SECONDS) -> list[str]:
        """Return the sockets and pipes that were opened since, and are not closed within this time."""
        with anyio.move_on_after(seconds):
            while _sockets() - self.sockets:
                await anyio.lowlevel.checkpoint()
        return sorted(_sockets() - self.sockets)


async def leaked_processes(marker: str, seconds: float = LET_GO_SECONDS) -> list[str]:
    """Return the processes with this text in their environment that do not end within this time."""
    left = []
    for pid in marked_processes(marker):
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                with anyio.move_on_after(seconds):
                    await anyio.wait_readable(handle)
                    continue
            finally:
                os.close(handle)
            left.append(str(pid))
    return left


def marked_processes(marker: str) -> list[int]:
    """Return the processes with this text in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if marker.encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
    return found


def _sockets() -> set[str]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith(("socket:", "pipe:")):
                found.add(target)
    return found
