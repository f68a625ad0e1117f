from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.openapi.serialization import UnsendableError, has_dot_segments, in_header, in_path, in_query

COLORS, POINT = ["blue", "black"], {"R": 100, "G": 200}


@pytest.mark.parametrize(
    ("style", "explode", "value", "text"),
    [  # OpenAPI 3.1, "Style Examples"
        ("simple", False, "blue", "blue"),
        ("simple", False, COLORS, "blue,black"),
        ("simple", False, POINT, "R,100,G,200"),
        ("simple", True, COLORS, "blue,black"),
        ("simple", True, POINT, "R=100,G=200"),
        ("label", False, "blue", ".blue"),
        ("label", False, COLORS, ".blue,black"),
        ("label", False, POINT, ".R,100,G,200"),
        ("label", True, COLORS, ".blue.black"),
        ("label", True, POINT, ".R=100.G=200"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, COLORS, ";color=blue,black"),
        ("matrix", False, POINT, ";color=R,100,G,200"),
        ("matrix", True, COLORS, ";color=blue;color=black"),
        ("matrix", True, POINT, ";R=100;G=200"),
        ("simple", False, True, "true"),
        ("simple", False, 1.5, "1.5"),
        ("simple", False, "a b?c#d%e;f=g,h:i@j&k", "a%20b%3Fc%23d%25e%3Bf%3Dg%2Ch%3Ai%40j%26k"),
        ("simple", False, "ü", "%C3%BC"),
        ("simple", False, ["a,b", {"c": [1]}], "a%2Cb,%7B%22c%22%3A%5B1%5D%7D"),
    ],
)
def test_values_in_a_path_have_the_styles_of_the_standard(style: str, explode: bool, value: Any, text: str) -> None:
    assert in_path("color", value, style, explode=explode) == text


@pytest.mark.parametrize(
    ("style", "explode", "value", "text"),
    [
        ("form", True, "blue", "color=blue"),
        ("form", True, "", "color="),
        ("form", True, COLORS, "color=blue&color=black"),
        ("form", True, POINT, "R=100&G=200"),
        ("form", False, COLORS, "color=blue,black"),
        ("form", False, POINT, "color=R,100,G,200"),
        ("spaceDelimited", False, COLORS, "color=blue%20black"),
        ("spaceDelimited", False, POINT, "color=R%20100%20G%20200"),
        ("pipeDelimited", False, COLORS, "color=blue%7Cblack"),
        ("deepObject", True, POINT, "color%5BR%5D=100&color%5BG%5D=200"),
        ("form", True, [], ""),
        ("form", False, {}, ""),
        ("form", True, "a&b=c+d#e", "color=a%26b%3Dc%2Bd%23e"),
    ],
)
def test_values_in_a_query_have_the_styles_of_the_standard(style: str, explode: bool, value: Any, text: str) -> None:
    assert "&".join(f"{key}={item}" for key, item in in_query("color", value, style, explode=explode)) == text


@pytest.mark.parametrize(
    ("value", "explode", "text"),
    [
        ("blue", False, "blue"),
        (COLORS, False, "blue,black"),
        (POINT, False, "R,100,G,200"),
        (POINT, True, "R=100,G=200"),
    ],
)
def test_values_in_a_header_have_the_style_of_the_standard(value: Any, explode: bool, text: str) -> None:
    assert in_header(value, explode=explode) == text


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\n", " a", "ü", "\x00", "\ud800"])
def test_values_that_would_change_the_headers_are_refused(value: str) -> None:
    with pytest.raises(UnsendableError, match="printable ASCII"):
        in_header(value, explode=False)


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "..", "../admin", "..\\admin", "a/b", "/", "\\", "%2e", "%2E%2e", "%2e%2e%2fadmin", "..%2fadmin"),
        *("%252e%252e%252f", "a%2fb", "a%5cb", "%25" * 30 + "2f", "a%25252525252525252525252fb"),
        *([], ["a", ""], ["..", "/"], {"a": "b/c"}, {"a/b": "c"}, {}),
    ],
)
@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
def test_values_that_a_server_could_read_as_another_path_are_refused(value: Any, style: str) -> None:
    """CVE-2026-32871 of FastMCP: a path parameter led to any other path of the server."""
    with pytest.raises(UnsendableError):
        in_path("id", value, style, explode=False)


@pytest.mark.parametrize("value", ["\ud800", ["\udfff"], {"\ud800": 1}])
def test_halves_of_surrogate_pairs_are_refused(value: Any) -> None:
    for encode in (in_path, in_query):
        with pytest.raises(UnsendableError, match="surrogate"):
            encode("id", value, "simple" if encode is in_path else "form", explode=True)


@given(st.text())
def test_any_text_stays_in_its_segment_of_the_path(text: str) -> None:
    try:
        segment = in_path("id", text, "simple", explode=False)
    except UnsendableError:
        return
    url = httpx2.URL(f"http://127.0.0.1:9/pets/{segment}/toys")
    before, pets, found, toys = url.raw_path.decode().split("/")
    assert (before, pets, unquote(found), toys) == ("", "pets", text, "toys")
    assert url.query == b""
    assert not url.fragment
    assert not has_dot_segments(url.raw_path.decode())


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_any_text_stays_in_its_value_of_the_query(name: str, text: str) -> None:
    [(key, value)] = in_query(name, text, "form", explode=True)
    url = httpx2.URL(f"http://127.0.0.1:9/pets?before=1&{key}={value}&after=2")
    assert parse_qsl(url.query.decode(), keep_blank_values=True) == [("before", "1"), (name, text), ("after", "2")]
    assert url.path == "/pets"
    assert not url.fragment


@given(st.text())
def test_any_text_in_a_header_is_one_line(text: str) -> None:
    try:
        value = in_header(text, explode=False)
    except UnsendableError:
        return
    assert value == text
    assert value.isprintable()
