"""Schemas by hand, and written out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest
from jsonschema import Draft202012Validator

from bridge.errors import DefinitionError
from bridge.tools.schema.generator import schema_of
from bridge.tools.schema.json_schema import JsonObjectSchema, inlined, reference_to


def test_every_kind_of_property_can_be_built() -> None:
    schema = (
        JsonObjectSchema("An order.")
        .string("sku", "What is ordered.", pattern="^[A-Z]+$")
        .integer("count", minimum=1)
        .number("price")
        .boolean("gift", "Wrap it.")
        .enum("size", ["S", "M"])
        .enum("rank", [1, None, True])
        .array("tags", {"type": "string"}, maxItems=3)
        .object("address", JsonObjectSchema().string("street").required("street"), "Where to.")
        .object("extra", {"type": "object", "additionalProperties": {"type": "integer"}})
        .any_of("when", [{"type": "string", "format": "date"}, JsonObjectSchema().integer("in_days")])
        .raw("anything", {"not": {"type": "null"}, "x-mcp-header": "Anything"})
        .required("sku", "count")
        .required("sku")
        .additional_properties(False)
        .build()
    )
    Draft202012Validator.check_schema(schema)
    assert schema == {
        "type": "object",
        "description": "An order.",
        "properties": {
            "sku": {"type": "string", "description": "What is ordered.", "pattern": "^[A-Z]+$"},
            "count": {"type": "integer", "minimum": 1},
            "price": {"type": "number"},
            "gift": {"type": "boolean", "description": "Wrap it."},
            "size": {"type": "string", "enum": ["S", "M"]},
            "rank": {"enum": [1, None, True]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "address": {
                "type": "object",
                "properties": {"street": {"type": "string"}},
                "required": ["street"],
                "description": "Where to.",
            },
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
            "when": {
                "anyOf": [
                    {"type": "string", "format": "date"},
                    {"type": "object", "properties": {"in_days": {"type": "integer"}}},
                ]
            },
            "anything": {"not": {"type": "null"}, "x-mcp-header": "Anything"},
        },
        "required": ["sku", "count"],
        "additionalProperties": False,
    }


def test_an_empty_object_has_no_properties() -> None:
    assert JsonObjectSchema().build() == {"type": "object", "properties": {}}


def test_nothing_is_required_unless_it_is_named() -> None:
    assert "required" not in JsonObjectSchema().string("a").build()


def test_a_reference_may_be_recursive() -> None:
    node = JsonObjectSchema().integer("value").array("children", reference_to("node"))
    schema = JsonObjectSchema().reference("tree", "node", "The root.").definition("node", node).build()
    assert schema["properties"] == {"tree": {"$ref": "#/$defs/node", "description": "The root."}}
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"tree": {"value": 1, "children": [{"value": 2}]}})
    assert not validator.is_valid({"tree": {"children": [{"value": "x"}]}})


def test_definitions_of_an_inner_object_are_found_from_the_root() -> None:
    inner = JsonObjectSchema().reference("unit", "unit").definition("unit", {"type": "string"})
    schema = JsonObjectSchema().object("amount", inner).array("amounts", inner).build()
    assert schema["$defs"] == {"unit": {"type": "string"}}
    assert Draft202012Validator(schema).is_valid({"amount": {"unit": "kg"}, "amounts": [{"unit": "g"}]})
    assert not Draft202012Validator(schema).is_valid({"amount": {"unit": 1}})


def test_a_definition_of_any_name_can_be_referred_to() -> None:
    schema = JsonObjectSchema().reference("a", "x/y~z").definition("x/y~z", {"type": "integer"}).build()
    assert not Draft202012Validator(schema).is_valid({"a": "text"})


def test_building_again_gives_an_equal_schema_that_is_not_shared() -> None:
    builder = JsonObjectSchema().string("a").required("a")
    first = builder.build()
    first["properties"].clear()
    assert builder.build() == {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def test_a_property_given_twice_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'a' is given twice"):
        JsonObjectSchema().string("a").integer("a")


def test_a_required_property_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"required property 'b' is not among \['a'\]"):
        JsonObjectSchema().string("a").required("b").build()


@pytest.mark.parametrize("values", [[], "abc"])
def test_an_enum_without_values_is_refused(values: list[str] | str) -> None:
    with pytest.raises(DefinitionError, match="the enum 'size' needs a list of values"):
        JsonObjectSchema().enum("size", values)


def test_two_definitions_of_one_name_are_refused() -> None:
    builder = JsonObjectSchema().definition("unit", {"type": "string"})
    with pytest.raises(DefinitionError, match="definition 'unit' is given twice"):
        builder.definition("unit", {"type": "integer"})


class Colour(Enum):
    RED = "red"


@dataclass
class Branch:
    colour: Colour
    twigs: list[Branch]


@dataclass
class Form:
    first: Colour
    second: Colour | None = None


def test_a_schema_can_be_written_out() -> None:
    colour = {"type": "string", "enum": ["red"]}
    assert inlined(schema_of(Form)) == {
        "type": "object",
        "properties": {"first": colour, "second": {"anyOf": [colour, {"type": "null"}], "default": None}},
        "required": ["first"],
    }


def test_what_stands_beside_a_reference_counts() -> None:
    schema = JsonObjectSchema().reference("a", "x/y", "Mine.").definition("x/y", {"type": "string", "description": "?"})
    assert inlined(schema.build())["properties"] == {"a": {"type": "string", "description": "Mine."}}


def test_what_refers_to_itself_stays_a_reference() -> None:
    assert inlined(schema_of(list[Branch])) == {
        "type": "array",
        "items": {"$ref": "#/$defs/Branch"},
        "$defs": {
            "Branch": {
                "type": "object",
                "properties": {
                    "colour": {"type": "string", "enum": ["red"]},
                    "twigs": {"type": "array", "items": {"$ref": "#/$defs/Branch"}},
                },
                "required": ["colour", "twigs"],
            }
        },
    }


@pytest.mark.parametrize("reference", ["https://example.org/schema", "#/$defs/absent", "#"])
def test_references_to_elsewhere_stay(reference: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}}
    assert inlined(schema) == schema
