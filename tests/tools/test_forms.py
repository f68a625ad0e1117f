"""Forms of types and JSON Schemas, and the answers that they accept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, field_validator

from bridge.errors import DefinitionError, ToolError
from bridge.tools.forms import Form, FormError, MisfitError


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Sure(BaseModel):
    sure: bool


@dataclass
class Order:
    """An order."""

    size: Literal["S", "M"]
    number: Annotated[int, Field(ge=1)] = 1
    note: str | None = None
    colors: list[Color] | None = None
    due: date | None = None


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


VALUE: Any = object()


@pytest.mark.parametrize(
    ("kind", "field", "accepted"),
    [
        (str, {"type": "string"}, {"Ada": "Ada"}),
        (int, {"type": "integer"}, {3.0: 3}),
        (float, {"type": "number"}, {2.5: 2.5, 2: 2.0}),
        (bool, {"type": "boolean"}, {True: True}),
        (Color, {"type": "string", "enum": ["red", "blue"]}, {"red": Color.RED}),
        (Level, {"type": "integer", "enum": [1, 2]}, {2: Level.HIGH}),
        (Literal["a"], {"type": "string", "enum": ["a"]}, {"a": "a"}),
        (["x", "y"], {"type": "string", "enum": ["x", "y"]}, {"y": "y"}),
        (date, {"type": "string", "format": "date"}, {"2026-01-31": date(2026, 1, 31)}),
        (Annotated[str, Field(max_length=3)], {"type": "string", "maxLength": 3}, {"abc": "abc"}),
    ],
)
def test_a_scalar_type_is_a_form_with_one_field(kind: Any, field: dict[str, Any], accepted: dict[Any, Any]) -> None:
    form = Form.of(kind)
    assert form.schema == {"type": "object", "properties": {"value": field}, "required": ["value"]}
    for given_value, value in accepted.items():
        read = form.read({"value": given_value})
        assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize("kind", [list[Color], list[Literal["red", "blue"]]])
def test_a_list_of_choices_is_a_form_with_one_field(kind: Any) -> None:
    form = Form.of(kind)
    items = {"type": "string", "enum": ["red", "blue"]}
    assert form.schema["properties"] == {"value": {"type": "array", "items": items}}
    assert [getattr(each, "value", each) for each in form.read({"value": ["blue"]})] == ["blue"]
    with pytest.raises(MisfitError):
        form.read({"value": ["green"]})


def test_a_dataclass_is_a_flat_form_whose_null_is_a_missing_value() -> None:
    form = Form.of(Order)
    assert form.schema == {
        "type": "object",
        "description": "An order.",
        "properties": {
            "size": {"type": "string", "enum": ["S", "M"]},
            "number": {"type": "integer", "minimum": 1, "default": 1},
            "note": {"type": "string"},
            "colors": {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
            "due": {"type": "string", "format": "date"},
        },
        "required": ["size"],
    }
    assert form.read({"size": "S", "note": None}) == Order("S")
    assert form.read({"size": "M", "number": 2, "colors": ["red"], "due": "2026-01-31"}) == Order(
        "M", 2, None, [Color.RED], date(2026, 1, 31)
    )


def test_a_required_field_that_may_be_null_may_be_left_out() -> None:
    class Name(BaseModel):
        first: str
        middle: str | None

    form = Form.of(Name)
    assert form.schema["required"] == ["first"]
    assert form.read({"first": "Ada"}) == Name(first="Ada", middle=None)


def test_without_fields_the_answer_is_empty() -> None:
    for kind in (None, {}, {"type": "object"}, {"type": "object", "properties": {}}):
        form = Form.of(kind)
        assert (form.schema, form.read(None)) == ({"type": "object", "properties": {}}, {})


def field_form(schema: object, **others: object) -> dict[str, object]:
    """A form with one field."""
    return {"type": "object", "properties": {"a": schema}, **others}


DICT_FORM = {
    "type": "object",
    "properties": {
        "sure": {"type": "boolean"},
        "count": {"type": "integer", "maximum": 9},
        "color": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    },
    "required": ["sure"],
}


@pytest.mark.parametrize(
    ("given_form", "content", "problem"),
    [
        (Sure, {"sure": "false"}, "sure: Input should be a valid boolean"),
        (Sure, {"sure": "true"}, "sure: Input should be a valid boolean"),
        (Sure, {"sure": 1}, "sure: Input should be a valid boolean"),
        (Sure, {}, "sure: Field required"),
        (Sure, None, "sure: Field required"),
        (bool, {"value": "yes"}, "value: Input should be a valid boolean"),
        (bool, {}, "value: is required"),
        (bool, {"other": True}, "value: is required"),
        (int, {"value": "3"}, "value: Input should be a valid integer"),
        (int, {"value": True}, "value: Input should be a valid integer"),
        (int, {"value": 1.5}, "value: "),
        (str, {"value": 3}, "value: Input should be a valid string"),
        (str, {"value": None}, "value: Input should be a valid string"),
        (str, {"value": "\ud800"}, "it cannot be written as JSON"),
        (Color, {"value": "RED"}, "value: Input should be 'red' or 'blue'"),
        (Order, {"size": "S", "number": 0}, "number: Input should be greater than or equal to 1"),
        (Even, {"number": 3}, "number: Value error, must be even"),
        (DICT_FORM, {"sure": "false"}, 'sure: expected yes or no, not "false"'),
        (DICT_FORM, {"sure": None}, "sure: expected yes or no, not null"),
        (DICT_FORM, {}, "sure: is required"),
        (DICT_FORM, {"sure": True, "count": True}, "count: expected a whole number of at most 9, not true"),
        (DICT_FORM, {"sure": True, "count": 10}, "count: expected a whole number of at most 9, not 10"),
        (DICT_FORM, {"sure": True, "color": "Red"}, "color: expected one of the choices"),
        (DICT_FORM, {"sure": True, "tags": ["c"]}, "tags: expected choices"),
        (DICT_FORM, {"sure": True, "tags": "a"}, "tags: expected choices"),
        (Level, {"value": True}, "value: expected one of the choices, not true"),
        (Literal[True], {"value": 1}, "value: "),
        (field_form({"type": "integer", "exclusiveMinimum": 0}), {"a": 0}, "a: expected a whole number of more than 0"),
        (field_form({"type": "number", "exclusiveMaximum": 9}), {"a": 9}, "a: expected a number of less than 9"),
        (field_form({"type": "number", "multipleOf": 0.1}), {"a": 0.25}, "a: expected a number in steps of 0.1"),
        (field_form({"type": "boolean", "const": True}), {"a": False}, "a: expected one of the choices, not false"),
        (field_form({"type": "string", "format": "date"}), {"a": "20260131"}, "a: expected a date"),
        (field_form({"type": "string", "format": "date-time"}), {"a": "20260131T120000Z"}, "a: expected a time"),
        (
            field_form({"type": "array", "items": {"enum": ["a"]}, "uniqueItems": True}),
            {"a": ["a", "a"]},
            "a: expected different choices",
        ),
        (field_form({"type": "string"}, additionalProperties=False), {"a": "", "force": 1}, "force: is not asked for"),
    ],
)
def test_an_answer_of_another_type_does_not_fit(given_form: Any, content: Any, problem: str) -> None:
    with pytest.raises(MisfitError) as refused:
        Form.of(given_form).read(content)
    assert str(refused.value).startswith(problem)


def test_what_fits_a_schema_is_the_content_itself() -> None:
    content = {"sure": False, "count": 3.0, "color": "r", "tags": ["a"]}
    assert Form.of(DICT_FORM).read(content) == content
    assert Form.of(DICT_FORM).read({"sure": True, "count": None}) == {"sure": True, "count": None}


@pytest.mark.parametrize("more", [{}, {"additionalProperties": True}, {"additionalProperties": {"type": "integer"}}])
def test_what_nobody_asked_for_is_left_out(more: dict[str, Any]) -> None:
    form = field_form({"type": "string"}, **more)
    assert Form.of(form).read({"a": "x", "is_admin": True, "": {"deep": [1]}}) == {"a": "x"}
    assert Form.received(form).read({"a": "x", "is_admin": True}) == {"a": "x"}
    assert Form.of(None).read({"is_admin": True}) == {}


class Nested(BaseModel):
    inner: Sure


class Broken:
    """A type whose hook for pydantic raises an error."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        raise KeyError("no schema today")


