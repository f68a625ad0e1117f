"""The writer: takes lines at once, and writes them a little later in a thread of its own, in their order.

Whoever puts a line in waits for nothing: not for the disk, not for a reader of a pipe. The thread is woken once for a
batch. Where lines come faster than they can be written, or cannot be written at all, a bounded number is kept; what is
beyond is counted, and the count is told.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    Chunk: TypeAlias = tuple[int, bytes]
    """Lines that wait: how many, and as they are written."""

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
        self._waiting: deque[Chunk] = deque()
        self._waiting_lines = 0
        self._waiting_bytes = 0
        self._batch: list[bytes] = []
        self._batch_lines = 0
        self._batch_bytes = 0
        self._missing = 0
        self._counting = Lock()
        self._is_idle = True
        self._complained_at: float | None = None
        self._batches = Batches(name, self._write_what_waits, BATCH_SECONDS)

    def put(self, lines: Sequence[str], end: str = "") -> None:
        """Have lines written. From any thread; it waits for no output.

        Args:
            lines: The lines, each without its end.
            end: What each of them ends with before that.
        """
        dropped = 0
        with self._counting:
            for start in range(0, len(lines), MAX_BATCH):
                dropped += self._take(lines[start : start + MAX_BATCH], end)
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
            _logger.error("the %s did not take its last %d lines", self._name, self._batch_lines + self._waiting_lines)

    def _take(self, lines: Sequence[str], end: str) -> int:
        """Let lines wait, all at once where there is room, and say for how many there is none."""
        written = _joined(lines, end)
        if len(lines) > 1 and (len(written) > MAX_BATCH_BYTES or not self._has_room(len(lines), written)):
            return sum(self._take([line], end) for line in lines)
        if not self._has_room(len(lines), written):
            return len(lines)
        self._waiting.append((len(lines), written))
        self._waiting_lines += len(lines)
        self._waiting_bytes += len(written)
        return 0

    def _has_room(self, lines: int, written: bytes) -> bool:
        return self._waiting_lines + lines <= MAX_WAITING and self._waiting_bytes + len(written) <= MAX_WAITING_BYTES

    def _write_what_waits(self) -> None:
        self._is_idle = True  # whoever comes from now on wakes the thread again
        while self._batch or self._waiting:
            missing = self._gather()
            if self._was_written(b"".join([*self._batch, *([_joined([self._gap(missing)], "")] if missing else [])])):
                self._batch.clear()
                self._batch_lines = self._batch_bytes = 0
                with self._counting:
                    self._missing -= missing
            elif self._batches.closing.wait(_RETRY_SECONDS):
                return

    def _gather(self) -> int:
        """Let lines that wait join the batch, and say how many are missing."""
        with self._counting:
            while (
                self._waiting
                and self._batch_lines + self._waiting[0][0] <= MAX_BATCH
                and self._batch_bytes < MAX_BATCH_BYTES
            ):
                lines, written = self._waiting.popleft()
                self._waiting_lines -= lines
                self._waiting_bytes -= len(written)
                self._batch.append(written)
                self._batch_lines += lines
                self._batch_bytes += len(written)
            return self._missing

    def _was_written(self, lines: bytes) -> bool:
        try:
            self._output.write(lines)
        except OSError as error:
            now = monotonic()
            if self._complained_at is None or now - self._complained_at >= COMPLAINT_SECONDS:
                self._complained_at = now
                _logger.error(  # noqa: TRY400 - what matters is the system's word
                    "the %s cannot be written: %s; calls go on, %d lines wait and at most %d will",
                    self._name,
                    error,
                    self._batch_lines + self._waiting_lines,
                    MAX_WAITING,
                )
            return False
        if self._complained_at is not None:
            self._complained_at = None
            _logger.warning("the %s is written again", self._name)
        return True


def _joined(lines: Sequence[str], end: str) -> bytes:
    """Whole lines as they are written; what no encoding has is written escaped."""
    ended = f"{end}\n"
    return ended.join([*lines, ""]).encode(errors="backslashreplace")


def write_all(file: int, data: bytes) -> None:
    """Write to an open file all that there is: the system may take less at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


class StandardError:
    """Standard error, whoever has put something else in its place in this process."""

    def write(self, lines: bytes) -> None:
        """Write whole lines."""
        write_all(2, lines)

    def close(self) -> None:
        """It stays open for others."""
