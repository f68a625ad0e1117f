from __future__ import annotations

import logging
from typing import Any

import pytest

from bridge.client.output_schema import OutputSchema


def problem(schema: dict[str, Any], value: object) -> str | None:
    return OutputSchema(schema, "the tool 'f'").problem(value)


def test_what_conforms_has_no_problem() -> None:
    assert problem({"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {}}}, {"n": 1}) is None


def test_a_problem_says_where_and_what() -> None:
    schema = {"properties": {"items": {"items": {"type": "integer"}}}}
    assert problem(schema, {"items": [1, "x"]}) == "['items'][1]: 'x' is not of type 'integer'"


def test_a_problem_is_short() -> None:
    assert len(problem({"type": "integer"}, "x" * 10_000) or "") == 200


def test_an_older_draft_is_taken_at_its_word() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert problem(schema, ["x"]) is not None


@pytest.mark.parametrize(
    "schema", [{"type": "no such type"}, {"$ref": "https://example.invalid/schema.json"}, {"$ref": "#/$defs/nowhere"}]
)
def test_a_schema_that_cannot_be_used_judges_nothing_and_fetches_nothing(
    schema: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    checked = OutputSchema(schema, "the tool 'f'")
    with caplog.at_level(logging.WARNING, "bridge.client"):
        assert [checked.problem({}), checked.problem([])] == [None, None]
    assert len(caplog.records) == 1
    assert "the tool 'f': its output schema cannot be used" in caplog.text
