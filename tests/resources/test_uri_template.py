from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import uritemplate
from hypothesis import given
from hypothesis import strategies as st

from bridge import DefinitionError
from bridge.resources import UriTemplate
from bridge.resources.uri_template import MAX_URI_CHARS

MATCHES = [
    ("notes://{name}", "notes://a%20b", {"name": "a b"}),
    ("notes://{name}", "notes://a/b", None),
    ("notes://{name}", "notes://", None),
    ("notes://{name}", "notes://%ff", None),
    ("notes://{name}", "other://a", None),
    ("notes://{name}", "notes://a?b=c", None),
    ("file:///{+path}", "file:///a/b%2Fc", {"path": "a/b/c"}),
    ("file:///{+path}", "file:///a?b#c", {"path": "a?b#c"}),
    ("file:///{+path}{?q}", "file:///a?q=b", {"path": "a", "q": "b"}),
    ("x://a?fixed=1{&b}", "x://a?fixed=1&b=2", {"b": "2"}),
    ("x://a?fixed=1{&b}", "x://a?fixed=1#part", {}),
    ("x://a?fixed=1{&b}", "x://a?fixed=10&b=2", None),
    ("x://{a}?{&b}", "x://1?&b=2", {"a": "1", "b": "2"}),
    ("x://{a}?ü={&b}", "x://1?%c3%bc=&b=2", {"a": "1", "b": "2"}),
    ("notes://ü/{a}", "notes://ü/ü", {"a": "ü"}),
    ("notes://ü/{a}", "notes://%C3%BC/%c3%bc", {"a": "ü"}),
    ("notes://ü/{a}", "notes://%c3%bc/1", {"a": "1"}),
    ("notes://%c3%bc/{a}", "notes://ü/1", {"a": "1"}),
    ("notes://ü/{a}", "notes://u/1", None),
    ("x://host{/path*}", "x://host/a/b", {"path": ["a", "b"]}),
    ("x://host{/path*}", "x://host", None),
    ("x:{a}-{b}.txt", "x:1-2-3.txt", {"a": "1", "b": "2-3"}),
    ("x:{a}-{b}.txt", "x:1-2-3.text", None),
    ("x:{a,b}", "x:1,2", {"a": "1", "b": "2"}),
    ("x://host{.format}", "x://host.tar.gz", {"format": "tar.gz"}),
    ("x://host{;version}", "x://host;version=", {"version": ""}),
    ("x://host{;a,b}", "x://host;a;b=%3D", {"a": "", "b": "="}),
    ("x://host{;a}", "x://host;ab=1", None),
    ("x://host{#part}", "x://host#a/b?c", {"part": "a/b?c"}),
    ("x://{id}/data{?q,lang}", "x://5/data?lang=d%65&other=1", {"id": "5", "lang": "de"}),
    ("x://{id}/data{?q}{&lang}", "x://5/data?q=&lang=de#part", {"id": "5", "q": "", "lang": "de"}),
    ("x://{id}/data{?q}", "x://5/data", {"id": "5"}),
    ("x://{id}/data{?q}", "x://5/data?q=1&q=2", None),
]


@pytest.mark.parametrize(("template", "uri", "values"), MATCHES)
def test_a_uri_gives_the_values_of_the_variables(template: str, uri: str, values: Any) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{name}", "does not begin with a scheme"),
        ("x:{a}{b}", "'b' right after another variable"),
        ("x:{a", "brace without its pair"),
        ("x:a}", "brace without its pair"),
        ("x:{a:3}", "{a:3}, which is not supported"),
        ("x:{a*}", "not supported"),
        ("x:{}", "not supported"),
        ("x:{a}/{a}", "repeats a variable"),
        ("x:{?q}/a", "text after its query"),
        ("x:{?q}{/a}", "expression after its query"),
        ("x:{?q}{?r}", "write {&r}"),
        ("x:?a=1{?q}", "write {&name}"),
        ("x:{&q}", "without a query before it"),
        ("x:?a={b}{&q}", "a variable in the text of its query"),
        ("x:", "has no variable"),
    ],
)
def test_a_template_that_cannot_be_matched_is_refused(template: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words.replace("{", r"\{").replace("}", r"\}")):
        UriTemplate(template)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
RESERVED_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="%"), min_size=1, max_size=20)
"""Text without percent signs, since reserved expansion keeps ``%41``."""


@given(TEXT, RESERVED_TEXT, TEXT, TEXT)
def test_expansion_by_another_library_comes_back(name: str, path: str, literal: str, text: str) -> None:
    literal = quote(literal, safe="")
    cases: list[tuple[str, dict[str, Any]]] = [
        (f"notes://{literal}/{{name}}/{{+path}}", {"name": name, "path": path}),
        ("notes://é/{name}{#path}", {"name": name, "path": path}),
        ("notes://h{/path*}{?name,text}", {"path": [name, path], "name": name, "text": text}),
        ("notes://h{.text}{/path}{;name}", {"text": text, "path": path, "name": name}),
        ("notes://h/{+path}?fixed=1{&name,text}", {"path": path.replace("?", ""), "name": name, "text": text}),
    ]
    for template, values in cases:
        uri = uritemplate.expand(template, values)
        if len(uri) <= MAX_URI_CHARS and all(values.values()):
            assert UriTemplate(template).match(uri) == values


SIMPLE = ["{%s}", "{+%s}", "{/%s}", "{.%s}", "{;%s}", "{/%s*}"]


@st.composite
def templates(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A template of expressions with literals between them that no value contains, a query, and values."""
    text, values = "notes://h", dict[str, Any]()
    value = st.text(st.characters(codec="utf-8", exclude_characters="%!.;?"), min_size=1, max_size=6)
    for number, form in enumerate(draw(st.lists(st.sampled_from(SIMPLE), min_size=1, max_size=4))):
        name = f"v{number}"
        text += form % name + "!;"
        values[name] = [draw(value), draw(value)] if "*" in form else draw(value)
    query = draw(st.lists(st.sampled_from(["q", "r", "s"]), unique=True))
    if query:
        text += "{?" + ",".join(query) + "}"
        values |= {name: draw(value) for name in query if draw(st.booleans())}
    return text, values


@given(templates())
def test_expansion_of_any_template_comes_back(given: tuple[str, dict[str, Any]]) -> None:
    text, values = given
    template, uri = UriTemplate(text), uritemplate.expand(text, values)
    assert template.match(uri) == values
    assert template.match(f"x{uri}") is None


@given(st.text())
def test_any_text_can_be_asked_for(uri: str) -> None:
    for template in ("x:{a}-{b}-{c}", "x://{+path}", "x://h{/path*}{?q}"):
        UriTemplate(template).match(uri)


def test_a_long_uri_belongs_to_no_template() -> None:
    template = UriTemplate("x:{a}-{b}-{c}-{d}")
    assert template.match(f"x:{'-' * MAX_URI_CHARS}") is None
    assert template.match("x:" + "a-" * 3 + "d" * (MAX_URI_CHARS - 8)) is not None
