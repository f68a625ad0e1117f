from __future__ import annotations

import errno
import logging
from threading import Event, Lock, Semaphore, current_thread
from typing import TYPE_CHECKING

from bridge.telemetry import writer as writing
from bridge.telemetry.writer import BackgroundWriter

if TYPE_CHECKING:
    import pytest

DEADLINE_SECONDS = 60


class Output:
    """Keeps the written text, unless the test lets it fail or wait."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fails = False
        self.tried = Event()
        self.is_closed = False
        self.gate = Lock()

    def write(self, lines: bytes) -> None:
        self.tried.set()
        with self.gate:
            if self.fails:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.lines += lines.decode().splitlines()

    def close(self) -> None:
        self.is_closed = True


def gap(count: int) -> str:
    return f"{count} missing"


def test_lines_are_written_in_their_order_and_the_last_before_the_output_is_closed() -> None:
    output = Output()
    writer = BackgroundWriter("log", output, gap)
    lines = [str(number) for number in range(20_000)]
    for line in lines:
        writer.put([line])
    writer.close()
    assert output.lines == lines
    assert output.is_closed


def test_lines_are_written_in_batches_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_BATCH", 3)
    batches: list[bytes] = []

    class Told(Output):
        """Keeps the batches."""

        def write(self, lines: bytes) -> None:
            batches.append(lines)

    writer = BackgroundWriter("log", Told(), gap)
    for number in range(1, 6):
        writer.put([str(number)])
    writer.close()
    assert b"".join(batches) == b"1\n2\n3\n4\n5\n"
    assert max(map(len, batches)) <= 2 * 3


def test_whoever_puts_a_line_in_does_not_wait_for_an_output_that_is_stuck() -> None:
    output = Output()
    writer = BackgroundWriter("log", output, gap)
    with output.gate:
        writer.put(["first"])
        assert output.tried.wait(DEADLINE_SECONDS)
        writer.put(["second"])  # returns although nothing can be written
        assert output.lines == []
    writer.close()
    assert output.lines == ["first", "second"]


def test_a_full_disk_is_told_and_what_waited_is_written_when_there_is_room_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_RETRY_SECONDS", 0.01)
    output = Output()
    output.fails = True
    writer = BackgroundWriter("audit log", output, gap)
    with caplog.at_level(logging.WARNING, "bridge.telemetry"):
        writer.put(["first"])
        assert output.tried.wait(DEADLINE_SECONDS)
        writer.put(["second"])
        output.fails = False
        writer.close()
    assert output.lines == ["first", "second"]
    first, last = caplog.messages
    assert first.startswith("the audit log cannot be written: [Errno 28] No space left on device; calls continue")
    assert last == "the audit log is written again"


def test_lines_over_the_limit_are_dropped_counted_and_told_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_WAITING", 2)
    output = Output()
    lost: list[int] = []
    writer = BackgroundWriter("audit log", output, gap, lost.append)
    with output.gate:
        writer.put(["1"])
        assert output.tried.wait(DEADLINE_SECONDS)  # the writer has taken it
        for number in range(2, 7):
            writer.put([str(number)])
    writer.close()
    assert sum(lost) == 3
    assert output.lines == ["1", "2", "3", "3 missing"]


def test_lines_that_take_too_much_memory_are_dropped_counted_and_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_WAITING_BYTES", 3 * 1024)
    output = Output()
    lost: list[int] = []
    writer = BackgroundWriter("audit log", output, gap, lost.append)
    long = "x" * 2048
    with output.gate:
        writer.put(["1"])
        assert output.tried.wait(DEADLINE_SECONDS)  # the writer has taken it
        for line in (long, long, "short"):
            writer.put([line])
        writer.put([long])
    writer.close()
    assert sum(lost) == 2
    assert output.lines == ["1", long, "short", "2 missing"]


def test_memory_that_lines_took_is_there_for_others_when_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_WAITING_BYTES", 3 * 1024)
    written = Semaphore(0)

    class Told(Output):
        """Reports each written batch."""

        def write(self, lines: bytes) -> None:
            super().write(lines)
            written.release()

    output = Told()
    lost: list[int] = []
    writer = BackgroundWriter("audit log", output, gap, lost.append)
    lines = [f"{number}{'x' * 2048}" for number in range(5)]
    for line in lines:
        writer.put([line])
        assert written.acquire(timeout=DEADLINE_SECONDS)
    writer.close()
    assert (output.lines, lost) == (lines, [])


def test_long_lines_are_written_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_BATCH_BYTES", 3 * 1024)
    batches: list[int] = []

    class Counted(Output):
        """Counts the lines of each batch."""

        def write(self, lines: bytes) -> None:
            batches.append(lines.count(b"\n"))
            super().write(lines)

    writer = BackgroundWriter("log", Counted(), gap)
    for _ in range(5):
        writer.put(["x" * 2048])
    writer.close()
    assert batches == [2, 2, 1]


def test_a_writer_without_lines_closes_its_output_all_the_same() -> None:
    output = Output()
    BackgroundWriter("log", output, gap).close()
    assert output.is_closed


def test_a_writer_that_is_woken_asks_for_lines_from_its_own_thread_and_writes_them_at_once() -> None:
    output = Output()
    writer = BackgroundWriter("log", output, gap)
    asked: list[str] = []

    def fill() -> None:
        if not asked:
            asked.append(current_thread().name)
            writer.put(["1", "2"])

    writer.wake(fill)
    writer.close()
    assert (asked, output.lines) == (["log"], ["1", "2"])
