from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from bridge.models.profiles.normalization import (
    MAX_DEPTH,
    NormalSchema,
    children,
    normalized,
    reference_in,
    rewritten,
    with_definitions,
)
from tests.models.profiles.examples import SEARCH, obj
from tests.models.profiles.schemas import JUNK, SCHEMAS


@given(SCHEMAS | JUNK)
def test_the_normal_form_of_any_schema_is_well_formed_and_normal(schema: dict[str, Any]) -> None:
    normal = normalized(schema)
    document = with_definitions(normal.root, normal.definitions)
    Draft202012Validator.check_schema(document)
    again = normalized(document)
    assert with_definitions(again.root, again.definitions) == document
    assert again.losses == ()


def test_a_schema_that_is_well_formed_stays_as_it_is() -> None:
    normal = normalized(SEARCH)
    assert with_definitions(normal.root, normal.definitions) == SEARCH


@pytest.mark.parametrize(
    ("reference", "meaning"),
    [
        ("#/definitions/A~1B", {"type": "integer"}),
        ("#/definitions/A%7E1B", {"type": "integer"}),
        ("#/properties/list/items/0", {"type": "boolean"}),
        ("#/$defs/Name%5Bint%5D", {"type": "string"}),
    ],
)
def test_references_lead_to_definitions_wherever_they_led(reference: str, meaning: dict[str, Any]) -> None:
    schema = obj(
        {"list": {"type": "array", "items": [{"type": "boolean"}]}, "x": {"$ref": reference}},
        **{"definitions": {"A/B": {"type": "integer"}}, "$defs": {"Name[int]": {"type": "string"}}},
    )
    normal = normalized(schema)
    node = normal.root["properties"]["x"]
    assert normal.definitions[reference_in(node) or ""] == meaning
    assert normal.resolved({**node, "title": "X"}) == {**meaning, "title": "X"}


@pytest.mark.parametrize("reference", ["https://x.org/s.json", "other.json#/a", "#anchor", "#/nowhere", "#/title/x", 5])
def test_references_that_lead_nowhere_take_any_value(reference: Any) -> None:
    normal = normalized({"title": "T", "properties": {"x": {"$ref": reference}}})
    assert normal.root["properties"] == {"x": {}}
    assert bool(normal.losses) is isinstance(reference, str)


def test_two_definitions_of_one_name_stay_two() -> None:
    schema = {
        "properties": {"x": {"$ref": "#/$defs/A"}, "y": {"$ref": "#/definitions/A"}},
        "$defs": {"A": {"type": "string"}},
        "definitions": {"A": {"type": "integer"}},
    }
    assert normalized(schema).definitions == {"A": {"type": "string"}, "A_2": {"type": "integer"}}


def test_recursion_and_circles_are_told_apart() -> None:
    tree = NormalSchema({}, {"A": obj({"next": {"$ref": "#/$defs/B"}}), "B": {"anyOf": [{"$ref": "#/$defs/A"}]}})
    assert (tree.is_recursive(), tree.is_circular()) == (True, False)
    circle = NormalSchema({}, {"A": {"$ref": "#/$defs/B"}, "B": {"anyOf": [{"$ref": "#/$defs/A"}]}})
    assert (circle.is_recursive(), circle.is_circular()) == (True, True)
    line = NormalSchema({}, {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {}})
    assert (line.is_recursive(), line.is_circular()) == (False, False)


def test_what_is_only_itself_resolves_to_nothing() -> None:
    assert NormalSchema({}, {"A": {"$ref": "#/$defs/A", "title": "A"}}).resolved({"$ref": "#/$defs/A"}) == {
        "title": "A"
    }


def test_a_schema_is_rewritten_from_within() -> None:
    schema = {"properties": {"a": {"items": {"type": "x"}}}, "anyOf": [{"type": "y"}], "additionalProperties": False}
    seen: list[dict[str, Any]] = []

    def change(node: dict[str, Any]) -> dict[str, Any]:
        seen.append(node)
        return {**node, "title": str(len(seen))}

    assert rewritten(schema, change)["properties"]["a"]["items"] == {"type": "x", "title": "1"}
    assert [node["title"] for node in children(rewritten(schema, change))] == ["6", "7"]
    assert schema["anyOf"] == [{"type": "y"}]


def test_a_long_chain_of_references_is_not_followed_to_its_end() -> None:
    class Counted(dict[str, Any]):
        looks = 0

        def __getitem__(self, name: str) -> Any:
            self.looks += 1
            return super().__getitem__(name)

    chain = Counted({f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)} | {"d3000": {"type": "string"}})
    schema = NormalSchema({"$ref": "#/$defs/d0"}, chain)
    assert schema.resolved(schema.root) == {}
    assert chain.looks == MAX_DEPTH
    assert schema.resolved({"$ref": "#/$defs/d2990"}) == {"type": "string"}
