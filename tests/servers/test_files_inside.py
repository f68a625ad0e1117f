"""Nothing outside the root of servers/files.py can be reached, and nothing that is not a plain file."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.errors import ToolError
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.conftest import Load, Loaded

pytestmark = pytest.mark.anyio

SECRET = "what nobody may read"
DEADLINE_SECONDS = 60


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "door").mkdir(parents=True)
    (folder / "door" / "file").write_text("inside")
    return folder


@pytest.fixture
def files(load: Load, root: Path) -> Loaded:
    return load("files", FILES_ROOT=root, FILES_WRITABLE=1)


def uses(path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every operation that takes a path."""
    return [
        ("read_file", {"path": path}),
        ("list_directory", {"path": path}),
        ("search_files", {"path": path, "text": SECRET[:4]}),
        ("write_file", {"path": path, "text": "changed"}),
        ("write_file", {"path": path, "text": "changed", "overwrite": True}),
        ("move_file", {"source": path, "destination": "taken"}),
        ("move_file", {"source": "door/file", "destination": path}),
    ]


def state_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "path",
    [
        "../outside/file",
        "..",
        "door/../../outside/file",
        "door/..",
        "./../outside/file",
        "door//../../outside/file",
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "link/file",
        "door/link/file",
        "link/",
        "direct",
        "link/../outside/file",
        "door/file/../../../outside/file",
        "file\0/../../outside/file",
        "\ud800",
        "a/" * 3_000,
    ],
)
async def test_no_path_leads_out(files: Loaded, root: Path, outside: Path, path: str) -> None:
    (root / "link").symlink_to(outside)
    (root / "door" / "link").symlink_to(outside)
    (root / "direct").symlink_to(outside / "file")
    for name, arguments in uses(path):
        result = await files.call(name, **arguments)
        assert result.is_error, name
        assert SECRET not in result.text
    assert state_of(outside) == {"file": SECRET}


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/outside/file",
        "..\\outside\\file",
        "~",
        "~root",
        "$HOME",
        "C:\\",
        "\uff0e\uff0e/file",
        "\u2025/file",
        "-rf",
        "*",
    ],
)
async def test_what_means_more_elsewhere_is_only_a_name_here(files: Loaded, root: Path, path: str) -> None:
    assert (await files.call("read_file", path=path)).text.endswith("does not exist; list_directory shows what does")
    assert not (await files.call("write_file", path=path, text="inside")).is_error
    assert root.joinpath(*path.split("/")).read_text() == "inside"


async def test_a_hard_link_is_refused_whatever_is_asked(files: Loaded, root: Path, outside: Path) -> None:
    os.link(outside / "file", root / "hard")
    for name, arguments in uses("hard"):
        result = await files.call(name, **arguments)
        assert SECRET not in result.text
        assert result.is_error or result.structured_content["matches"] == [], name
    assert (root / "hard").read_text() == SECRET
    found = (await files.call("search_files", text=SECRET)).structured_content
    assert (found["matches"], found["files_skipped"]) == ([], 1)


