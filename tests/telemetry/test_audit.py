from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.telemetry.audit import AuditFile

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES, BATCHES = 4, 100
WRITES = f"""
import sys
from pathlib import Path
from bridge.telemetry.audit import AuditFile
file = AuditFile(Path(sys.argv[1]), max_bytes=2000, kept_files=1000)
for number in range({BATCHES}):
    file.write(f"{{sys.argv[2]}} {{number}} begins\\n{{sys.argv[2]}} {{number}} ends\\n".encode())
file.close()
"""


@contextmanager
def files_no_longer_than(size_bytes: int) -> Iterator[None]:
    """Simulate a full disk: a write is cut, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_only_its_owner_may_read_the_file_even_where_one_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n", encoding="utf-8")
    path.chmod(0o644)
    file = AuditFile(path)
    file.write(b"after\n")
    file.close()
    assert path.read_text(encoding="utf-8") == "before\nafter\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_was_written_and_the_name_of_a_new_file_are_on_the_disk_when_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path | int] = []

    def fsync(file: int) -> None:
        found = os.fstat(file)
        synced.append(tmp_path if os.path.samestat(found, tmp_path.stat()) else found.st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    file = AuditFile(tmp_path / "audit.log", max_bytes=10)
    for line in (b"one\n", b"two\n", b"three\n"):  # the last one begins a new file
        file.write(line)
    file.close()
    assert synced == [tmp_path, 4, 8, tmp_path, 6]


def test_a_device_is_refused_and_keeps_its_mode() -> None:
    main, device = os.openpty()
    path = Path(os.ttyname(device))
    os.fchmod(device, 0o622)
    try:
        with pytest.raises(OSError, match="it is not a regular file"):
            AuditFile(path)
        assert path.stat().st_mode & 0o777 == 0o622
    finally:
        os.close(main)
        os.close(device)


def test_a_pipe_is_refused_before_it_waits_for_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writes = [sys.executable, "-c", WRITES, str(path), "0"]
    done = subprocess.run(writes, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == f"OSError: [Errno 22] it is not a regular file: {str(path)!r}"


def test_a_file_that_has_grown_is_renamed_and_begun_anew_and_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path, max_bytes=10, kept_files=2)
    for number in range(5):
        file.write(f"line {number}\n".encode())
    file.close()
    kept = {each.name: each.read_text(encoding="utf-8") for each in tmp_path.iterdir()}
    assert kept == {"audit.log": "line 4\n", "audit.log.1": "line 3\n", "audit.log.2": "line 2\n"}
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_without_earlier_files_to_keep_there_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path, max_bytes=10, kept_files=0)
    for number in range(3):
        file.write(f"line {number}\n".encode())
    file.close()
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("audit.log", "line 2\n")]


def test_where_there_is_no_room_no_half_line_is_left(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    file.write(b"whole\n")
    with files_no_longer_than(10), pytest.raises(OSError, match="File too large"):
        file.write(b"too long for it\n")
    assert path.read_bytes() == b"whole\n"
    file.write(b"again\n")
    file.close()
    assert path.read_bytes() == b"whole\nagain\n"


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    file.write(b"first\n")
    path.rename(tmp_path / "taken")
    file.write(b"second\n")
    file.close()
    assert path.read_bytes() == b"second\n"


def test_several_processes_share_a_file_and_its_rotation_and_no_batch_is_lost_or_torn(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    running = [subprocess.Popen([sys.executable, "-c", WRITES, str(path), str(number)]) for number in range(PROCESSES)]
    assert [process.wait(60) for process in running] == [0] * PROCESSES
    files = list(tmp_path.iterdir())
    assert len(files) > 2
    lines = [line for each in files for line in each.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 2 * PROCESSES * BATCHES
    assert len(set(lines)) == len(lines)
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        assert second == first.replace("begins", "ends")
    assert all(os.access(each, os.R_OK) for each in files)
