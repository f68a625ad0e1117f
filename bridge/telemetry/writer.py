"""The writer: takes lines at once, and writes them a little later in a thread of its own, in their order.

Whoever puts a line in waits for nothing: not for the disk, not for a reader of a pipe. The thread is woken once for a
batch. Where lines come faster than they can be written, or cannot be written at all, a bounded number is kept; what is
beyond is counted, and the count is told.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from sys import getsizeof
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_logger = logging.getLogger("bridge.telemetry")

BATCH_SECONDS = 0.01
"""How long a batch is gathered."""
MAX_WAITING = 100_000
"""How many lines wait at most."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""How much memory they take at most: what a caller sends is in them."""
MAX_BATCH = 5000
"""How many lines are written at once at most: what is written holds the interpreter."""
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""How much memory the lines of a batch take when no further one is added: while they are written there are copies."""
COMPLAINT_SECONDS = 60.0
"""How often it is said, while it lasts, that nothing can be written."""
CLOSE_SECONDS = 2.0
"""How long the last lines may take."""
_RETRY_SECONDS = 1.0


class Output(Protocol):
    """Where lines go."""

    def write(self, lines: bytes) -> None:
        """Write whole lines, and return when they are where they have to be.

        Raises:
            OSError: They cannot be written now; none of them was.
        """

    def close(self) -> None:
        """Write no more."""


class Batches:
    """Does something for a batch of things, a little after the first of them has come, in a thread of its own.

    Args:
        name: What the thread is called.
        work: What is done.
        seconds: How long a batch is gathered.
    """

    def __init__(self, name: str, work: Callable[[], None], seconds: float) -> None:
        self._name = name
        self._work = work
        self._seconds = seconds
        self._wanted = Event()
        self.closing = Event()
        self._starting = Lock()
        self._thread: Thread | None = None

    def wake(self) -> None:
        """There is something to do. From any thread."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:  # not when this was made: a process may be forked after that
                    self._thread = Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
        self._wanted.set()

    def close(self) -> bool:
        """Do what is to be done now, for `CLOSE_SECONDS` at most, and no more; returns whether that was enough."""
        self.closing.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            return not self._thread.is_alive()
        return True

    def _run(self) -> None:
        while not self.closing.is_set():
            self._wanted.wait()
            self.closing.wait(self._seconds)
            self._wanted.clear()
            try:
                self._work()
            except Exception:  # what comes later is done all the same
                _logger.exception("a batch of %s failed", self._name)
        self._work()


class Writer:
    """Writes lines to an output.

    Args:
        name: What is written, for messages: ``audit log``.
        output: Where it is written.
        gap: Makes a line that says how many are missing.
        lost: Told how many lines were dropped, each time.
    """

    def __init__(
        self,
        name: str,
        output: Output,
        gap: Callable[[int], str],
        lost: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._name = name
        self._output = output
        self._gap = gap
        self._tell_lost = lost
        self._waiting: deque[str] = deque()
        self._waiting_bytes = 0
        self._batch: list[str] = []
        self._batch_bytes = 0
        self._missing = 0
        self._counting = Lock()
        self._is_idle = True
        self._complained_at: float | None = None
        self._batches = Batches(name, self._write_what_waits, BATCH_SECONDS)

    @property
    def is_failing(self) -> bool:
        """Whether what was put in last could not be written."""
        return self._complained_at is not None

    def put(self, lines: Iterable[str]) -> None:
        """Have lines written, each without its end. From any thread; it waits for no output."""
        dropped = 0
        with self._counting:
            for line in lines:
                size_bytes = getsizeof(line)
                if len(self._waiting) < MAX_WAITING and self._waiting_bytes + size_bytes <= MAX_WAITING_BYTES:
                    self._waiting.append(line)
                    self._waiting_bytes += size_bytes
                else:
                    dropped += 1
            self._missing += dropped
        if dropped:
            self._tell_lost(dropped)
        if self._is_idle:
            self._is_idle = False
            self._batches.wake()

    def close(self) -> None:
        """Write what waits, for `CLOSE_SECONDS` at most, and no more."""
        if self._batches.close():
            self._output.close()
        else:
            _logger.error("the %s did not take its last %d lines", self._name, len(self._batch) + len(self._waiting))

    def _write_what_waits(self) -> None:
        self._is_idle = True  # whoever comes from now on wakes the thread again
        while self._batch or self._waiting:
            missing = self._gather()
            if self._was_written([*self._batch, *([self._gap(missing)] if missing else [])]):
                self._batch.clear()
                self._batch_bytes = 0
                with self._counting:
                    self._missing -= missing
            elif self._batches.closing.wait(_RETRY_SECONDS):
                return

    def _gather(self) -> int:
        """Let lines that wait join the batch, and say how many are missing."""
        with self._counting:
            while self._waiting and len(self._batch) < MAX_BATCH and self._batch_bytes < MAX_BATCH_BYTES:
                line = self._waiting.popleft()
                size_bytes = getsizeof(line)
                self._waiting_bytes -= size_bytes
                self._batch_bytes += size_bytes
                self._batch.append(line)
            return self._missing

    def _was_written(self, lines: Sequence[str]) -> bool:
        try:
            self._output.write(("\n".join(lines) + "\n").encode(errors="backslashreplace"))
        except OSError as error:
            now = monotonic()
            if self._complained_at is None or now - self._complained_at >= COMPLAINT_SECONDS:
                self._complained_at = now
                _logger.error(  # noqa: TRY400 - what matters is the system's word
                    "the %s cannot be written: %s; calls go on, %d lines wait and at most %d will",
                    self._name,
                    error,
                    len(self._batch) + len(self._waiting),
                    MAX_WAITING,
                )
            return False
        if self._complained_at is not None:
            self._complained_at = None
            _logger.warning("the %s is written again", self._name)
        return True


class StandardError:
    """Standard error, whoever has put something else in its place in this process."""

    def write(self, lines: bytes) -> None:
        """Write whole lines."""
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(2, rest) :]

    def close(self) -> None:
        """It stays open for others."""
