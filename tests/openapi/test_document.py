from __future__ import annotations

from typing import Any

import pytest

from bridge import DefinitionError
from bridge.openapi.document import free_name, unique_names
from tests.openapi.documents import document, lines_counted, parsed


def names(**operations: Any) -> list[str]:
    paths = {"/" + path: {"get": content} for path, content in operations.items()}
    return [operation.name for operation in parsed(document(paths=paths)).operations]


@pytest.mark.parametrize("version", ["3.0.0", "3.0.4", "3.1.0", "3.1", "3.1.2-rc1"])
def test_versions_3_0_and_3_1_are_read(version: str) -> None:
    assert len(parsed(document(openapi=version)).operations) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"swagger": "2.0"}, "Swagger 2.0 document; convert it"),
        ({"openapi": "4.0.0"}, "'openapi' is '4.0.0'"),
        ({}, "it has no 'openapi'"),
        ({"openapi": "3.1.0", "paths": []}, "'paths' is not an object"),
        ({"openapi": "3.1.0", "paths": {"/x": 1}}, "the path '/x' is not an object: 1"),
        (
            {"openapi": "3.1.0", "paths": {"/x": {"$ref": "#/paths/~1x"}}},
            "path '/x' lead to each other",
        ),
        ({"openapi": "3.1.0", "paths": {"/x": {"$ref": "other.yaml"}}}, "'other.yaml' leads outside of the document"),
        ({"openapi": "3.1.0", "paths": {"/x": {"$ref": "#/nothing"}}}, "'#/nothing' leads to nothing"),
        ({"openapi": "3.1.0", "paths": {"/x": {"$ref": 5}}}, "reference 5 leads outside"),
    ],
)
def test_what_is_no_document_is_refused_with_the_reason(content: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parsed(content)


def test_a_name_is_the_operation_id_or_method_and_path() -> None:
    assert names(a={"operationId": "issues/list-for-repo"}, b={}) == ["issues_list-for-repo", "get_b"]


def test_operations_with_the_same_id_are_named_by_their_paths() -> None:
    assert names(a={"operationId": "same"}, b={"operationId": "same"}, c={"operationId": "get_b"}) == [
        "get_a",
        "get_b_2",
        "get_b",
    ]


def test_many_operations_of_one_name_are_named_in_linear_time() -> None:
    count = 300
    with lines_counted(free_name) as lines:
        named = unique_names(["same"] * count, ["get"] * count)
    assert named == ["get", *(f"get_{number}" for number in range(2, count + 1))]
    assert lines() < 20 * count


def test_long_ids_are_cut_and_stay_different() -> None:
    first, second = names(a={"operationId": "x" * 100 + "1"}, b={"operationId": "x" * 100 + "2"})
    assert first != second
    assert len(first) == len(second) == 64


def test_references_are_json_pointers_with_their_escapes() -> None:
    content = document(components={"a/b~c %": [{"found": True}]})
    assert parsed(content).at("#/components/a~1b~0c%20%25/0") == {"found": True}
