from __future__ import annotations

import pytest

from bridge.models.profiles.profile import ANTHROPIC, BEDROCK, OPENAI, Profile
from tests.models.profiles.examples import SEARCH, obj


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


@pytest.mark.parametrize("profile", [ANTHROPIC, BEDROCK], ids=lambda each: each.name)
def test_names_that_the_provider_refuses_are_made_plain_and_back(profile: Profile) -> None:
    rewriting = profile.rewrite(obj({"$filter": {"type": "string"}, "größe": {"type": "integer"}}, "größe"))
    assert rewriting.schema == obj({"_filter": {"type": "string"}, "gr__e": {"type": "integer"}}, "gr__e")
    assert rewriting.restore is not None
    assert rewriting.restore({"_filter": "x", "gr__e": 2, "more": 3}) == {"$filter": "x", "größe": 2, "more": 3}


def test_bedrock_gets_definitions_written_out_and_a_bare_root() -> None:
    rewriting = BEDROCK.rewrite({**SEARCH, "title": "Search", "additionalProperties": False})
    assert rewriting.schema.keys() == {"type", "properties", "required"}
    assert rewriting.schema["properties"]["area"] == {**SEARCH["$defs"]["Area"], "description": "Where."}


def test_bedrock_keeps_definitions_that_refer_to_themselves() -> None:
    schema = obj(
        {"root": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": obj({"next": {"$ref": "#/$defs/Node"}}, "next")}}
    )
    assert BEDROCK.rewrite(schema).schema == schema
