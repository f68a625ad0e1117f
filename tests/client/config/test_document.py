"""JSON as editors write it is read, and errors name the position in the file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.config.document import JsonObject, parse_jsonc, repeated_keys
from bridge.errors import ConfigError, ConfigProblem

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
NOISE = st.sampled_from(["", " ", "\n", "/* */", '/* [1,] \n " */', '// { " ,\n', "/**/", "\t//\r\n"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, /* , */ }', {"a": 1}),
        ('{"a": [1, 2, // three\n ] , }', {"a": [1, 2]}),
        ('{"a": "http://x", "b": "/* no comment */"} // end', {"a": "http://x", "b": "/* no comment */"}),
        ('["a,]", "\\",]", "\\\\",]', ["a,]", '",]', "\\"]),
        ("/* before */ 5", 5),
    ],
)
def test_comments_and_trailing_commas_are_allowed(text: str, value: Any) -> None:
    assert parse_jsonc(text, "it") == value


def test_an_empty_file_is_named_as_such() -> None:
    with pytest.raises(ConfigError, match="line 1, column 1: it is empty; a configuration without servers is"):
        parse_jsonc(" \n", "it")


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ('{\n"a" 1}', 2, 5),
        ('// one\n/* two\n three */ {"a": x}', 3, 17),
        ("[,]", 1, 2),
        ("{,}", 1, 2),
        ("[1,,]", 1, 4),
        ('{"a":,}', 1, 6),
        ("[1] [2]", 1, 5),
        ("/* unterminated", 1, 1),
        ('{"a": "unterminated}', 1, 7),
        ('["line\nbreak"]', 1, 7),
        ("{'a': 1}", 1, 2),
        ('["\\x"]', 1, 3),
    ],
)
def test_an_error_points_into_the_file_as_it_is(text: str, line: int, column: int) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jsonc(text, "it")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (line, column)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_a_number_that_json_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a JSON number"):
        parse_jsonc(text, "it")


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        parse_jsonc("1" * 10_000, "it")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jsonc(text, "it")
    assert caught.value.problems == (ConfigProblem("not a configuration: it is nested too deeply"),)


def test_a_key_that_stands_twice_is_remembered() -> None:
    value = parse_jsonc('{"a": 1, "b": {"c": 1, "c": 2, "c": 3}, "a": 2}', "it")
    assert value == {"a": 2, "b": {"c": 3}}
    assert repeated_keys(value) == ("a",)
    assert repeated_keys(value["b"]) == ("c",)
    assert repeated_keys({"a": 1}) == repeated_keys(JsonObject(a=1)) == ()


@given(JSON)
def test_plain_json_is_read_as_it_is(value: Any) -> None:
    assert parse_jsonc(json.dumps(value), "it") == value
    assert parse_jsonc(json.dumps(value, ensure_ascii=False, indent=1), "it") == value


@given(value=JSON, data=st.data())
def test_noise_between_the_tokens_changes_nothing(value: Any, data: st.DataObject) -> None:
    def written(part: Any) -> str:
        noise = data.draw(NOISE)
        if isinstance(part, dict):
            inside = "".join(f"{noise}{json.dumps(key)}{noise}:{written(item)}," for key, item in part.items())
            return f"{noise}{{{inside}{noise}}}"
        if isinstance(part, list):
            return f"{noise}[{''.join(written(item) + ',' for item in part)}{noise}]"
        return f"{noise}{json.dumps(part)}{noise}"

    assert parse_jsonc(written(value), "it") == value


@given(st.text(st.sampled_from('{}[]",:/*\\\n a1')))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        problems = [ConfigProblem(repr(parse_jsonc(text, "it")))]
    except ConfigError as error:
        problems = list(error.problems)
    assert len(problems) == 1
