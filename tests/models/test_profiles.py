from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bridge.models.profiles.profile import ANTHROPIC, BEDROCK, GEMINI, OPENAI, Profile
from tests.models import profile_rules as rules
from tests.models.schemas import CLOSED_SCHEMAS, JUNK, SCHEMAS, said_under

if TYPE_CHECKING:
    from bridge.models.profiles.rewriting import Rewriting

RULES: list[tuple[Profile, rules.Rule, rules.Rule]] = [
    (OPENAI, rules.openai_lenient, rules.openai_strict),
    (ANTHROPIC, rules.anthropic_lenient, rules.anthropic_strict),
    (BEDROCK, rules.bedrock_lenient, rules.anthropic_strict),
    (GEMINI, rules.gemini, rules.gemini),
]
ALL = [OPENAI, ANTHROPIC, BEDROCK, GEMINI]
SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "description": "What to look for."},
        "limit": {"type": "integer", "minimum": 1, "default": 10},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        "area": {"$ref": "#/$defs/Area", "description": "Where."},
    },
    "required": ["text"],
    "$defs": {
        "Area": {
            "type": "object",
            "properties": {"north": {"type": "number"}, "name": {"type": "string"}},
            "required": ["north"],
        }
    },
}


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required), **more}


def reason(rewriting: Rewriting) -> str:
    """Why a copy is not strict."""
    assert not rewriting.is_strict
    return rewriting.losses[-1].removeprefix("strictness: ")


# --- what holds of every schema ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "lenient", "strict"), RULES, ids=[each.name for each in ALL])
@given(schema=SCHEMAS | CLOSED_SCHEMAS | JUNK, wants_strict=st.booleans())
@settings(max_examples=150)
def test_any_schema_becomes_one_that_the_provider_takes_and_stays_as_it_was(
    profile: Profile, lenient: rules.Rule, strict: rules.Rule, schema: dict[str, Any], wants_strict: bool
) -> None:
    before = copy.deepcopy(schema)
    rewriting = profile.rewrite(schema, strict=wants_strict)
    assert schema == before
    check = strict if rewriting.is_strict else lenient
    assert list(check(rewriting.schema)) == []
    json.dumps(rewriting.schema)


@pytest.mark.parametrize("profile", [OPENAI, ANTHROPIC], ids=lambda each: each.name)
@given(data=st.data(), schema=CLOSED_SCHEMAS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_what_is_said_under_a_strict_copy_is_right_under_the_original(
    profile: Profile, data: st.DataObject, schema: dict[str, Any]
) -> None:
    rewriting = profile.rewrite(schema, strict=True)
    assume(rewriting.is_strict)
    possible = said_under(rewriting.schema)
    assume(not possible.is_empty)
    said = data.draw(possible)
    assert Draft202012Validator(rewriting.schema).is_valid(said)
    before = copy.deepcopy(said)
    meant = said if rewriting.restore is None else rewriting.restore(said)
    assert said == before
    # of alternatives that overlap, oneOf takes none, and a strict copy the first
    original = json.loads(json.dumps(schema).replace('"oneOf"', '"anyOf"'))
    assert Draft202012Validator(original).is_valid(meant)


@pytest.mark.parametrize("profile", ALL, ids=lambda each: each.name)
@given(value=st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_nothing_that_a_model_says_cannot_be_restored(profile: Profile, value: Any) -> None:
    for strict in (True, False):
        restore = profile.rewrite(
            obj({"$a": {"type": "string"}, **SEARCH["properties"]}, **DEFS), strict=strict
        ).restore
        if restore is not None:
            restore(value)


DEFS: dict[str, Any] = {"$defs": SEARCH["$defs"]}


@pytest.mark.parametrize("profile", ALL, ids=lambda each: each.name)
@pytest.mark.parametrize("strict", [True, False])
def test_definitions_that_refer_to_one_another_twice_do_not_grow_without_bound(profile: Profile, strict: bool) -> None:
    levels = 60
    definitions = {
        f"L{n}": obj({"a": {"$ref": f"#/$defs/L{n + 1}"}, "b": {"$ref": f"#/$defs/L{n + 1}"}}, "a", "b")
        for n in range(levels)
    } | {f"L{levels}": {"type": "string"}}
    schema = obj({"x": {"$ref": "#/$defs/L0"}}, "x", **{"$defs": definitions})
    rewriting = profile.rewrite(schema, strict=strict)
    assert len(json.dumps(rewriting.schema)) < 3_000_000


@pytest.mark.parametrize("profile", ALL, ids=lambda each: each.name)
@pytest.mark.parametrize("strict", [True, False])
def test_a_long_chain_of_definitions_costs_no_stack(profile: Profile, strict: bool) -> None:
    definitions: dict[str, Any] = {
        f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}, {"type": "null"}]} for n in range(3_000)
    }
    schema = obj({"x": {"$ref": "#/$defs/L0"}}, "x", **{"$defs": {**definitions, "L3000": {"type": "string"}}})
    assert profile.rewrite(schema, strict=strict).schema["properties"]["x"]


