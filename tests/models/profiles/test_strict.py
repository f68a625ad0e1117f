from __future__ import annotations

from typing import Any

import pytest

from bridge.models.profiles.profile import ANTHROPIC, OPENAI
from tests.models.profiles.examples import SEARCH, obj, reason


def test_a_strict_copy_for_openai_asks_for_everything_and_lets_null_stand_for_what_is_not_given() -> None:
    rewriting = OPENAI.rewrite(SEARCH, strict=True)
    assert rewriting.is_strict
    assert rewriting.schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to look for. (minLength: 1)"},
            "limit": {
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
                "description": "(default: 10)",
            },
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "area": {"anyOf": [{"$ref": "#/$defs/Area"}, {"type": "null"}], "description": "Where."},
        },
        "required": ["text", "limit", "tags", "area"],
        "additionalProperties": False,
        "$defs": {
            "Area": {
                "type": "object",
                "properties": {
                    "north": {"type": "number"},
                    "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["north", "name"],
                "additionalProperties": False,
            }
        },
    }
    assert rewriting.restore is not None
    said = {"text": "x", "limit": None, "tags": None, "area": {"north": 1.5, "name": None}}
    assert rewriting.restore(said) == {"text": "x", "tags": None, "area": {"north": 1.5}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (obj({"a": {}}), "it has a schema without a type"),
        (obj({"a": {"type": "object"}}, "a"), "it has an object with free keys"),
        (obj({"a": {"type": "integer"}}, additionalProperties=True), "it has an object with free keys"),
        (obj({"a": {"type": "array"}}, "a"), "it has an array of any values"),
        (obj({"a": {"type": "array", "prefixItems": [{"type": "string"}]}}, "a"), "it uses 'prefixItems'"),
        (obj({"a": {"type": "string", "not": {"const": "x"}}}, "a"), "it uses 'not'"),
        (obj({"a": {"type": "string"}}, "a", "b"), "it requires 'b', which it does not describe"),
        (obj({"a": {"type": ["string", "null"]}}), "null for 'a' differs in meaning from its absence"),
        (
            obj({"a": {"type": ["string", "null"], "default": "x"}}),
            "null for 'a' differs in meaning from its absence",
        ),
        (obj({"a": {"$ref": "https://x.org"}}), "the reference 'https://x.org', which points outside the schema"),
        ({"anyOf": [obj({"a": {"type": "string"}}), obj({})]}, "its root is not a plain object"),
        (obj({"a": {"enum": [[1], [2]]}}, "a"), "it has enumerated values that are not supported"),
        (
            obj({"a": {"anyOf": [obj({"b": {"type": "string"}}), obj({"c": {"type": "string"}})]}}, "a"),
            "alternatives with optional properties cannot be told apart",
        ),
        (obj({"a": {"allOf": [{"type": "string"}, {"minLength": 1}]}}, "a"), "it uses 'allOf'"),
    ],
)
def test_where_a_strict_copy_would_mean_something_else_there_is_none(schema: dict[str, Any], why: str) -> None:
    assert reason(OPENAI.rewrite(schema, strict=True)) == why


def test_alternatives_that_are_all_required_may_look_alike() -> None:
    cat = obj({"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "kind", "lives")
    dog = obj({"kind": {"const": "dog"}}, "kind")
    schema = obj({"pet": {"oneOf": [cat, dog], "discriminator": {"propertyName": "kind"}}}, "pet")
    rewriting = OPENAI.rewrite(schema, strict=True)
    assert rewriting.restore is None
    variants = rewriting.schema["properties"]["pet"]["anyOf"]
    assert [each["properties"]["kind"] for each in variants] == [
        {"type": "string", "enum": ["cat"]},
        {"type": "string", "enum": ["dog"]},
    ]


def test_recursion_is_kept_for_openai_and_its_nulls_are_removed_at_any_depth() -> None:
    tree = obj({"name": {"type": "string"}, "left": {"$ref": "#"}}, "name")
    rewriting = OPENAI.rewrite(tree, strict=True)
    assert rewriting.restore is not None
    assert rewriting.schema["properties"]["left"] == {"anyOf": [{"$ref": "#/$defs/root"}, {"type": "null"}]}
    said = {"name": "a", "left": {"name": "b", "left": None}}
    assert rewriting.restore(said) == {"name": "a", "left": {"name": "b"}}


def test_a_strict_copy_for_anthropic_leaves_optional_what_is_optional_and_tells_the_bounds() -> None:
    rewriting = ANTHROPIC.rewrite(SEARCH, strict=True)
    assert rewriting.is_strict
    assert rewriting.restore is None
    assert rewriting.schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to look for. (minLength: 1)"},
            "limit": {"type": "integer", "description": "(minimum: 1, default: 10)"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "area": {
                "type": "object",
                "description": "Where.",
                "properties": {"north": {"type": "number"}, "name": {"type": "string"}},
                "required": ["north"],
                "additionalProperties": False,
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (obj({"a": {"$ref": "#"}}), "it is recursive"),
        (obj({"$a": {"type": "string"}}), "the provider does not support the property name '$a'"),
        (obj({f"p{n}": {"type": "string"} for n in range(25)}), "it has too many optional properties"),
        (
            obj({f"p{n}": {"type": ["string", "null"]} for n in range(17)}, *(f"p{n}" for n in range(17))),
            "it has too many alternatives",
        ),
    ],
)
def test_what_anthropic_does_not_hold_a_model_to_is_sent_as_it_is(schema: dict[str, Any], why: str) -> None:
    assert reason(ANTHROPIC.rewrite(schema, strict=True)) == why
