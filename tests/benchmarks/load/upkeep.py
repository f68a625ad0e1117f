"""Replacement of workers and servers under load, as an operator does it, and their memory meanwhile.

balancer ─┬─ the first server, one of whose workers is ended by SIGTERM at the end of each part of the time
          ╰─ the second server, which takes over at half time; the first is then ended by SIGTERM
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Self

from tests.benchmarks.http_server import HttpServer, serving
from tests.benchmarks.load.balancer import balancing
from tests.benchmarks.load.memory import Usage, usage
from tests.benchmarks.processes import LIMIT_SECONDS, children
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

WORKERS = 2
OPTIONS = (
    *("--name", "held", "--workers", str(WORKERS), "--metrics", "--rate", "2000/1", "--concurrency", "300"),
    *("--drain-delay", "1"),
)
"""Options of a server in production, with limits that an honest caller does not reach."""

_TOOLS = f"{Path(__file__).with_name('held_tools.py')}:TOOLS"
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """State of the servers at the end of a part of the time."""

    at_seconds: float
    workers: dict[int, Usage]
    """Memory of each worker, by process ID."""

    @property
    def total(self) -> Usage:
        """Memory of all workers together."""
        return reduce(add, self.workers.values(), Usage())


@dataclass(kw_only=True)
class Record:
    """Replacements that were made, and their results."""

    samples: list[Sample] = field(default_factory=list)
    acts: list[tuple[float, str]] = field(default_factory=list)
    """Replacements with their times, in seconds after the beginning."""
    ended_workers: int = 0
    returned_workers: int = 0
    """Number of replaced workers whose successor answers calls."""
    rolls: int = 0
    """Number of replaced servers that exited with 0."""
    steady: list[int] = field(default_factory=list)
    """The worker of each server that lives as long as its server."""
    logs: list[str] = field(default_factory=list)
    """Standard error of the servers."""


class Upkeep:
    """Two servers behind a balancer, as a context in which the first serves.

    Args:
        parts: Number of parts of the time; the second server takes over after half of them.
        part_seconds: Duration of each.
        environment: Environment variables of the servers.
    """

    def __init__(self, parts: int, part_seconds: float, environment: Mapping[str, str]) -> None:
        self.port = 0
        """The balancer's port."""
        self.record = Record()
        self._parts = parts
        self._part_seconds = part_seconds
        self._environment = environment
        self._limit_seconds = 2 * parts * (part_seconds + LIMIT_SECONDS)
        self._stack = ExitStack()
        self._is_over = Event()
        self._server: HttpServer
        self._begun_at = 0.0

    def __enter__(self) -> Self:
        try:
            self._server = self._started(port=0)
            self._next_port = free_port()
            ports = (self._server.port, self._next_port)
            self.port = self._stack.enter_context(balancing(ports, self._limit_seconds))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stack.close()

    def run(self, answering: AbstractSet[int]) -> None:
        """Make the replacements, part after part; runs in a thread of its own, beside the calls.

        Args:
            answering: IDs of the processes that have answered calls, which grow meanwhile.

        Raises:
            TimeoutError: A replacement did not start.
        """
        self._begun_at = time.monotonic()
        for part in range(1, self._parts + 1):
            self._is_over.wait(max(0.0, part * self._part_seconds - self._now()))
            workers = children(self._server.process)
            self.record.samples.append(
                Sample(at_seconds=self._now(), workers={number: usage(number) for number in sorted(workers)})
            )
            if part == self._parts // 2:
                self._roll(answering)
            elif part < self._parts:
                self._end_a_worker(workers, answering)

    def stop(self) -> None:
        """Stop after the current replacement; may be called from another thread."""
        self._is_over.set()

    def end(self) -> None:
        """End the server by SIGTERM after the last replacement."""
        self._ended(self._server)

    def _end_a_worker(self, workers: set[int], answering: AbstractSet[int]) -> None:
        """End the other worker, as an operator might, and wait for its successor."""
        (ended,) = workers - set(self.record.steady)
        self._note("a worker ended")
        self.record.ended_workers += 1
        os.kill(ended, signal.SIGTERM)
        self._wait(lambda: len(children(self._server.process) & answering - {ended}) == WORKERS)
        self.record.returned_workers += 1

    def _roll(self, answering: AbstractSet[int]) -> None:
        old = self._server
        self._server = self._started(port=self._next_port)
        self._note("the server rolled")
        code = self._ended(old)
        self._wait(lambda: children(self._server.process) <= answering)
        self.record.rolls += code == 0

    def _started(self, port: int) -> HttpServer:
        options = (*OPTIONS, "--port", str(port))
        context = serving(_TOOLS, *options, limit_seconds=self._limit_seconds, environment=self._environment)
        server = self._stack.enter_context(context)
        self.record.steady.append(min(children(server.process)))
        return server

    def _ended(self, server: HttpServer) -> int:
        server.process.send_signal(signal.SIGTERM)
        _, log = server.process.communicate(timeout=LIMIT_SECONDS)
        self.record.logs.append(log.decode(errors="replace"))
        return server.process.returncode

    def _wait(self, is_done: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT_SECONDS
        while not is_done():
            if time.monotonic() > until or self._is_over.wait(_LOOK_SECONDS):
                raise TimeoutError(f"after {LIMIT_SECONDS} seconds not all workers answer calls")

    def _now(self) -> float:
        return time.monotonic() - self._begun_at

    def _note(self, act: str) -> None:
        self.record.acts.append((self._now(), act))
