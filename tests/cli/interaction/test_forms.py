"""Fields of forms, and the texts that are typed for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.interaction.forms import FieldError, FormField, form_fields
from tests.cli.schemas import JSON_SCHEMA_LIKE

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLED = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}
NAMED = {"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]}
SEVERAL = {"type": "array", "items": {"anyOf": TITLED["oneOf"]}, "minItems": 1, "maxItems": 1}


def field(schema: Mapping[str, Any]) -> FormField:
    (found,) = form_fields({"type": "object", "properties": {"x": schema}})
    return found


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " a ", " a "),
        ({"type": "integer"}, " 5 ", 5),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "number", "minimum": 0}, "1.5", 1.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "no", False),
        (TITLED, "2", "b"),
        (TITLED, "blue", "b"),
        (NAMED, "Red", "r"),
        ({"type": "string", "enum": ["2", "1"]}, "1", "1"),
        (SEVERAL, "Red", ["r"]),
        ({"type": "string", "format": "date"}, "2026-01-31", "2026-01-31"),
        ({"type": "string", "format": "date-time"}, "2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ({"type": "string", "format": "uri"}, "https://example.com", "https://example.com"),
        ({"type": "string", "format": "unknown"}, "a", "a"),
        ({"type": "string", "pattern": "^a+$"}, "aaa", "aaa"),
        ({"type": "string", "pattern": "(?=a)"}, "b", "b"),  # only the server can check it
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({}, "[1]", [1]),
    ],
)
def test_a_typed_text_is_a_value_of_the_fields_type(schema: Mapping[str, Any], text: str, value: object) -> None:
    read = field(schema).read(text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "integer"}, "1.5", "expected a whole number, not 1.5"),
        ({"type": "integer"}, "true", "expected a whole number, not true"),
        ({"type": "number"}, "1e999", "expected a number, not Infinity"),
        ({"type": "number"}, "NaN", "expected a number, not 'NaN'"),
        ({"type": "boolean"}, "1", "expected yes or no, not 1"),
        ({"type": "string", "maxLength": 1}, "ab", 'expected text of at most 1 characters, not "ab"'),
        ({"type": "string", "format": "date"}, "31.1.26", "expected a date such as 2026-01-31"),
        ({"type": "string", "format": "date-time"}, "2026-01-31T12:00", "expected a time such as"),
        ({"type": "string", "format": "uri"}, "example", "expected a URI such as"),
        ({"type": "string", "format": "email"}, "ada", "expected an address such as"),
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 5_000 + "b", "expected text matching ^(a+)+$"),
        (TITLED, "3", "'3' is not one of the choices; type a number from 1 to 2, or a value"),
        (SEVERAL, "r, b", "expected choices separated by commas of at least 1 and at most 1"),
        ({"type": "object"}, "[1]", "expected JSON of an object"),
        ({"type": "string"}, " ", "a value is required: text"),
    ],
)
def test_another_text_is_refused_with_what_is_expected(schema: Mapping[str, Any], text: str, expected: str) -> None:
    with pytest.raises(FieldError) as refused:
        field(schema).read(text)
    assert str(refused.value).startswith(expected)


def test_a_default_that_the_field_does_not_accept_is_none() -> None:
    assert field({"type": "integer", "default": 5}).has_default
    assert not field({"type": "integer", "default": "five"}).has_default
    assert field(SEVERAL | {"default": ["r"]}).default_text == "r"


def test_choices_have_their_titles() -> None:
    assert field(TITLED).described() == "x: one of the choices, optional\n  1. r  Red\n  2. b  Blue"


@given(JSON_SCHEMA_LIKE, st.text(max_size=20))
def test_whatever_a_server_sends_a_field_can_be_shown_and_typed(schema: dict[str, Any], text: str) -> None:
    for each in form_fields(schema):
        assert each.described()
        assert each.has_default in {True, False}
        if each.has_default:
            assert isinstance(each.default_text, str)
        with contextlib.suppress(FieldError):
            each.read(text)
