from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mcp_types import ImageContent, TextContent

from bridge.errors import TargetError
from bridge.tools.content import Audio, File, Image, Text
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.conftest import Load, Loaded, Serve

pytestmark = pytest.mark.anyio

HOME = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def files(load: Load, root: Path) -> Loaded:
    return load("files", FILES_ROOT=root, FILES_WRITABLE=1)


def state_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("made", [lambda path: None, lambda path: path.write_text("a file")])
def test_a_root_that_is_no_folder_is_said_at_once(load: Load, root: Path, made: Callable[[Path], object]) -> None:
    made(root / "nothing")
    with pytest.raises(
        TargetError, match=r"FILES_ROOT must be a folder: '.*nothing' is not a folder that can be read: N"
    ):
        load("files", FILES_ROOT=root / "nothing")


def test_a_root_that_is_not_named_is_said_at_once(load: Load) -> None:
    with pytest.raises(TargetError, match="FILES_ROOT is not set"):
        load("files", FILES_ROOT="")


@pytest.mark.parametrize("variable", ["FILES_WRITABLE", "FILES_SEARCH_SECONDS", "FILES_POLL_SECONDS"])
def test_a_setting_that_means_nothing_is_said_at_once(load: Load, root: Path, variable: str) -> None:
    with pytest.raises(TargetError, match=f"{variable} must be"):
        load("files", FILES_ROOT=root, **{variable: "perhaps"})


def test_the_command_says_what_is_missing_in_one_line(root: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FILES_ROOT"}
    command = [sys.executable, "-m", "bridge", "serve", "servers/files.py"]
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "bridge: FILES_ROOT is not set; it names the folder to serve\n"


def test_without_leave_to_write_the_tools_that_write_do_not_exist(load: Load, root: Path) -> None:
    names = [tool.name for tool in load("files", FILES_ROOT=root).tools]
    assert names == ["list_directory", "read_file", "search_files"]


async def test_a_listing_is_ordered_and_says_what_things_are(files: Loaded, root: Path) -> None:
    (root / "b.txt").write_text("four")
    (root / "a").mkdir()
    (root / "link").symlink_to("b.txt")
    os.mkfifo(root / "pipe")
    result = await files.call("list_directory")
    entries = result.structured_content["entries"]
    assert [(entry["name"], entry["kind"]) for entry in entries] == [
        ("a", "folder"),
        ("b.txt", "file"),
        ("link", "link"),
        ("pipe", "other"),
    ]
    assert entries[1]["size_bytes"] == 4


async def test_a_long_listing_goes_on_where_the_page_before_ended(files: Loaded, root: Path) -> None:
    for number in range(501):
        (root / f"{number:04}").touch()
    first = (await files.call("list_directory")).structured_content
    assert len(first["entries"]) == 500
    rest = (await files.call("list_directory", after=first["more_after"])).structured_content
    assert ([entry["name"] for entry in rest["entries"]], rest["more_after"]) == (["0500"], None)


async def test_a_text_is_read_as_it_is(files: Loaded, root: Path) -> None:
    (root / "größe 王.txt").write_bytes("a\r\nß\n".encode())
    assert (await files.call("read_file", path="größe 王.txt")).content == (Text("a\r\nß\n"),)


async def test_an_empty_file_is_an_empty_text(files: Loaded, root: Path) -> None:
    (root / "empty").touch()
    assert (await files.call("read_file", path="empty")).content == (Text(""),)


async def test_pages_of_a_long_text_make_the_text_again_whatever_character_they_cut(files: Loaded, root: Path) -> None:
    text = "aé王🙂" * 20_000
    (root / "long.txt").write_text(text, encoding="utf-8")
    pages, offset = [], 0
    while True:
        result = await files.call("read_file", path="long.txt", offset_bytes=offset)
        page, *hint = result.content
        assert isinstance(page, Text)
        pages.append(page.text)
        if not hint:
            break
        offset += len(page.text.encode())
        assert hint == [
            Text(
                f"[bytes {offset - len(page.text.encode())} to {offset} of 200000; read on with offset_bytes={offset}]"
            )
        ]
    assert len(pages) == 4
    assert "".join(pages) == text


async def test_a_page_that_begins_inside_a_character_begins_with_the_next(files: Loaded, root: Path) -> None:
    (root / "text").write_text("🙂b", encoding="utf-8")
    for offset in (1, 2, 3, 4):
        assert (await files.call("read_file", path="text", offset_bytes=offset)).text == "b"


@pytest.mark.parametrize("offset", [-1, 5, 2**63, 10**30])
async def test_an_offset_outside_the_file_is_refused(files: Loaded, root: Path, offset: int) -> None:
    (root / "text").write_text("four")
    result = await files.call("read_file", path="text", offset_bytes=offset)
    assert result.is_error
    assert str(offset) in result.text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p.png", lambda data: Image(data, "image/png")),
        ("s.mp3", lambda data: Audio(data, "audio/mpeg")),
        ("a b.zip", lambda data: File("file:///a%20b.zip", data, "application/zip")),
        ("unknown", lambda data: File("file:///unknown", data, "application/octet-stream")),
    ],
)
async def test_a_binary_file_comes_whole_as_what_it_is(
    files: Loaded, root: Path, name: str, expected: Callable[[bytes], object]
) -> None:
    data = b"\x89\xff\x00"
    (root / name).write_bytes(data)
    assert (await files.call("read_file", path=name)).content == (expected(data),)


