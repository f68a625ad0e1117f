from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import ArgumentsError
from bridge.tools.arguments.reader import parse_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u00a0"])
def test_a_blank_text_is_an_empty_object(text: str) -> None:
    assert parse_arguments("add", text) == {}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": 1, "b": [true, null, "x"]}', {"a": 1, "b": [True, None, "x"]}),
        (' {"a": 1}\n', {"a": 1}),
        ('{"a": "\\u0000"}', {"a": "\x00"}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("{}", {}),
        (f'{{"a": {10**400}}}', {"a": 10**400}),
    ],
)
def test_a_text_that_is_a_json_object_is_read(text: str, arguments: Mapping[str, Any]) -> None:
    assert parse_arguments("add", text) == arguments


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        pytest.param(json.dumps('{"a": "x, ]"}'), {"a": "x, ]"}, id="a quoted object"),
        pytest.param(json.dumps('{"a": 1,}'), {"a": 1}, id="a quoted object with a trailing comma"),
        pytest.param('{"a": [1, 2,], "b": {"c": 1 , } ,\n}', {"a": [1, 2], "b": {"c": 1}}, id="trailing commas"),
        pytest.param('{"a": "x,}", "b": ",]\\",}",}', {"a": "x,}", "b": ',]",}'}, id="commas in texts stay"),
        pytest.param('```json\n{"a": 1}\n```', {"a": 1}, id="a code fence"),
        pytest.param('\n```\n{"a": 1,}\n``` ', {"a": 1}, id="a code fence and a trailing comma"),
        pytest.param('```{"a": "```"}```', {"a": "```"}, id="a code fence on one line, around another"),
    ],
)
def test_a_text_where_models_are_known_to_slip_is_repaired(text: str, arguments: Mapping[str, Any]) -> None:
    assert parse_arguments("add", text) == arguments


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        '{"a": 1,',
        '{"a": "x',
        '{"a": [1, 2',
        '{"a": [1, 2,',
        '```json\n{"a": 1}',
        '```json\n{"a": 1\n```',
        "```",
        "``````",
        '"{\\"a\\": 1}',
        json.dumps('{"a": 1'),
        json.dumps(json.dumps('{"a": 1}')),
    ],
)
def test_a_text_that_breaks_off_is_refused(text: str) -> None:
    with pytest.raises(ArgumentsError):
        parse_arguments("add", text)


@pytest.mark.parametrize(
    "text",
    [
        "{a: 1}",
        "{'a': 1}",
        '{"a": True}',
        '{"a": 1 "b": 2}',
        '{"a": 1,, "b": 2}',
        '{"a": 1,,}',
        "{,}",
        '{"a": [,]}',
        "{ ,\n}",
        '{"a":}',
        '{"a": 1} {"b": 2}',
        '{"a": 1}}',
        'Here you are: {"a": 1}',
        '{"a": 1} // one',
        '{"a": 0x10}',
        '{"a": "\n"}',
        '{"a": 1}\x00',
        '\ufeff{"a": 1}',
    ],
)
def test_a_text_whose_meaning_would_be_a_guess_is_refused(text: str) -> None:
    with pytest.raises(ArgumentsError):
        parse_arguments("add", text)


@pytest.mark.parametrize("text", ["[]", "1", "null", "true", '"x"', '""', '"[1]"', '[{"a": 1}]', "```json\n[1]\n```"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ArgumentsError, match="should be a JSON object"):
        parse_arguments("add", text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1E400", "1" * 5000])
def test_a_text_with_a_number_that_cannot_be_held_is_refused(number: str) -> None:
    with pytest.raises(ArgumentsError):
        parse_arguments("add", f'{{"a": [{number}]}}')


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 100_000,
        '{"a":' * 1000 + "1" + "}" * 1000,
        "[" * 1_000_000,
        '"' * 100_001,
        '\\"' * 100_000,
        " ," * 9999,
    ],
)
def test_a_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        parse_arguments("add", text)
    assert len(str(caught.value)) < 500


def test_lone_surrogates_are_refused_and_shown_as_escapes() -> None:
    with pytest.raises(ArgumentsError) as caught:
        parse_arguments("add", '{"a": "\ud800"}')
    assert str(caught.value).encode()


def test_the_error_of_a_text_shows_its_beginning() -> None:
    with pytest.raises(ArgumentsError) as caught:
        parse_arguments("add", "x" * 1000)
    [problem] = caught.value.problems
    assert problem.path == ""
    assert problem.received == '"' + "x" * 199 + "…"
