"""Background writer: lines are queued at once and written in batches by a thread, in order.

`BackgroundWriter.put` never waits for a disk or for the reader of a pipe. The queue is bounded; lines that exceed it
are dropped, counted, and reported by a line of their own.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_logger = logging.getLogger("bridge.telemetry")

BATCH_SECONDS = 0.05
"""Time in which the lines of a batch are gathered."""
MAX_WAITING = 100_000
"""Maximum queued lines."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the queued lines."""
MAX_BATCH = 5000
"""Maximum lines of a batch; writing one holds the interpreter."""
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Size above which a batch takes no further line."""
COMPLAINT_SECONDS = 60.0
"""Interval between log messages while the output cannot be written."""
CLOSE_SECONDS = 2.0
"""Maximum time for the last lines."""
_RETRY_SECONDS = 1.0


class Output(Protocol):
    """Destination of lines."""

    def write(self, lines: bytes) -> None:
        """Write whole lines durably.

        Raises:
            OSError: None of them could be written.
        """

    def close(self) -> None:
        """Close the output."""


class BackgroundWriter:
    """Writes lines to an output, in a thread of its own.

    Args:
        name: The name of the output, for messages: ``audit log``.
        output: The output.
        gap_line: Returns the line that stands for a number of missing lines.
        on_lost: Called with the number of lines that were dropped.
    """

    def __init__(
        self,
        name: str,
        output: Output,
        gap_line: Callable[[int], str],
        on_lost: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._name = name
        self._output = output
        self._gap_line = gap_line
        self._on_lost = on_lost
        self._lock = Lock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._batch: list[bytes] = []
        self._missing = 0
        self._complained_at: float | None = None
        self._thread: Thread | None = None
        self._is_idle = True
        self._fill: Callable[[], object] = lambda: None
        self._wanted = Event()
        self._closing = Event()

    def put(self, lines: Iterable[str]) -> None:
        """Queue lines without their ends. Thread-safe; does not wait.

        Characters that cannot be encoded are written escaped.
        """
        lost = 0
        with self._lock:
            for line in lines:
                data = f"{line}\n".encode(errors="backslashreplace")
                if len(self._waiting) < MAX_WAITING and self._waiting_bytes + len(data) <= MAX_WAITING_BYTES:
                    self._waiting.append(data)
                    self._waiting_bytes += len(data)
                else:
                    lost += 1
            self._missing += lost
            is_idle = self._is_idle
        if is_idle:
            self.wake()
        if lost:
            self._on_lost(lost)

    def wake(self, fill: Callable[[], object] | None = None) -> None:
        """Start to gather the lines of a batch. Thread-safe; does not wait.

        ``fill`` is called in the thread of this writer before the batch is written; it puts further lines.
        """
        with self._lock:
            self._is_idle = False
            self._fill = fill or self._fill
            if self._thread is None:  # not earlier: the process may fork between construction and the first line
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        """Write the queued lines within `CLOSE_SECONDS` and close the output."""
        self._closing.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                _logger.error("the %s did not take its last %d lines", self._name, self._unwritten())
                return
        self._output.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait()
            self._closing.wait(BATCH_SECONDS)
            self._wanted.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        self._fill()
        with self._lock:
            self._is_idle = True  # lines put from now on wake the thread again
        while self._gather() or self._missing:
            missing = self._missing
            gap = [f"{self._gap_line(missing)}\n".encode()] if missing else []
            if self._try_write(b"".join([*self._batch, *gap])):
                self._batch.clear()
                with self._lock:
                    self._missing -= missing
            elif self._closing.wait(_RETRY_SECONDS):
                return

    def _gather(self) -> bool:
        """Move queued lines to the batch; return whether it has any."""
        size = sum(map(len, self._batch))
        with self._lock:
            while self._waiting and len(self._batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
                line = self._waiting.popleft()
                self._waiting_bytes -= len(line)
                self._batch.append(line)
                size += len(line)
        return bool(self._batch)

    def _try_write(self, lines: bytes) -> bool:
        try:
            self._output.write(lines)
        except OSError as error:
            now = monotonic()
            if self._complained_at is None or now - self._complained_at >= COMPLAINT_SECONDS:
                self._complained_at = now
                _logger.error(  # noqa: TRY400 - the traceback says nothing more
                    "the %s cannot be written: %s; calls continue, %d lines are queued, of at most %d",
                    self._name,
                    error,
                    self._unwritten(),
                    MAX_WAITING,
                )
            return False
        if self._complained_at is not None:
            self._complained_at = None
            _logger.warning("the %s is written again", self._name)
        return True

    def _unwritten(self) -> int:
        return len(self._batch) + len(self._waiting)


def write_all(file: int, data: bytes) -> None:
    """Write all bytes to an open file; a single system call may write fewer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


class StandardError:
    """Standard error, also where `sys.stderr` was replaced."""

    def write(self, lines: bytes) -> None:
        """Write whole lines."""
        write_all(2, lines)

    def close(self) -> None:
        """Leave standard error open for others."""