async def test_a_place_before_the_beginning_is_refused(files: Loaded, root: Path) -> None:
    (root / "a").write_text("text")
    result = await files.call("read_file", path="a", offset_bytes=-1)
    assert result.is_error
    assert "offset_bytes: " in result.text


async def test_a_large_binary_file_is_refused_with_its_size(files: Loaded, root: Path) -> None:
    (root / "big.bin").write_bytes(b"\0" * 1_048_577)
    result = await files.call("read_file", path="big.bin")
    assert result.is_error
    assert "1048577 bytes) is not UTF-8 text, and larger than 1048576 bytes" in result.text


async def test_a_search_finds_lines_and_their_numbers(files: Loaded, root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "x.md").write_text("one\nThe STRASSE is long\n")
    (root / "y.txt").write_text("die Straße\n")
    (root / "z.bin").write_bytes(b"strasse\0")
    result = await files.call("search_files", text="straße")
    assert result.structured_content == {
        "matches": [
            {"path": "a/x.md", "line": 2, "text": "The STRASSE is long"},
            {"path": "y.txt", "line": 1, "text": "die Straße"},
        ],
        "files_searched": 2,
        "files_skipped": 1,
        "stopped_because": None,
    }


async def test_a_search_can_mind_capitals_and_look_at_some_names_in_one_folder(files: Loaded, root: Path) -> None:
    for folder in ("a", "b"):
        (root / folder).mkdir()
        (root / folder / "x.md").write_text("Needle")
        (root / folder / "x.txt").write_text("Needle")
    found = await files.call("search_files", text="Needle", path="b", name_pattern="*.md", match_case=True)
    assert [match["path"] for match in found.structured_content["matches"]] == ["b/x.md"]
    none = await files.call("search_files", text="needle", match_case=True)
    assert none.structured_content["matches"] == []


async def test_names_alone_can_be_searched(files: Loaded, root: Path) -> None:
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "notes.md").touch()
    result = await files.call("search_files", name_pattern="n?tes.*")
    assert result.structured_content["matches"] == [{"path": "deep/er/notes.md", "line": None, "text": None}]


async def test_a_search_stops_at_its_limit_of_matches_and_cuts_long_lines(files: Loaded, root: Path) -> None:
    (root / "many").write_text(("x" * 10_000 + "needle\n") * 101)
    found = (await files.call("search_files", text="needle")).structured_content
    assert len(found["matches"]) == 100
    assert all("needle" in match["text"] and len(match["text"]) <= 200 for match in found["matches"])
    assert found["stopped_because"] == "there are more than 100 matches"


@pytest.mark.parametrize("make", ["touch", "mkdir"])
async def test_a_search_stops_at_its_limit_of_time(load: Load, root: Path, make: str) -> None:
    getattr(root / "a", make)()
    files = load("files", FILES_ROOT=root, FILES_SEARCH_SECONDS=0)
    found = (await files.call("search_files")).structured_content
    assert (found["matches"], found["stopped_because"][:25]) == ([], "it took more than 0 secon")


async def test_a_pattern_is_bounded_and_many_stars_cost_little(files: Loaded, root: Path) -> None:
    (root / ("a" * 250)).touch()
    assert (await files.call("search_files", name_pattern="*" * 201)).is_error
    found = await files.call("search_files", name_pattern="*a" * 99 + "b")
    assert found.structured_content["matches"] == []


def test_a_search_stops_when_its_caller_has_left(files: Loaded, root: Path) -> None:
    (root / "a").touch()
    context = InvocationContext()
    context.cancel()
    assert files.module.search_files(context).matches == []


