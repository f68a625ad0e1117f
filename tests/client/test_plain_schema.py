"""Plain schemas: the fast check accepts only what the general validator accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bridge.client.bounded_schema import Steps, UnjudgedError
from bridge.client.output_schema import compile_validator

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0]) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.just({})
    | st.booleans()
    | st.fixed_dictionaries({"type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True)})
    | st.just({"$ref": "#/$defs/a"})
    | st.just({"type": "integer", "minimum": 1}),
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("object")},
            optional={
                "properties": st.dictionaries(NAMES, inner, max_size=3),
                "required": st.lists(NAMES, max_size=2, unique=True),
                "additionalProperties": inner,
                "title": st.just("A title"),
            },
        )
        | st.fixed_dictionaries({"type": st.just("array")}, optional={"items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
    ),
    max_leaves=8,
)


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), SCHEMAS, VALUES)
def test_what_is_proven_is_valid(schema: dict[str, Any], definition: Any, value: Any) -> None:
    whole = {**schema, "$defs": {"a": definition}}
    proves = compile_validator(whole)
    if proves is not None and proves(value, Steps(10_000)):
        assert Draft202012Validator(whole).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}, {"result": 3}),
        ({"type": "object", "additionalProperties": {"type": "number"}}, {"a": 1, "b": 0.5}),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, ["a", None]),
        ({"$ref": "#/$defs/Point", "$defs": {"Point": {"type": "object", "title": "Point"}}}, {}),
        ({"type": ["string", "null"], "format": "date"}, None),
    ],
)
def test_what_most_schemas_say_is_proven(schema: dict[str, Any], value: Any) -> None:
    proves = compile_validator(schema)
    assert proves is not None
    assert proves(value, Steps(10))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 1},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
        {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}},
        {"$ref": "https://example.invalid/schema.json"},
        {"$ref": "#/$defs/nowhere"},
        {"type": "object", "properties": {"a": {"not": {}}}},
        {"type": "object", "properties": []},
        False,
    ],
)
def test_what_says_more_is_left_to_the_general_validator(schema: Any) -> None:
    assert compile_validator(schema if isinstance(schema, dict) else {"type": "array", "items": schema}) is None


def test_a_schema_that_doubles_with_each_definition_is_left_to_the_general_validator() -> None:
    doubled = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    assert compile_validator({"$ref": "#/$defs/d0", "$defs": {**doubled, "d40": {"type": "null"}}}) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array"}, [0] * 11),
        ({"type": "object"}, dict.fromkeys(map(str, range(11)))),
        ({"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "string"}]}}, [None] * 5),
    ],
)
def test_a_proof_counts_its_steps(schema: dict[str, Any], value: Any) -> None:
    proves = compile_validator(schema)
    assert proves is not None
    with pytest.raises(UnjudgedError):
        proves(value, Steps(6))
