from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bridge.client import output_schema
from bridge.client.bounded_schema import MAX_SCHEMA_OBJECTS
from bridge.client.output_schema import OutputSchema

pytestmark = pytest.mark.anyio


async def problem(schema: dict[str, Any], value: object, **settings: Any) -> str | None:
    checked = OutputSchema(schema, "the tool 'f'", **settings)
    found = await checked.problem(value)
    assert await checked.problem(value) == found  # compiled by now
    return found


async def test_what_conforms_has_no_problem() -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {}}}
    assert await problem(schema, {"n": 1}) is None


async def test_a_problem_says_where_and_what() -> None:
    schema = {"properties": {"items": {"items": {"type": "integer"}}}}
    assert await problem(schema, {"items": [1, "x"]}) == "['items'][1]: 'x' is not of type 'integer'"


async def test_a_problem_is_short() -> None:
    assert len(await problem({"type": "integer"}, "x" * 10_000) or "") == 200


async def test_an_older_draft_is_taken_at_its_word() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert await problem(schema, ["x"]) is not None


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"pattern": r"^[^\s@]+@[\w.-]+$"}, "a@b.c", "a b"),
        ({"pattern": "^a{2,3}$"}, "aaa", "a"),
        ({"patternProperties": {"^x-": {"type": "integer"}}}, {"x-a": 1, "b": "c"}, {"x-a": "1"}),
        ({"patternProperties": {"^x-": True}, "additionalProperties": False}, {"x-a": 1}, {"y": 1}),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "null"}}, {"a": 1, "b": None}, {"b": 1}),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}, None], [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]),
        ({"enum": [1, {"a": [2]}]}, {"a": [2]}, {"a": [3]}),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, "a", "ab"),
        ({"pattern": "^é+$"}, "éé", "e"),
    ],
)
async def test_keywords_mean_what_they_say(schema: dict[str, Any], right: object, wrong: object) -> None:
    assert await problem(schema, right) is None
    assert await problem(schema, wrong) is not None


@pytest.mark.parametrize(
    "schema", [{"type": "no such type"}, {"$ref": "https://example.invalid/schema.json"}, {"$ref": "#/$defs/nowhere"}]
)
async def test_a_schema_that_cannot_be_used_judges_nothing_and_fetches_nothing(
    schema: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    checked = OutputSchema(schema, "the tool 'f'")
    with caplog.at_level(logging.WARNING, "bridge.client"):
        assert [await checked.problem({}), await checked.problem([])] == [None, None]
    assert len(caplog.records) == 1
    assert "the tool 'f': some results cannot be validated against its output schema" in caplog.text


# --- schemas and values that are made to take long -------------------------------------------------------------------


def doubling(keyword: str, depth: int = 60) -> dict[str, Any]:
    """Return a schema whose size doubles with each definition, when its references are inlined."""
    definitions: dict[str, Any] = {
        f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{depth}": {"type": "string"}}}


SELF = {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#"}}]}
DEEP: Any = "x"
for _ in range(60):
    DEEP = [DEEP]

HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "doubling allOf": (doubling("allOf"), "x"),
    "doubling anyOf": (doubling("anyOf"), 1),
    "doubling oneOf": (doubling("oneOf"), 1),
    "doubling along the value": (SELF, DEEP),
    "a part that names a draft": (
        {"allOf": [{"$schema": "https://json-schema.org/draft/2020-12/schema", **doubling("allOf")}]},
        "x",
    ),
    "the root again, which names a draft": (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **doubling("allOf"), "not": {"$ref": "#"}},
        "x",
    ),
    "unevaluated": (
        {
            "unevaluatedProperties": False,
            "$ref": "#/$defs/d0",
            "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}", "$dynamicRef": f"#/$defs/d{n + 1}"} for n in range(60)},
        },
        {},
    ),
    "backtracking in a lookahead": ({"pattern": r"^(?=(a+)+$)"}, "a" * 60 + "b"),
    "an expression with many states": ({"pattern": "(a{100}){100}b"}, "a" * 100_000),
    "a long text": ({"pattern": r"^(\w+\s?){30}$"}, "ab " * 100_000),
    "many schemas for many values": ({"items": {"allOf": [{}] * 1_000}}, [0] * 100_000),
    "many names for many values": (
        {"items": {"properties": {f"p{n}": {} for n in range(400)}, "minProperties": 1}},
        [{"a": 1}] * 100_000,
    ),
    "a large constant": ({"items": {"enum": [[0] * 10_000]}}, [[0] * 10_000] * 1_000),
    "one error after the other, each with the value": (
        {"anyOf": [{"minimum": n, "type": "null"} for n in range(1_000)]},
        ["x" * 1_000_000],
    ),
    "more objects than are read": ({"allOf": [{} for _ in range(MAX_SCHEMA_OBJECTS)], "minLength": 1}, "x"),
    "a nested schema": ({"const": [[[[[[[DEEP]]]]]]], "minLength": 1}, "x"),
    "a list of everything in a draft that compares them": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "enum": [*range(10_000), *map(str, range(10_000)), *([n] for n in range(1_000))],
        },
        "x",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_takes_too_much_work_is_passed_on_with_a_warning_or_refused(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_schema, "MAX_STEPS", 5_000)
    schema, value = HOSTILE[name]
    with caplog.at_level(logging.WARNING, "bridge.client"):
        assert await problem(schema, value) is None
    assert "the tool 'f': some results cannot be validated against its output schema: " in caplog.text
    refused = await problem(schema, value, refuses_unjudged=True)
    assert (refused or "").startswith("it cannot be validated: ")


@pytest.mark.parametrize(
    ("schema", "value", "is_right"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 10_000 + "b", False),
        ({"uniqueItems": True}, [{"n": n} for n in range(20_000)], True),
        ({"uniqueItems": True}, [2**61 - 1 + n * (2**61 - 1) for n in range(20_000)], True),
        ({"items": {"type": "object", "properties": {"n": {"minimum": 0}}}}, [{"n": n} for n in range(10_000)], True),
        ({"type": "array", "items": {"type": "integer"}}, list(range(300_000)), True),
        ({"type": "array", "items": {"type": "integer"}}, [*range(30_000), "x"], False),
    ],
)
async def test_what_is_large_and_honest_is_judged(schema: dict[str, Any], value: object, is_right: bool) -> None:
    found = await OutputSchema(schema, "f", refuses_unjudged=True).problem(value)
    assert (found is None) is is_right
    assert "cannot be validated" not in (found or "")


async def test_the_event_loop_goes_on_while_a_large_value_is_judged() -> None:
    """The validation cannot end before the loop has run another task."""
    went_on = threading.Event()
    judged_by: list[str] = []

    class Item(dict[str, Any]):
        def __len__(self) -> int:
            judged_by.append(threading.current_thread().name)
            went_on.wait(10)
            return 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(OutputSchema({"minProperties": 1}, "f").problem, Item(a=1))
        while not judged_by:
            await anyio.lowlevel.checkpoint()
        went_on.set()
    assert threading.current_thread().name not in judged_by


async def test_a_judgement_that_nobody_waits_for_any_more_is_left() -> None:
    release, began = threading.Event(), threading.Event()

    class Item(dict[str, Any]):
        def __len__(self) -> int:
            began.set()
            release.wait(10)
            return 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(OutputSchema({"minProperties": 1}, "f").problem, Item(a=1))
        while not began.is_set():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    release.set()
