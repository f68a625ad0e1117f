"""Servers that are child processes: how many start at once, when a failing one is left alone, and memory."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client.connection.definitions import KeptDefinitions
from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.client.config.servers import ServerConfig

DEFAULT_MAX_STARTS = max(4, os.cpu_count() or 1)
"""Processes that start at the same time by default."""
START_SLOT_SECONDS = 5.0
"""Seconds after which the start of a process no longer delays others: it may hang."""
CIRCUIT_FAILURES = 5
"""Consecutive failures of a process after which calls no longer start it."""

_PROCESSES = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Options of servers that are child processes."""

    max_starts: int = DEFAULT_MAX_STARTS
    """Processes that start at the same time; each counts until it is ready, for at most five seconds."""
    definitions: str | os.PathLike[str] | None = None
    """Folder in which the lists of lazily started servers are kept, so that they are whole before a server is started;
    None keeps them in memory."""

    def __post_init__(self) -> None:
        """Check the number.

        Raises:
            DefinitionError: It is less than 1.
        """
        if self.max_starts < 1:
            raise DefinitionError(f"max_starts must be at least 1, not {self.max_starts}")


def no_start() -> None:
    """End the start of a server that needs no slot."""


class ProcessStarts:
    """Slots of the processes that start at the same time.

    Args:
        maximum: Number of slots.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._started_at: dict[object, float] = {}
        self._freed = anyio.Event()

    async def acquire(self) -> Callable[[], None]:
        """Wait for a slot; returns an idempotent function that gives it back."""
        while len(young := self._young()) >= self._maximum:
            with anyio.move_on_after(min(young) + START_SLOT_SECONDS - anyio.current_time()):
                await self._freed.wait()
        slot = object()
        self._started_at[slot] = anyio.current_time()
        return partial(self._release, slot)

    def _release(self, slot: object) -> None:
        if self._started_at.pop(slot, None) is not None:
            self._freed.set()
            self._freed = anyio.Event()

    def _young(self) -> list[float]:
        """Times of the starts that still delay others."""
        latest = anyio.current_time() - START_SLOT_SECONDS
        return [at for at in self._started_at.values() if at > latest]


class Processes:
    """Options of the child processes of a provider, and their slots.

    Args:
        options: The options; None for the defaults.
    """

    def __init__(self, options: ProcessOptions | None = None) -> None:
        self._options = options or ProcessOptions()
        self.starts = ProcessStarts(self._options.max_starts)

    def definitions_of(self, config: ServerConfig) -> KeptDefinitions | None:
        """Return what is kept of a server; None if it is not started lazily."""
        return KeptDefinitions.of(config, self._options.definitions) if config.start == "lazy" else None


class Circuit:
    """Consecutive failures of one server; open while calls do not start its process.

    Attributes:
        restarts: Number of attempts after a failed one, or after a loss.
        failures: Number of consecutive failures.
        retry_at: Time of the next start while it is open, in the event loop's time; None while it is closed.
    """

    def __init__(self) -> None:
        self.restarts = self.failures = 0
        self.retry_at: float | None = None

    @contextmanager
    def opened(self, seconds: float) -> Iterator[float]:
        """Open it for this block, which lasts for some seconds; returns them."""
        self.retry_at = anyio.current_time() + seconds
        try:
            yield seconds
        finally:
            self.retry_at = None

    @property
    def retry_seconds(self) -> float | None:
        """Seconds until the next start while it is open; None while it is closed."""
        return None if self.retry_at is None else max(0.0, self.retry_at - anyio.current_time())

    def counts(self) -> dict[str, Any]:
        """Return what `ConnectionStatus` has of it."""
        return {"restarts": self.restarts, "failures": self.failures, "retry_seconds": self.retry_seconds}

    @property
    def hint(self) -> str | None:
        """Why calls do not start the process, and the time of the next start; None while it is closed."""
        if self.retry_at is None:
            return None
        return (
            f"it failed {self.failures} times in a row, so calls do not start it now; "
            f"the next start is in {self.retry_seconds or 0:.0f} seconds"
        )


def memory_bytes(pid: int) -> int | None:
    """Resident memory of a process and its descendants in bytes; None where ``/proc`` does not tell it."""
    try:
        return sum(map(_resident_bytes, _family(pid)))
    except (OSError, ValueError):
        return None


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in (_PROCESSES / str(pid) / "task").glob("*/children"):
        for child in children.read_text().split():
            yield from _family(int(child))


def _resident_bytes(pid: int) -> int:
    return int((_PROCESSES / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
