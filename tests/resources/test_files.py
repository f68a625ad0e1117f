from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge import (
    DefinitionError,
    File,
    InvocationContext,
    ResourceBox,
    ResourceNotFoundError,
    ToolExecutionRequest,
    files,
)

if TYPE_CHECKING:
    from pathlib import Path

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
    *(".hidden", "sub/.", "./a.md", "/etc/passwd", "//etc/passwd", "a.md%00", "a.md/", "..\\secret.txt", "sub", "nope"),
]


@pytest.mark.parametrize("path", ESCAPES)
async def test_nothing_outside_of_the_folder_is_read(folder: Path, path: str) -> None:
    with pytest.raises(ResourceNotFoundError):
        await read(ResourceBox(files(folder, uri="docs:///")), f"docs:///{path}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.lists(
        st.sampled_from([*"./\\%", "..", "%2e", "%2f", "%5c", "%00", "sub", "up", "secret.txt", "~"]), max_size=8
    )
)
async def test_no_mixture_of_dots_and_slashes_leads_out(folder: Path, path: list[str]) -> None:
    with pytest.raises(ResourceNotFoundError):
        await read(ResourceBox(files(folder, uri="docs:///")), "docs:///" + "".join(path))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no folder"):
        files(tmp_path / "nope")
