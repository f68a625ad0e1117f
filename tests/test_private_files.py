"""Files that are created for their user alone."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from bridge.private_files import make_private_folder, naming, open_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_and_one_that_others_could_read_are_private(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text("kept")
    for path in (tmp_path / "new", shared):
        os.close(open_private(path, os.O_WRONLY))
        assert mode(path) == 0o600
    assert shared.read_text() == "kept"


def test_what_is_no_file_keeps_its_mode(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    os.close(open_private(pipe, os.O_RDWR))
    assert mode(pipe) == 0o644


def test_a_file_that_must_be_new_is_refused_if_it_exists(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(FileExistsError):
        open_private(tmp_path / "old", os.O_WRONLY | os.O_EXCL)


def test_new_folders_are_private_and_those_above_them_too(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    folder = tmp_path / "shared" / "state" / "bridge"
    for _ in range(2):
        make_private_folder(folder)
        assert [mode(each) for each in (folder, folder.parent, folder.parent.parent)] == [0o700, 0o700, 0o777]
    (folder / "file").touch()
    with pytest.raises(FileExistsError):
        make_private_folder(folder / "file")


def test_an_error_of_a_full_disk_gets_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as caught, naming(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError) as missing, naming("another"):
        (tmp_path / "missing").read_bytes()
    assert missing.value.filename == str(tmp_path / "missing")
