"""Folders; what `servers/files.py` does with one is tested in tests/servers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bridge import DefinitionError, ToolError
from bridge.resources import Folder
from bridge.resources.folder import MAX_PATH_CHARS, parts_of, reserved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("what nobody may read")
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "today.txt").write_text("milk")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "a").write_text("a")
    return root


@pytest.fixture
def folder(root: Path) -> Iterator[Folder]:
    folder = Folder(root)
    yield folder
    folder.close()


def read(folder: Folder, path: str) -> bytes:
    with folder.opened_file(path) as file:
        return os.read(file, 100)


def test_files_are_read_by_relative_paths(folder: Folder) -> None:
    assert read(folder, "notes/today.txt") == read(folder, "./notes//today.txt") == b"milk"
    with folder.opened("notes") as notes:
        assert os.stat("today.txt", dir_fd=notes).st_size == len(b"milk")
    with pytest.raises(FileNotFoundError):
        read(folder, "notes/tomorrow.txt")


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside/secret", "notes/../../outside/secret", "a\0", "\ud800", "a" * (MAX_PATH_CHARS + 1)],
)
def test_no_text_of_a_path_leads_out(folder: Folder, path: str) -> None:
    with pytest.raises(ToolError):
        read(folder, path)


def test_no_link_leads_out_nor_does_another_name_of_a_file(folder: Folder, root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    (root / "secret").symlink_to(root.parent / "outside" / "secret")
    os.link(root.parent / "outside" / "secret", root / "hard")
    os.mkfifo(root / "pipe")
    with pytest.raises(OSError, match="link"):
        read(folder, "link/secret")
    for path in ("secret", "hard", "pipe", "notes"):
        with pytest.raises(ToolError):
            read(folder, path)
    assert [path for _, path, name in folder.walk() if name] == [".hidden/a", "hard", "notes/today.txt"]


def test_a_folder_stays_the_same_after_it_was_moved(folder: Folder, root: Path) -> None:
    root.rename(root.parent / "moved")
    root.symlink_to(root.parent / "outside")
    assert read(folder, "notes/today.txt") == b"milk"


def test_everything_below_is_walked_with_or_without_hidden_entries(folder: Folder) -> None:
    assert [(path, name) for _, path, name in folder.walk(hidden=False)] == [
        ("notes", None),
        ("notes/today.txt", "today.txt"),
    ]
    assert [path for _, path, _ in folder.walk("notes")] == ["notes/today.txt"]


def test_missing_folders_are_created_on_request_and_a_name_is_taken_once(folder: Folder, root: Path) -> None:
    with folder.opened_parent("new/deep/file", create=True) as (parent, name), reserved(parent, name, is_folder=False):
        assert (root / "new" / "deep" / "file").exists()
        with pytest.raises(FileExistsError), reserved(parent, name, is_folder=False):
            pass
    with pytest.raises(ZeroDivisionError), folder.opened("new") as new, reserved(new, "taken", is_folder=True):
        raise ZeroDivisionError
    assert not (root / "new" / "taken").exists()


def test_what_is_no_folder_is_refused(root: Path) -> None:
    for path in (root / "notes" / "today.txt", root / "nothing", "\0"):
        with pytest.raises(DefinitionError, match="is not a folder that can be read"):
            Folder(path)
    with pytest.raises(ToolError, match="is the root itself"):
        Folder(root).opened_parent(".").__enter__()
    assert parts_of("a/./b//") == ["a", "b"]
