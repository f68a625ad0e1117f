from __future__ import annotations

import itertools
import os
import tracemalloc
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
import uritemplate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge import DefinitionError, File, InvocationContext, ResourceBox, ToolError, ToolExecutionRequest, files
from bridge.errors import ResourceNotFoundError
from bridge.resources.files import _content_of

module = import_module("bridge.resources.files")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from bridge.resources import ResourceTemplate

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    folder = tmp_path / "My docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("# é", encoding="utf-8")
    (folder / "sub" / "b c.json").write_text("{}", encoding="utf-8")
    (folder / "x.bin").write_bytes(b"\xff\0")
    (folder / ".hidden").write_text("hidden", encoding="utf-8")
    (folder / "link.md").symlink_to(tmp_path / "secret.txt")
    (folder / "inner.md").symlink_to(folder / "a.md")
    (folder / "up").symlink_to(tmp_path)
    return folder


async def read(box: ResourceBox, uri: str) -> File:
    found = box.find(uri)
    if found is None:
        raise ResourceNotFoundError(uri)
    result = await found.tool.executor.execute(
        ToolExecutionRequest(found.tool.name, found.arguments), InvocationContext()
    )
    (content,) = result.content
    assert isinstance(content, File)
    return content


async def test_files_are_read_as_text_or_bytes(folder: Path) -> None:
    box = ResourceBox(files(folder))
    assert str(box.templates[0].uri_template) == "my-docs:///{+path}"
    texts = {uri: await read(box, f"my-docs:///{uri}") for uri in ("a.md", "sub/b%20c.json", "x.bin", "inner.md")}
    assert [(each.content, each.mime_type) for each in texts.values()] == [
        ("# é", "text/markdown"),
        ("{}", "application/json"),
        (b"\xff\0", "application/octet-stream"),
        ("# é", "text/markdown"),
    ]
    assert texts["sub/b%20c.json"].uri == "my-docs:///sub/b%20c.json"


async def test_a_pattern_chooses_files_and_paths_are_completed(folder: Path) -> None:
    template = files(folder, uri="docs://", pattern="*.md", name="docs")
    box = ResourceBox(template)
    assert (await read(box, "docs://a.md")).content == "# é"
    with pytest.raises(ResourceNotFoundError):
        await read(box, "docs://x.bin")
    assert (await template.complete("path", "", {}, InvocationContext())).values == ("a.md", "inner.md")
    assert (await template.complete("path", "i", {}, InvocationContext())).values == ("inner.md",)
    assert (await files(folder).complete("path", "sub/", {}, InvocationContext())).values == ("sub/b c.json",)