class Patterned(BaseModel):
    text: Annotated[str, Field(pattern="a+")]


@pytest.mark.parametrize(
    ("given_form", "words"),
    [
        (Nested, ["Nested", "'inner'", "of the type 'object'", "questions of its own"]),
        (list[str], ["list[str]", "a list without choices"]),
        (dict[str, int], ["its fields are not known"]),
        (tuple[int, int], ["a list without choices"]),
        (object(), ["cannot be a form"]),
        (len, ["is not a form"]),
        ("str", ["'str' is not a form; give a type"]),
        ([], ["not a list of different texts"]),
        (["a", "a"], ["not a list of different texts"]),
        ([str], ["not a list of different texts"]),
        ({"name": "str"}, ['"type": "object"', '"properties"']),
        ({"type": "string"}, ['"type": "object"']),
        ({"type": "object", "properties": []}, ['"properties"']),
        ({"type": "object", "properties": {"a": "string"}}, ["the field 'a'", "'string'"]),
        ({"type": "object", "properties": {"a": {}}}, ["the field 'a'"]),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, ["of the type 'object'"]),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, ["of the type"]),
        ({"type": "object", "properties": {}, "required": ["a"]}, ['"required"']),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)"}}}, ["look-around"]),
        (Annotated[str, Field(pattern="(?=a)")], ["look-around"]),
        (Sure(sure=True), ["Sure(sure=True)", "cannot be a form"]),
        (Broken, ["Broken", "no schema today"]),
        (field_form({"type": "string", "enum": []}), ["the field 'a'", "'enum': []"]),
        (field_form({"type": "string", "enum": [object()]}), ["cannot be written as JSON"]),
        (field_form({"type": "string"}, required=[{}]), ['"required"']),
        (field_form({"type": "string", "not": {"const": "a"}}), ["'not' of the field 'a'", "in the tool"]),
        (field_form({"type": "string"}, anyOf=[{"required": ["a"]}]), ["'anyOf' of a form"]),
    ],
)
def test_what_no_form_can_carry_is_refused_with_the_remedy(given_form: Any, words: list[str]) -> None:
    with pytest.raises(FormError) as refused:
        Form.of(given_form)
    assert [word for word in words if word not in str(refused.value)] == []
    assert isinstance(refused.value, DefinitionError)
    assert isinstance(refused.value, ToolError), "its text reaches the client"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3))


@given(st.dictionaries(st.sampled_from([*DICT_FORM["properties"], "other"]), SCALARS))
def test_only_what_the_schema_accepts_is_read(content: dict[str, Any]) -> None:
    given_values = {name: value for name, value in content.items() if value is not None or name == "sure"}
    try:
        Form.of(DICT_FORM).read(content)
    except MisfitError:
        assert not Draft202012Validator(DICT_FORM).is_valid(given_values)
    else:
        assert Draft202012Validator(DICT_FORM).is_valid(given_values)
