from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bridge.models.profiles.profile import ANTHROPIC, BEDROCK, GEMINI, OPENAI, Profile
from tests.models.profiles import rules
from tests.models.profiles.examples import SEARCH, obj
from tests.models.profiles.schemas import CLOSED_SCHEMAS, JUNK, SCHEMAS, said_under

RULES: list[tuple[Profile, rules.Rule, rules.Rule]] = [
    (OPENAI, rules.openai_lenient, rules.openai_strict),
    (ANTHROPIC, rules.anthropic_lenient, rules.anthropic_strict),
    (BEDROCK, rules.bedrock_lenient, rules.anthropic_strict),
    (GEMINI, rules.gemini, rules.gemini),
]
ALL = [OPENAI, ANTHROPIC, BEDROCK, GEMINI]


@pytest.mark.parametrize(("profile", "lenient", "strict"), RULES, ids=[each.name for each in ALL])
@given(schema=SCHEMAS | CLOSED_SCHEMAS | JUNK, wants_strict=st.booleans())
@settings(max_examples=3 * settings().max_examples // 2)
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
@settings(
    max_examples=2 * settings().max_examples, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
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
    assert "parts nested more than 64 levels deep" in profile.rewrite(obj({"a": schema})).losses