@pytest.mark.parametrize("profile", ALL, ids=lambda each: each.name)
def test_what_is_nested_too_deeply_takes_any_value_and_is_told(profile: Profile) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        schema = {"type": "array", "items": schema}
    assert "what is nested more than 64 levels deep" in profile.rewrite(obj({"a": schema})).losses


# --- OpenAI --------------------------------------------------------------------------------------------------------


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
        (obj({"a": {}}), "it has a place for any value"),
        (obj({"a": {"type": "object"}}, "a"), "it has an object with free keys"),
        (obj({"a": {"type": "integer"}}, additionalProperties=True), "it has an object with free keys"),
        (obj({"a": {"type": "array"}}, "a"), "it has an array of any values"),
        (obj({"a": {"type": "array", "prefixItems": [{"type": "string"}]}}, "a"), "it has 'prefixItems'"),
        (obj({"a": {"type": "string", "not": {"const": "x"}}}, "a"), "it has 'not'"),
        (obj({"a": {"type": "string"}}, "a", "b"), "it requires 'b', which it does not describe"),
        (obj({"a": {"type": ["string", "null"]}}), "null for 'a' means something else than leaving it out"),
        (
            obj({"a": {"type": ["string", "null"], "default": "x"}}),
            "null for 'a' means something else than leaving it out",
        ),
        (obj({"a": {"$ref": "https://x.org"}}), "the reference 'https://x.org', which leads out of the schema"),
        ({"anyOf": [obj({"a": {"type": "string"}}), obj({})]}, "its root is not simply an object"),
        (obj({"a": {"enum": [[1], [2]]}}, "a"), "it has choices that cannot be listed"),
        (
            obj({"a": {"anyOf": [obj({"b": {"type": "string"}}), obj({"c": {"type": "string"}})]}}, "a"),
            "alternatives with optional properties cannot be told apart",
        ),
        (obj({"a": {"allOf": [{"type": "string"}, {"minLength": 1}]}}, "a"), "it has 'allOf'"),
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


def test_a_schema_that_openai_takes_is_sent_as_it_is() -> None:
    assert OPENAI.rewrite(SEARCH).schema == SEARCH
    assert OPENAI.rewrite(SEARCH).losses == ()


def test_alternatives_at_the_root_become_one_object_that_takes_either() -> None:
    schema = {
        "oneOf": [
            obj({"id": {"type": "integer"}, "note": {"type": "string"}}, "id", "note"),
            obj({"id": {"type": "string"}}, "id"),
        ]
    }
    rewriting = OPENAI.rewrite(schema)
    assert rewriting.schema == obj(
        {"id": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "note": {"type": "string"}}, "id"
    )
    assert rewriting.losses == ("'oneOf' at the root",)


def test_parts_at_the_root_become_one_object_that_has_all_of_them() -> None:
    schema = {
        "allOf": [{"$ref": "#/definitions/Base"}, obj({"b": {"type": "string"}}, "b")],
        "definitions": {"Base": obj({"a": {"type": "string"}}, "a")},
    }
    rewriting = OPENAI.rewrite(schema)
    assert rewriting.schema["properties"] == {"a": {"type": "string"}, "b": {"type": "string"}}
    assert rewriting.schema["required"] == ["a", "b"]
    assert rewriting.losses == ()


