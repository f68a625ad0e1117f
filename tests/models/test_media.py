from __future__ import annotations

import pytest

from bridge.models.encoding import base64_of, file_name_of, image_in, is_pdf
from bridge.tools.content import Audio, Content, File, Image, ResourceLink, Text, describe_block, media_type_of


def test_a_picture_may_be_an_image_or_a_file() -> None:
    assert image_in(Image(b"x", "IMAGE/JPG; q=1")) == Image(b"x", "image/jpeg")
    assert image_in(File("a", b"x", "image/gif")) == Image(b"x", "image/gif")
    for other in (Text("x"), Audio(b"x"), File("a", "x", "image/svg+xml"), File("a", b"x")):
        assert image_in(other) is None


def test_a_pdf_is_a_file_of_bytes() -> None:
    assert is_pdf(File("a", b"x", "application/pdf; v=1"))
    assert not is_pdf(File("a", "x", "application/pdf"))
    assert not is_pdf(File("a", b"x"))


def test_media_types_are_spelled_one_way() -> None:
    kinds = ("audio/x-wav", "Audio/MP3", "audio/ogg;codecs=opus", "")
    assert [media_type_of(Audio(b"", kind)) for kind in kinds] == ["audio/wav", "audio/mpeg", "audio/ogg", ""]


def test_a_block_s_bytes_are_written_in_base64() -> None:
    assert base64_of(Image(b"\x00\xff")) == base64_of(File("a", b"\x00\xff")) == "AP8="
    assert base64_of(File("a", "ÿ")) == "w78="


@pytest.mark.parametrize(("uri", "name"), [("file:///a/b.pdf", "b.pdf"), ("x", "x"), ("a/b/", "b"), ("/", "/")])
def test_a_file_is_named_by_the_end_of_its_uri(uri: str, name: str) -> None:
    assert file_name_of(File(uri, b"")) == name


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (Text("Größe"), "Größe"),
        (File("a.txt", "b"), "a.txt:\nb"),
        (File("a.bin", b"bc"), "[a.bin: 2 bytes of unknown type, not shown]"),
        (Image(b"abc"), "[image/png: 3 bytes, not shown]"),
        (Audio(b"abc"), "[audio/wav: 3 bytes, not shown]"),
        (ResourceLink("u:1", "name"), "Resource: name <u:1>"),
        (ResourceLink("u:1", "n", title="T", description="D", mime_type="a/b"), "Resource: T <u:1> a/b D"),
    ],
)
def test_every_block_has_words(block: Content, words: str) -> None:
    assert describe_block(block) == words