async def test_pipes_devices_and_sockets_are_refused_and_hang_nobody(files: Loaded, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with anyio.fail_after(DEADLINE_SECONDS):
        for name, arguments in uses("pipe"):
            assert (await files.call(name, **arguments)).is_error, name
        found = (await files.call("search_files", text="inside")).structured_content
    assert [match["path"] for match in found["matches"]] == ["door/file"]


async def test_a_search_follows_no_link(files: Loaded, root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    (root / "direct").symlink_to(outside / "file")
    (root / "loop").symlink_to(root)
    found = (await files.call("search_files", text=SECRET)).structured_content
    assert (found["matches"], found["files_searched"]) == ([], 1)


async def test_a_search_goes_only_so_deep(files: Loaded, root: Path) -> None:
    deep = root.joinpath(*["d"] * 66)
    deep.mkdir(parents=True)
    (deep / "needle").touch()
    (deep.parents[2] / "needle").touch()
    found = (await files.call("search_files", name_pattern="needle")).structured_content
    assert [match["path"] for match in found["matches"]] == ["d/" * 63 + "needle"]


async def test_a_name_that_is_no_utf8_is_shown_and_breaks_nothing(files: Loaded, root: Path) -> None:
    (root / os.fsdecode(b"\xff")).write_text("needle")
    listed = (await files.call("list_directory")).structured_content
    assert [entry["name"] for entry in listed["entries"]] == ["door", "\ufffd"]
    found = (await files.call("search_files", text="needle")).structured_content
    assert [match["path"] for match in found["matches"]] == ["\ufffd"]


def swap_folder_for_link(root: Path, outside: Path) -> None:
    (root / "door").rename(root / "real")
    (root / "door").symlink_to(outside)


def swap_file_for_link(root: Path, outside: Path) -> None:
    (root / "door" / "file").rename(root / "real")
    (root / "door" / "file").symlink_to(outside / "file")


def swap_file_for_pipe(root: Path, outside: Path) -> None:
    (root / "door" / "file").rename(root / "real")
    os.mkfifo(root / "door" / "file")


def swap_file_for_hard_link(root: Path, outside: Path) -> None:
    (root / "door" / "file").rename(root / "real")
    os.link(outside / "file", root / "door" / "file")


SWAPS = [swap_folder_for_link, swap_file_for_link, swap_file_for_pipe, swap_file_for_hard_link]
SYSTEM_CALLS = ["open", "stat", "fstat", "scandir", "mkdir", "rename", "replace", "unlink"]


RACED = [
    *(use for use in uses("door/file") if use[0] in {"read_file", "write_file"}),
    *(use for use in uses("door") if use[0] in {"list_directory", "search_files"}),
    ("move_file", {"source": "door/file", "destination": "taken"}),
    ("move_file", {"source": "own", "destination": "door/new"}),
]


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize(("name", "arguments"), RACED)
@pytest.mark.parametrize("step", range(8))
async def test_a_swap_between_any_two_system_calls_reaches_nothing(
    files: Loaded,
    root: Path,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
    swap: Callable[[Path, Path], None],
    name: str,
    arguments: dict[str, Any],
    step: int,
) -> None:
    (root / "own").write_text("own")
    calls = iter(range(1_000))

    def before(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if next(calls) == step:
                with monkeypatch.context() as original:
                    for other in SYSTEM_CALLS:
                        original.setattr(os, other, reals[other])
                    swap(root, outside)
            return real(*arguments, **keywords)

        return call

    reals = {name: getattr(os, name) for name in SYSTEM_CALLS}
    context = {"context": InvocationContext()} if name == "search_files" else {}
    with monkeypatch.context() as patched:
        for call in SYSTEM_CALLS:
            patched.setattr(os, call, before(call, reals[call]))
        try:
            said = repr(getattr(files.module, name)(**context, **arguments))
        except ToolError as error:
            said = str(error)
    assert next(calls) > min(step, 3)  # every operation makes at least four system calls, so the swap was made
    assert SECRET not in said
    assert state_of(outside) == {"file": SECRET}


async def test_links_swapped_in_by_a_racing_thread_reach_nothing(files: Loaded, root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    (root / "dir").mkdir()
    (outside / "other").touch()
    done, seen = threading.Event(), set()

    def race() -> None:
        while not done.is_set():
            (root / "door").rename(root / "dir" / "real")
            (root / "link").rename(root / "door")
            (root / "door").rename(root / "link")
            (root / "dir" / "real").rename(root / "door")

    racer = threading.Thread(target=race)
    racer.start()
    try:
        for _ in range(3_000):
            for name in ("read_file", "list_directory"):
                try:
                    seen.add(repr(getattr(files.module, name)("door" if name == "list_directory" else "door/file")))
                except ToolError:
                    seen.add("refused")
    finally:
        done.set()
        racer.join()
    assert any("inside" in said for said in seen)
    assert not any(SECRET in said or "other" in said for said in seen)