ESCAPES = [
    *("../secret.txt", "sub/../../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "link.md", "up/secret.txt"),
    *(
        "C:/Windows/win.ini",
        "C:a.md",
        "CON",
        "a.md::$DATA",
        "a.md.",
        "a.md%20",
        "\\\\host\\share",
        "//host/share",
        "~/a.md",
    ),
    *(
        "%c0%ae%c0%ae/secret.txt",
        "%252e%252e/secret.txt",
        "\uff0e\uff0e/secret.txt",
        "sub/%2e%2e/%2e%2e/secret.txt",
        "a.md%00.md",
    ),
    *(".hidden", "sub/.", "./a.md", "/etc/passwd", "//etc/passwd", "a.md%00", "a.md/", "..\\secret.txt", "sub", "nope"),
]


@pytest.mark.parametrize("path", ESCAPES)
async def test_nothing_outside_of_the_folder_is_read(folder: Path, path: str) -> None:
    with pytest.raises(ResourceNotFoundError):
        await read(ResourceBox(files(folder, uri="docs:///")), f"docs:///{path}")


@pytest.mark.parametrize("path", ["note.md", "k.md", "git.md", "loop.md"])
async def test_a_link_hides_what_its_target_hides(folder: Path, path: str) -> None:
    (folder / "key.pem").write_text("secret", encoding="utf-8")
    (folder / ".git").mkdir()
    (folder / ".git" / "config.md").write_text("secret", encoding="utf-8")
    for link, target in {"note": ".hidden", "k": "key.pem", "git": ".git/config.md", "loop": "loop.md"}.items():
        (folder / f"{link}.md").symlink_to(target)
    template = files(folder, uri="docs:///", pattern="*.md")
    with pytest.raises(ResourceNotFoundError):
        await read(ResourceBox(template), f"docs:///{path}")
    assert await completed(template) == ("a.md", "inner.md")


async def test_a_file_over_the_limit_is_refused(folder: Path) -> None:
    box = ResourceBox(files(folder, uri="docs:///", max_bytes=1000))
    (folder / "a.txt").write_bytes(b"a" * 1000)
    assert (await read(box, "docs:///a.txt")).content == "a" * 1000
    (folder / "a.txt").write_bytes(b"a" * 1001)
    with pytest.raises(ToolError, match=r"'a\.txt' is too large .* 1,001 bytes, and at most 1,000 .* max_bytes="):
        await read(box, "docs:///a.txt")
    with pytest.raises(DefinitionError, match="max_bytes of files must be a whole number of at least 1"):
        files(folder, max_bytes=0)


def test_a_file_that_grows_after_its_size_was_read_is_read_up_to_the_limit() -> None:
    """Test that files of devices and processes, whose size is 0, are read within the limit."""
    with Path("/dev/zero").open("rb") as grows, pytest.raises(ToolError, match="1,001 bytes"):
        _content_of(grows, "grows.txt", 1000)
    if Path("/proc/self/stat").exists():
        with Path("/proc/self/stat").open("rb") as grown:
            assert _content_of(grown, "grown.txt", 5000).endswith(b"\n")


def test_a_file_over_the_limit_takes_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        with (tmp_path / "large.txt").open("rb") as file, pytest.raises(ToolError, match="67,108,864 bytes"):
            _content_of(file, "large.txt", 1000)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_a_completed_path_is_read_after_expansion(folder: Path) -> None:
    names = ["50%.txt", "a b+c.txt", "p%41.txt", "q?x.txt", "r#y.txt", "s&t=[1].txt", "tü.txt"]
    odd = folder / "odd 1%41"
    odd.mkdir()
    for name in names:
        (odd / name).write_text(name, encoding="utf-8")
    (folder / os.fsdecode(b"odd\xff")).write_bytes(b"")
    template = files(folder, uri="docs:///")
    paths = await completed(template, "odd")
    assert len(paths) == len(names)
    assert await completed(template, "odd 1%2541/p%2541") == ("odd 1%2541/p%2541.txt",)
    uris = [uritemplate.expand(str(template.uri_template), path=path) for path in paths]
    assert [(await read(ResourceBox(template), uri)).content for uri in uris] == names


async def test_completion_reads_only_folders_that_it_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sub/deep", "subway", "other", ".git"):
        (folder / name).mkdir()
        (folder / name / "z.md").write_text("", encoding="utf-8")
    read_folders: list[str] = []
    opened: Callable[[Path, str], AbstractContextManager[int | Path]] = module._opened_folder

    def recorded(root: Path, path: str) -> AbstractContextManager[int | Path]:
        read_folders.append(path or ".")
        return opened(root, path)

    monkeypatch.setattr(module, "_opened_folder", recorded)
    template = files(folder, pattern="*.md")
    assert await completed(template, "sub") == ("sub/deep/z.md", "subway/z.md")
    assert read_folders == [".", "sub", "sub/deep", "subway"]
    read_folders.clear()
    assert await completed(template, "sub/d") == ("sub/deep/z.md",)
    assert read_folders == ["sub", "sub/deep"]
    for text in ("../", "/", ".git/", "up/", "sub//", "nope/", "a.md/", "\ud800/", "\0/"):
        assert await completed(template, text) == ()
    monkeypatch.setattr(module, "_MAX_ENTRIES", 2)
    assert await completed(template) == ("a.md", "inner.md")


async def completed(template: ResourceTemplate, text: str = "") -> tuple[str, ...]:
    return (await template.complete("path", text, {}, InvocationContext())).values


def test_a_folder_without_a_name_makes_a_template_with_one() -> None:
    template = files("/")
    assert (template.name, str(template.uri_template)) == ("files", "files:///{+path}")
    assert template.description == "Files of the folder /"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.lists(
        st.sampled_from([*"./\\%", "..", "%2e", "%2f", "%5c", "%00", "sub", "up", "secret.txt", "~"]), max_size=8
    )
)
async def test_no_mixture_of_dots_and_slashes_leads_out(folder: Path, path: list[str]) -> None:
    with pytest.raises(ResourceNotFoundError):
        await read(ResourceBox(files(folder, uri="docs:///")), "docs:///" + "".join(path))


