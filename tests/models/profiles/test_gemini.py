from __future__ import annotations

from bridge.models.profiles.profile import GEMINI
from tests.models.profiles.examples import SEARCH, obj, reason


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
    assert reason(GEMINI.rewrite(SEARCH, strict=True)) == "the provider has no strict mode"