async def test_a_file_is_written_with_the_folders_that_it_needs(files: Loaded, root: Path) -> None:
    result = await files.call("write_file", path="new/folder/größe.txt", text="ß\n")
    assert (result.text, result.is_error) == ("Wrote 3 bytes to 'new/folder/größe.txt'.", False)
    assert (root / "new/folder/größe.txt").read_bytes() == "ß\n".encode()


async def test_a_file_that_exists_is_replaced_only_when_asked_and_keeps_its_permissions(
    files: Loaded, root: Path
) -> None:
    (root / "script").write_text("old")
    (root / "script").chmod(0o750)
    refused = await files.call("write_file", path="script", text="new")
    assert refused.text == "'script' exists already, and is left as it is"
    assert (root / "script").read_text() == "old"
    await files.call("write_file", path="script", text="new", overwrite=True)
    assert (root / "script").read_text() == "new"
    assert stat.S_IMODE((root / "script").stat().st_mode) == 0o750


@pytest.mark.parametrize("overwrite", [False, True])
async def test_a_full_disk_loses_nothing_and_leaves_nothing_behind(files: Loaded, root: Path, overwrite: bool) -> None:
    (root / "old").write_text("precious")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))  # writing fails, as on a full disk
    try:
        name = "old" if overwrite else "new"
        result = await files.call("write_file", path=name, text="x" * 100_000, overwrite=overwrite)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (result.text, result.is_error) == (f"'{name}': File too large", True)
    assert state_of(root) == {"old": "precious"}


async def test_a_text_that_is_too_long_or_no_unicode_is_not_written(files: Loaded, root: Path) -> None:
    assert "1048577 bytes" in (await files.call("write_file", path="a", text="x" * 1_048_577)).text
    assert (await files.call("write_file", path="a", text="\ud800")).is_error
    assert state_of(root) == {}


async def test_files_and_folders_are_moved_and_nothing_is_overwritten(files: Loaded, root: Path) -> None:
    (root / "a").write_text("A")
    (root / "folder").mkdir()
    (root / "folder" / "b").write_text("B")
    assert not (await files.call("move_file", source="a", destination="folder/new/a")).is_error
    assert not (await files.call("move_file", source="folder", destination="moved")).is_error
    assert (root / "moved/new/a").read_text() == "A"
    for destination in ("moved/b", "moved/new"):
        refused = await files.call("move_file", source="moved/new/a", destination=destination)
        assert refused.text == f"'{destination}' exists already, and is left as it is"
    assert (root / "moved/b").read_text() == "B"


@pytest.mark.parametrize("destination", ["folder", "folder/in/itself", "./folder/x"])
async def test_a_folder_is_not_moved_into_itself(files: Loaded, root: Path, destination: str) -> None:
    (root / "folder").mkdir()
    assert (await files.call("move_file", source="folder", destination=destination)).is_error
    assert list((root / "folder").iterdir()) == []


async def test_a_failed_move_leaves_nothing_at_its_destination(
    files: Loaded, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").write_text("A")

    def other_disk(*arguments: object, **keywords: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(files.module.os, "rename", other_disk)
    result = await files.call("move_file", source="a", destination="b")
    assert result.text == "'b': Invalid cross-device link"
    assert state_of(root) == {"a": "A"}


async def test_a_real_client_uses_it(serve: Serve, root: Path) -> None:
    (root / "notes.txt").write_text("milk\nbread\n")
    (root / "p.png").write_bytes(b"\x89\xff\x00")
    async with serve("files", FILES_ROOT=root, FILES_WRITABLE=1) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["list_directory", "read_file", "search_files", "write_file", "move_file"]
        text = await client.call_tool("read_file", {"path": "notes.txt"})
        assert text.content == [TextContent(text="milk\nbread\n")]
        image = await client.call_tool("read_file", {"path": "p.png"})
        assert image.content == [ImageContent(data="if8A", mime_type="image/png")]
        found = await client.call_tool("search_files", {"text": "MILK"})
        assert found.structured_content is not None
        assert found.structured_content["matches"] == [{"path": "notes.txt", "line": 1, "text": "milk"}]
        assert (await client.call_tool("read_file", {"path": "../../etc/passwd"})).is_error
        assert not (await client.call_tool("write_file", {"path": "new.txt", "text": "ü"})).is_error
        assert (root / "new.txt").read_text(encoding="utf-8") == "ü"
