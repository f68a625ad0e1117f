from __future__ import annotations

from typing import Any

import pytest

from bridge import DefinitionError
from bridge.openapi.parameters import Inputs, inputs_of
from tests.openapi.documents import body_of, document, parsed


def inputs(operation: dict[str, Any], path: str = "/x", secrets: Any = (), **rest: Any) -> Inputs:
    api = parsed(document(operation, path=path, method="post", **rest))
    return inputs_of(api, api.operations[0], secrets)


def parameter(name: str, place: str, **rest: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"}, **rest}


def test_parameters_and_the_properties_of_a_body_are_arguments() -> None:
    found = inputs(
        {
            "parameters": [
                parameter("id", "path", required=True, description="The id."),
                parameter("page[size]", "query", deprecated=True),
                parameter("X-Trace", "header"),
            ],
            **body_of({"type": "object", "properties": {"name": {"type": "string"}, "age": {}}, "required": ["name"]}),
        },
        "/x/{id}",
    )
    assert found.schema == {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id."},
            "page_size": {"type": "string", "deprecated": True},
            "X-Trace": {"type": "string"},
            "name": {"type": "string"},
            "age": {},
        },
        "required": ["id", "name"],
        "additionalProperties": False,
    }


def test_names_that_collide_get_their_place() -> None:
    found = inputs(
        {
            "parameters": [
                parameter("id", "path", required=True),
                parameter("id", "query"),
                parameter("id_path", "query"),
                parameter("only", "cookie"),
            ],
            **body_of({"type": "object", "properties": {"id": {}, "other": {}}}),
        },
        "/x/{id}",
    )
    assert [(each.argument, each.name, each.place) for each in found.parameters] == [
        ("id_path_2", "id", "path"),
        ("id_query", "id", "query"),
        ("id_path", "id_path", "query"),
        ("only", "only", "cookie"),
        ("id_body", "id", "body"),
        ("other", "other", "body"),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"oneOf": [{"type": "object"}, {"type": "string"}]},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {}}, "allOf": [{"required": ["a"]}]},
        {"type": ["object", "null"], "properties": {"a": {}}},
        {"type": "object"},
        True,
    ],
)
def test_other_bodies_are_one_argument(schema: Any) -> None:
    found = inputs(body_of(schema))
    assert [(each.argument, each.is_required) for each in found.parameters] == [("body", True)]


def test_an_optional_body_with_required_properties_is_one_argument() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    found = inputs(body_of(schema, required=False))
    assert [(each.argument, each.is_required) for each in found.parameters] == [("body", False)]


def test_the_parameters_of_a_path_count_unless_the_operation_has_its_own() -> None:
    content = document({"parameters": [parameter("q", "query", description="own")]})
    content["paths"]["/x"]["parameters"] = [parameter("q", "query"), {"$ref": "#/components/parameters/page"}]
    content["components"] = {"parameters": {"page": parameter("page", "query")}}
    api = parsed(content)
    found = inputs_of(api, api.operations[0], ())
    assert found.schema["properties"] == {"q": {"type": "string", "description": "own"}, "page": {"type": "string"}}


def test_credentials_and_headers_of_the_connection_are_no_arguments() -> None:
    names = ["Authorization", "host", "Cookie", "Content-Type", "X-KEY", "X-Other"]
    found = inputs(
        {"parameters": [*(parameter(name, "header") for name in names), parameter("key", "query")]},
        secrets=[("header", "x-key"), ("query", "key")],
    )
    assert [each.name for each in found.parameters] == ["X-Other"]


@pytest.mark.parametrize(
    ("operation", "path", "message"),
    [
        ({"parameters": [parameter("id", "body")]}, "/x", "the parameter 'id' of POST /x is invalid: in"),
        ({"parameters": [{"in": "query"}]}, "/x", "is invalid: name"),
        ({"parameters": [5]}, "/x", "a parameter of POST /x is not an object: 5"),
        ({}, "/x/{id}", "does not declare the parameters of its path"),
        ({"parameters": [parameter("id", "path", required=True)]}, "/x", "does not declare the parameters of its path"),
        (
            {"parameters": [parameter("q", "query", style="matrix")]},
            "/x",
            "'matrix', which is not one of a query",
        ),
        ({"parameters": [{"name": "q", "in": "query", "content": {"text/xml": {}}}]}, "/x", "is not JSON"),
        ({"parameters": [parameter("X-\u00e4", "header")]}, "/x", "has a name that no header may have"),
        ({"parameters": [parameter("X\r\nY: z", "header")]}, "/x", "has a name that no header may have"),
        (body_of({}, "multipart/form-data"), "/x", "a body that is not supported \\(multipart/form-data\\)"),
        (body_of({}, "application/octet-stream"), "/x", "supported are JSON, application/x-www-form-urlencoded, and"),
        (body_of({"$ref": "file:///etc/passwd"}), "/x", "leads outside of the document"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(operation: Any, path: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        inputs(operation, path)


def test_an_optional_body_that_is_not_supported_is_left_out() -> None:
    assert inputs(body_of({}, "application/octet-stream", required=False)).body is None