OFFERED = {"a.md": "# é", "inner.md": "# é", "sub/b c.json": "{}", "x.bin": b"\xff\0"}
PIECES = [
    "a.md",
    "inner.md",
    "link.md",
    "sub",
    "up",
    "secret.txt",
    "/",
    "//",
    ".",
    "..",
    "%2e",
    "%2F",
    "\\",
    "%00",
    "%41",
    "?",
    "#",
    "C:",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.lists(st.sampled_from([*PIECES, "b c.json", "b%20c.json", "x.bin"]), max_size=6))
async def test_what_is_read_is_always_a_file_that_is_offered(folder: Path, path: list[str]) -> None:
    try:
        content = (await read(ResourceBox(files(folder, uri="docs:///")), uri := "docs:///" + "".join(path))).content
    except ResourceNotFoundError:
        return
    assert content == OFFERED[unquote(uri.removeprefix("docs:///"))]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no folder"):
        files(tmp_path / "nope")


def swap_file_for_link(folder: Path) -> None:
    (folder / "sub" / "deep.md").rename(folder / "real.md")
    (folder / "sub" / "deep.md").symlink_to(folder.parent / "outside" / "deep.md")


def swap_folder_for_link(folder: Path) -> None:
    (folder / "sub").rename(folder / "real")
    (folder / "sub").symlink_to(folder.parent / "outside")


def swap_file_for_pipe(folder: Path) -> None:
    (folder / "sub" / "deep.md").rename(folder / "real.md")
    os.mkfifo(folder / "sub" / "deep.md")


@pytest.mark.parametrize("swap", [swap_file_for_link, swap_folder_for_link, swap_file_for_pipe])
@pytest.mark.parametrize("step", range(20))
async def test_a_swap_between_any_two_system_calls_leads_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path], None], step: int
) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "deep.md").write_text("secret", encoding="utf-8")
    (outside / "secret.md").write_text("secret", encoding="utf-8")
    (folder / "sub" / "deep.md").write_text("inside", encoding="utf-8")
    (folder / "to.md").symlink_to("sub/deep.md")
    template = files(folder, uri="docs:///", pattern="*.md")
    found: list[str] = []
    for uri in ("docs:///sub/deep.md", "docs:///to.md"):
        with swapped_before(step, lambda: swap(folder), monkeypatch), suppress(ResourceNotFoundError):
            found.append(str((await read(ResourceBox(template), uri)).content))
        restore(folder)
    with swapped_before(step, lambda: swap(folder), monkeypatch):
        found += await completed(template, "sub/")
    assert set(found) <= {"inside", "sub/deep.md"}


@contextmanager
def swapped_before(step: int, swap: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Call a function before the system call with a number, counted from 0."""
    originals = {name: getattr(os, name) for name in ("open", "stat", "lstat", "fstat", "readlink", "scandir")}
    numbers = itertools.count()

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if next(numbers) == step:
                swap()
            return original(*arguments, **keywords)

        return call

    with monkeypatch.context() as patched:
        for name, original in originals.items():
            patched.setattr(os, name, before(original))
        yield


def restore(folder: Path) -> None:
    """Undo a swap, if it was made."""
    if (folder / "real.md").exists():
        (folder / "real.md").replace(folder / "sub" / "deep.md")
    if (folder / "real").exists():
        (folder / "sub").unlink()
        (folder / "real").rename(folder / "sub")
