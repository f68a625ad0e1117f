from __future__ import annotations

from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator, SchemaError

from bridge import DefinitionError
from bridge.openapi.document import free_name
from bridge.openapi.schemas import SchemaConverter
from tests.openapi.documents import document, lines_counted, parsed


def converted(
    schema: Any,
    direction: Literal["request", "response"] = "request",
    *,
    version: str = "3.1.0",
    schemas: dict[str, Any] | None = None,
) -> Any:
    content = document(openapi=version, components={"schemas": schemas or {}})
    converter = SchemaConverter(parsed(content), direction, "GET /x")
    result = converter.convert(schema)
    result = converter.with_definitions(result) if isinstance(result, dict) else result
    Draft202012Validator.check_schema(result)
    return result


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_json_schema_is_kept_as_it_is() -> None:
    schema = {
        "type": ["object", "null"],
        "properties": {"a": {"const": 1, "default": 1}, "b": {"enum": ["x", None]}},
        "patternProperties": {"^x": True},
        "additionalProperties": {"type": "string", "format": "date", "contentEncoding": "base64"},
        "if": {"required": ["a"]},
        "then": {"minProperties": 2},
    }
    assert converted(schema) == schema


def test_keywords_of_openapi_alone_are_left_out() -> None:
    schema = {
        "type": "string",
        "example": "a",
        "xml": {},
        "externalDocs": {},
        "discriminator": {},
        "x-y": 1,
        "$id": "u",
    }
    assert converted(schema) == {"type": "string", "examples": ["a"]}


def test_recursion_is_carried_by_definitions() -> None:
    node = {"type": "object", "properties": {"next": ref("Node"), "value": {"$ref": "#/components/schemas/Value"}}}
    assert converted(ref("Node"), schemas={"Node": node, "Value": {"type": "integer"}}) == {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/Node"}, "value": {"$ref": "#/$defs/Value"}},
            },
            "Value": {"type": "integer"},
        },
    }


def test_references_to_any_place_get_names_of_their_own() -> None:
    schemas = {"A": {"properties": {"x": {"type": "string"}}}, "B": {"properties": {"x": {"type": "integer"}}}}
    schema = {"anyOf": [{"$ref": f"#/components/schemas/{name}/properties/x"} for name in "AB"]}
    assert converted(schema, schemas=schemas) == {
        "anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x_2"}],
        "$defs": {"x": {"type": "string"}, "x_2": {"type": "integer"}},
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"allOf": [{"type": "string"}], "nullable": True, "description": "d"},
            {"description": "d", "anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": False}, {"type": "integer", "maximum": 1}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
    ],
)
def test_schemas_of_3_0_become_those_of_2020_12(schema: Any, expected: Any) -> None:
    assert converted(schema, version="3.0.3") == expected


def test_siblings_of_a_reference_count_in_3_1_only() -> None:
    schema, schemas = {**ref("A"), "minLength": 2, "description": "d"}, {"A": {"type": "string"}}
    definitions = {"$defs": {"A": {"type": "string"}}}
    assert converted(schema, schemas=schemas) == {
        "$ref": "#/$defs/A",
        "minLength": 2,
        "description": "d",
        **definitions,
    }
    assert converted(schema, version="3.0.3", schemas=schemas) == {
        "$ref": "#/$defs/A",
        "description": "d",
        **definitions,
    }


def test_an_object_among_the_required_names_is_left_to_the_check_of_the_schema() -> None:
    with pytest.raises(SchemaError):
        converted({"properties": {"id": {"readOnly": True}}, "required": ["id", {"$ref": "#/paths"}]})


def test_read_only_properties_are_left_out_of_requests_and_write_only_ones_of_responses() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer", "readOnly": True}, "password": ref("Password"), "name": {}},
        "required": ["id", "password", "name"],
    }
    schemas = {"Password": {"type": "string", "writeOnly": True}}
    assert converted(schema, schemas=schemas) == {
        "type": "object",
        "properties": {"password": {"$ref": "#/$defs/Password"}, "name": {}},
        "required": ["password", "name"],
        "$defs": {"Password": {"type": "string"}},
    }
    found = converted(schema, "response", schemas=schemas)
    assert found["properties"] == {"id": {"type": "integer"}, "name": {}}
    assert found["required"] == ["id", "name"]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "http://127.0.0.1:9/evil.json#/A"}, "leads outside of the document"),
        ({"$ref": "file:///etc/passwd"}, "leads outside of the document"),
        ({"$ref": "#anchor"}, "is not a JSON pointer"),
        ({"$ref": ["#/components"]}, "leads outside of the document"),
        ({"items": {"$ref": "#/components/schemas/Missing"}}, "leads to nothing"),
        ({"$dynamicRef": "#x"}, "'\\$dynamicRef', which is not supported"),
        ({"items": 5, "properties": {"a": "text"}}, "a schema that is not an object: 'text'"),
        (nested(100), "too large, or nested too deeply"),
        ({"allOf": [{"type": "string"}] * 30_000}, "too large, or nested too deeply"),
        (ref("A"), "consist of each other: "),
        (ref("C"), "consist of each other: "),
    ],
)
def test_hostile_schemas_are_refused_with_the_reason(schema: Any, message: str) -> None:
    schemas = {"A": ref("B"), "B": ref("A"), "C": {"anyOf": [{"allOf": [ref("C")]}]}}
    with pytest.raises(DefinitionError, match=message):
        converted(schema, schemas=schemas)


def test_a_long_chain_of_references_is_followed_without_recursion() -> None:
    schemas = {f"S{number}": {"properties": {"next": ref(f"S{number + 1}")}} for number in range(3000)}
    found = converted(ref("S0"), schemas={**schemas, "S3000": {"type": "string"}})
    assert len(found["$defs"]) == 3001


def test_a_document_that_doubles_with_each_level_stays_small() -> None:
    schemas = {
        f"S{number}": {"properties": {"a": ref(f"S{number + 1}"), "b": ref(f"S{number + 1}")}} for number in range(40)
    }
    assert len(converted(ref("S0"), schemas={**schemas, "S40": {}})["$defs"]) == 41


def test_many_definitions_of_one_name_are_named_in_linear_time() -> None:
    count = 300
    schemas = {f"S{number}": {"properties": {"same": {"type": "string"}}} for number in range(count)}
    pointers = [{"$ref": f"#/components/schemas/{name}/properties/same"} for name in schemas]
    with lines_counted(free_name) as lines:
        found = converted({"allOf": pointers}, schemas=schemas)
    assert set(found["$defs"]) == {"same", *(f"same_{number}" for number in range(2, count + 1))}
    assert lines() < 20 * count
