"""Content blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.errors import DefinitionError
from bridge.tools.content import Audio, File, Image, ResourceLink, Text, text_of


def test_blocks_are_compared_by_value() -> None:
    assert Text("a") == Text("a")
    assert Text("a") != Text("a", annotations={"priority": 1})
    assert Image(b"x") == Image(b"x", "image/png")


def test_every_block_carries_annotations_and_metadata() -> None:
    assert Text("a", metadata={"k": 1}).metadata == {"k": 1}
    assert ResourceLink("file:///a", "a", annotations={"audience": ["user"]}).annotations == {"audience": ["user"]}


def test_bytes_are_not_shown_in_messages() -> None:
    assert "secret" not in repr(Image(b"secret"))
    assert "secret" not in repr(File("file:///a", "secret"))


@pytest.mark.parametrize(
    ("kind", "name", "mime_type"), [(Image, "a.jpg", "image/jpeg"), (Audio, "a.mp3", "audio/mpeg")]
)
def test_the_media_type_is_told_by_the_name(
    tmp_path: Path, kind: type[Image | Audio], name: str, mime_type: str
) -> None:
    (tmp_path / name).write_bytes(b"data")
    assert kind.from_path(tmp_path / name) == kind(b"data", mime_type)


def test_a_given_media_type_comes_before_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"data")
    assert Image.from_path(tmp_path / "a.bin", "image/webp").mime_type == "image/webp"


def test_a_name_that_tells_no_media_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"data")
    with pytest.raises(ValueError, match="pass mime_type="):
        Image.from_path(tmp_path / "picture")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"data")
    with pytest.raises(ValueError, match=r"notes\.txt' is text/plain, and Image is for image/….*File\.from_path"):
        Image.from_path(tmp_path / "notes.txt")


def test_a_text_file_is_carried_as_text_and_another_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("é,1")
    (tmp_path / "a.zip").write_bytes(b"\xff")
    (tmp_path / "unknown").write_bytes(b"\xff")
    assert File.from_path(tmp_path / "a.csv") == File((tmp_path / "a.csv").as_uri(), "é,1", "text/csv")
    assert File.from_path(tmp_path / "a.zip").content == b"\xff"
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    assert File.from_path(tmp_path / "latin.txt") == File((tmp_path / "latin.txt").as_uri(), b"\xe9", "text/plain")
    assert File.from_path(tmp_path / "unknown").mime_type is None


def test_a_missing_file_is_the_operating_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        File.from_path(tmp_path / "absent.txt")


def test_the_text_of_content_is_that_of_its_text_blocks() -> None:
    assert text_of((Text("a"),)) == "a"
    assert text_of((Text("a"), Image(b"x"), Text("b"))) == "a\nb"
    assert text_of((Image(b"x"),)) == ""
    assert text_of(()) == ""


@pytest.mark.parametrize("kind", [Image, Audio, File])
@pytest.mark.parametrize("data", [Path("a.png"), 3, None])
def test_a_path_in_the_place_of_bytes_is_refused_with_the_remedy(kind: Any, data: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"{kind.__name__} must be .*{kind.__name__}\.from_path"):
        kind("file:///a", data) if kind is File else kind(data)


def test_text_in_the_place_of_an_image_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the data of Image must be bytes; read a file by"):
        Image("a.png")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(DefinitionError, match="the media type of Image"):
        Image(b"", 3)  # type: ignore[arg-type]  # the mistake
