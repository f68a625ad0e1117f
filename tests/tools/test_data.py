from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from bridge import ToolBox, ToolExecutionResult, tool
from bridge.testing import connected
from bridge.tools.data import data_of

pytestmark = pytest.mark.anyio

AT = dt.datetime(2026, 11, 23, 20, tzinfo=dt.UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")

NULL = {"type": "null"}
DATE = {"type": "string", "format": "date"}


@dataclass
class Author:
    name: str
    born: dt.date | None = None


@dataclass
class Note:
    id: UUID
    at: dt.datetime
    authors: list[Author]
    length: dt.timedelta = dt.timedelta(minutes=2)
    counts: dict[str, int] = field(default_factory=dict)


@tool
def note() -> Note:
    """Return a note."""
    return Note(ID, AT, [Author("Ada", dt.date(1815, 12, 10)), Author("Bob")], counts={"a": 1})


@tool
def notes() -> list[Note]:
    """Return notes."""
    return [note()]


@tool
def total() -> int:
    """Return a number."""
    return 7


@tool
def words() -> str:
    """Return text without structured content."""
    return "plain"


async def test_results_of_servers_are_values_of_the_types_in_the_output_schema() -> None:
    async with connected(note, notes, total, words) as provider:
        one = (await provider.call("note")).data
        assert (one.id, one.at, one.length, one.counts) == (ID, AT, dt.timedelta(minutes=2), {"a": 1})
        assert [(each.name, each.born) for each in one.authors] == [("Ada", dt.date(1815, 12, 10)), ("Bob", None)]
        (only,) = (await provider.call("notes")).data
        assert only == one, "values of one schema are of one class"
        assert (await provider.call("total")).data == 7
        assert (await provider.call("words")).data is None
        assert (await provider.call("nothing")).data is None


async def test_the_value_of_a_function_in_this_process_is_itself() -> None:
    assert (await ToolBox(note).call("note")).data == note()


def test_nothing_is_read_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.tools.data.data_of", lambda *_: pytest.fail("it was read"))
    result = ToolExecutionResult((), {"a": 1})
    assert result.structured_content == {"a": 1}


@pytest.mark.parametrize(
    ("content", "schema", "data"),
    [
        ({"a": 1}, None, {"a": 1}),
        (None, {"type": "object"}, None),
        ({"result": 5}, {"type": "object", "properties": {"result": {}}, "required": ["result"]}, 5),
        ({"at": "soon"}, {"additionalProperties": {"type": "string", "format": "date-time"}}, {"at": "soon"}),
        ({"a": "b"}, {"properties": {"other": {}}}, {"a": "b"}),
        ({"class": 1, "a": 2}, {"properties": {"class": {}, "a": {}}}, {"class": 1, "a": 2}),
        ({"a": "2026-01-01"}, {"additionalProperties": {"anyOf": [NULL, DATE]}}, {"a": dt.date(2026, 1, 1)}),
        ({"a": True}, {"additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}, {"a": True}),
        ({"a": 1}, {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, {"a": 1}),
        ({"a": 1}, {"$ref": "https://elsewhere.example/schema"}, {"a": 1}),
        ({"a": [1]}, {"properties": 5, "additionalProperties": {"items": 5}}, {"a": [1]}),
    ],
)  # fmt: skip
def test_what_a_schema_does_not_tell_stays_as_it_is(content: Any, schema: Any, data: Any) -> None:
    assert data_of(content, schema) == data
