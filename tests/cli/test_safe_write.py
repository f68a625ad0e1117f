from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from bridge.cli.install import config_files
from bridge.cli.install.config_files import only_writer, replace_file
from bridge.cli.reporting import CommandError

if TYPE_CHECKING:
    from pathlib import Path


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_file_is_written_with_its_directories_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.json"
    assert replace_file(path, b"new") is None
    assert path.read_bytes() == b"new"
    assert names_in(path.parent) == ["file.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_is_replaced_under_its_permissions_and_kept_beside(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    backup = replace_file(path, b"new")
    assert backup == tmp_path / "file.json.bak"
    assert (path.read_bytes(), backup.read_bytes()) == (b"new", b"old")
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path, backup)} == {0o640}
    assert replace_file(path, b"newer") == tmp_path / "file.json.bak2"
    assert backup.read_bytes() == b"old"
    assert names_in(tmp_path) == ["file.json", "file.json.bak", "file.json.bak2"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles" / "file.json"
    real.write_bytes(b"old")
    link = tmp_path / "link.json"
    link.symlink_to(real)
    assert replace_file(link, b"new") == real.with_name("file.json.bak")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    calls: list[int] = []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["file.json"]


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    with pytest.raises(PermissionError):
        replace_file(path, b"new")
    assert names_in(tmp_path) == ["file.json"]


def test_one_writes_at_a_time_by_whatever_name_and_who_waits_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(config_files, "_LOCK_SECONDS", 0.01)
    path, link = tmp_path / "file.json", tmp_path / "link.json"
    link.symlink_to(path)
    with only_writer(path):
        with only_writer(tmp_path / "other.json"):
            pass
        with pytest.raises(CommandError, match=r"another process has been writing .*link\.json"), only_writer(link):
            pytest.fail("two write at once")
    with only_writer(link):
        pass