def test_old_drafts_are_said_in_the_new_one() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "x",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
            "odd": {"type": "any", "required": True},
        },
    }
    assert ANTHROPIC.rewrite(schema).schema["properties"] == {
        "n": {"type": "integer", "exclusiveMinimum": 0},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        "odd": {},
    }


# --- Anthropic and Bedrock -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK], ids=lambda each: each.name)
def test_names_that_the_provider_refuses_are_made_plain_and_back(profile: Profile) -> None:
    rewriting = profile.rewrite(obj({"$filter": {"type": "string"}, "größe": {"type": "integer"}}, "größe"))
    assert rewriting.schema == obj({"_filter": {"type": "string"}, "gr__e": {"type": "integer"}}, "gr__e")
    assert rewriting.restore is not None
    assert rewriting.restore({"_filter": "x", "gr__e": 2, "more": 3}) == {"$filter": "x", "größe": 2, "more": 3}


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
        (obj({"$a": {"type": "string"}}), "the provider does not take the name '$a'"),
        (obj({f"p{n}": {"type": "string"} for n in range(25)}), "it has too many optional properties"),
        (
            obj({f"p{n}": {"type": ["string", "null"]} for n in range(17)}, *(f"p{n}" for n in range(17))),
            "it has too many alternatives",
        ),
    ],
)
def test_what_anthropic_does_not_hold_a_model_to_is_sent_as_it_is(schema: dict[str, Any], why: str) -> None:
    assert reason(ANTHROPIC.rewrite(schema, strict=True)) == why


def test_bedrock_gets_definitions_written_out_and_a_bare_root() -> None:
    rewriting = BEDROCK.rewrite({**SEARCH, "title": "Search", "additionalProperties": False})
    assert rewriting.schema.keys() == {"type", "properties", "required"}
    assert rewriting.schema["properties"]["area"] == {**SEARCH["$defs"]["Area"], "description": "Where."}


def test_bedrock_keeps_definitions_that_refer_to_themselves() -> None:
    schema = obj(
        {"root": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": obj({"next": {"$ref": "#/$defs/Node"}}, "next")}}
    )
    assert BEDROCK.rewrite(schema).schema == schema


# --- Gemini --------------------------------------------------------------------------------------------------------


def test_gemini_gets_one_type_a_schema_and_no_references() -> None:
    assert GEMINI.rewrite(SEARCH).schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to look for.", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1, "description": "(default: 10)"},
            "tags": {"type": "array", "items": {"type": "string"}, "nullable": True},
            "area": {
                "type": "object",
                "description": "Where.",
                "properties": {"north": {"type": "number"}, "name": {"type": "string"}},
                "required": ["north"],
            },
        },
        "required": ["text"],
    }


def test_recursion_is_cut_for_gemini_and_told() -> None:
    schema = obj({"child": {"$ref": "#"}}, "child")
    rewriting = GEMINI.rewrite(schema)
    child = rewriting.schema["properties"]["child"]
    assert child["type"] == "object"
    assert {"type": "object"} in child["properties"]["child"]["anyOf"]
    assert rewriting.losses == ("the recursion of 'root'",)


def test_choices_that_are_no_texts_are_told_to_gemini_in_words() -> None:
    rewriting = GEMINI.rewrite(obj({"n": {"enum": [1, 2]}, "s": {"enum": ["a", "b", None]}, "c": {"const": "x"}}))
    assert rewriting.schema["properties"] == {
        "n": {"type": "integer", "description": "(enum: [1, 2])"},
        "s": {"type": "string", "enum": ["a", "b"], "nullable": True},
        "c": {"type": "string", "enum": ["x"]},
    }


def test_gemini_holds_no_model_to_a_schema() -> None:
    assert reason(GEMINI.rewrite(SEARCH, strict=True)) == "the provider knows none"
