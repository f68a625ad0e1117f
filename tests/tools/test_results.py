from __future__ import annotations

import dataclasses
import enum
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from inspect import Signature
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypeVar

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from pydantic_core import from_json
from typing_extensions import TypedDict

from bridge.errors import ResultError
from bridge.tools.content import Audio, Block, Content, File, Image, ResourceLink, Text
from bridge.tools.results import ResultWriter
from bridge.tools.tool import ToolExecutionResult
from bridge.wire.tools import result_to_wire


class Color(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


class Item(BaseModel):
    sku: str = Field(alias="SKU")
    price: float | None = None


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Pair(TypedDict):
    left: int
    right: str


class Span(NamedTuple):
    start: int
    end: int


class Unknown:
    """A type that has no JSON."""


Name = NewType("Name", str)
PICTURE = Image(b"\x89PNG")
SOUND = Audio(b"RIFF")
LINK = ResourceLink(uri="file:///a", name="a")
WHEN = datetime(2026, 8, 1, 10, tzinfo=UTC)
IDENTITY = uuid.UUID("12345678-1234-5678-1234-567812345678")
GIVEN = ToolExecutionResult((Text("a"),), {"b": 1}, metadata={"c": 2})


class Unsaid:
    """Placeholder for no return annotation."""


def writer(annotation: Any) -> ResultWriter:
    return ResultWriter("the_tool", Signature.empty if annotation is Unsaid else annotation)


def written(write: ResultWriter, value: Any) -> ToolExecutionResult:
    """Return the result of a value, after a check that it equals the one written as JSON at once."""
    result, as_json = write.write(value), write.write_json(value)
    if isinstance(as_json, bytes):
        assert from_json(b"{%b}" % as_json) == result_to_wire(result)
    else:
        assert as_json == result
    return result


def named(value: Any) -> str:
    return "memoryview" if isinstance(value, memoryview) else repr(value)[:40]


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        # None
        (None, None, "Success"),
        (type(None), None, "Success"),
        (Unsaid, None, "Success"),
        (None, 5, "Success"),
        # str
        (str, "", ""),
        (str, 'a "b"\n', 'a "b"\n'),
        (str, "5", "5"),
        (str, "null", "null"),
        (str, "é\x00😀", "é\x00😀"),
        (Annotated[str, "words"], "a", "a"),
        (Name, Name("a"), "a"),
        (Literal["a", "b"], "a", "a"),
        (str | None, "a", "a"),
        (Unsaid, "a", "a"),
        (Any, "a", "a"),
        (Unsaid, Word.YES, "yes"),
        (str | int, "a", "a"),
        (Image | str, "a", "a"),
    ],
    ids=named,
)
def test_text_is_read_as_it_is_in_one_form(annotation: Any, value: Any, text: str) -> None:
    write = writer(annotation)
    assert write.output_schema is None
    assert written(write, value) == ToolExecutionResult((Text(text),))


@pytest.mark.parametrize(
    ("annotation", "value", "text", "structured"),
    [
        (int, 5, "5", {"result": 5}),
        (int, 10**30, str(10**30), {"result": 10**30}),
        (int, True, "1", {"result": 1}),
        (float, 0.1, "0.1", {"result": 0.1}),
        (float, 5, "5.0", {"result": 5.0}),
        (bool, True, "true", {"result": True}),
        (int | None, None, "null", {"result": None}),
        (int | None, 5, "5", {"result": 5}),
        (list[int], [1, 2], "[1,2]", {"result": [1, 2]}),
        (list[str], ["é"], '["é"]', {"result": ["é"]}),
        (list[str], (), "[]", {"result": []}),
        (set[int], {1}, "[1]", {"result": [1]}),
        (tuple[int, str], (1, "a"), '[1,"a"]', {"result": [1, "a"]}),
        (list[Item], [Item(SKU="a")], '[{"SKU":"a","price":null}]', {"result": [{"SKU": "a", "price": None}]}),
        (dict, {"a": [1]}, '{"a":[1]}', {"a": [1]}),
        (dict[str, Any], {"result": 1}, '{"result":1}', {"result": 1}),
        (dict[int, str], {1: "a"}, '{"1":"a"}', {"1": "a"}),
        (Item, Item(SKU="a", price=1.5), '{"SKU":"a","price":1.5}', {"SKU": "a", "price": 1.5}),
        (Item, {"SKU": "a"}, '{"SKU":"a","price":null}', {"SKU": "a", "price": None}),
        (Item | None, None, "null", {"result": None}),
        (Item | None, Item(SKU="a"), '{"SKU":"a","price":null}', {"result": {"SKU": "a", "price": None}}),
        (Item | Tree, Tree(value=1), '{"value":1,"children":[]}', {"value": 1, "children": []}),
        (
            Tree,
            Tree(value=1, children=[Tree(value=2)]),
            '{"value":1,"children":[{"value":2,"children":[]}]}',
            {"value": 1, "children": [{"value": 2, "children": []}]},
        ),
        (Point, Point(1, 2), '{"x":1,"y":2}', {"x": 1, "y": 2}),
        (Pair, {"left": 1, "right": "a"}, '{"left":1,"right":"a"}', {"left": 1, "right": "a"}),
        (Span, Span(1, 2), "[1,2]", {"result": [1, 2]}),
        (date, date(2026, 8, 1), '"2026-08-01"', {"result": "2026-08-01"}),
        (datetime, WHEN, '"2026-08-01T10:00:00Z"', {"result": "2026-08-01T10:00:00Z"}),
        (uuid.UUID, IDENTITY, f'"{IDENTITY}"', {"result": str(IDENTITY)}),
        (Decimal, Decimal("1.50"), '"1.50"', {"result": "1.50"}),
        (Color, Color.RED, '"red"', {"result": "red"}),
        (Word, Word.YES, '"yes"', {"result": "yes"}),
        (Literal[1, 2], 1, "1", {"result": 1}),
        (dict[str, bytes], {"a": b"\xff\xfe"}, '{"a":"__4="}', {"a": "__4="}),
    ],
    ids=named,
)
def test_declared_data_is_compact_json_and_conforms_to_the_output_schema(
    annotation: Any, value: Any, text: str, structured: Any
) -> None:
    write = writer(annotation)
    assert written(write, value) == ToolExecutionResult((Text(text),), structured)
    assert write.output_schema is not None
    assert write.output_schema["type"] == "object"
    Draft202012Validator.check_schema(write.output_schema)
    Draft202012Validator(write.output_schema).validate(structured)


T = TypeVar("T")


@pytest.mark.parametrize(
    "annotation", [Unsaid, Any, object, int | str, Annotated[Any, "x"], Item | Image, T], ids=named
)
@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        (5, "5", {"result": 5}),
        (1.5, "1.5", {"result": 1.5}),
        (False, "false", {"result": False}),
        ([1, None], "[1,null]", {"result": [1, None]}),
        ((), "[]", {"result": []}),
        ({"a": None}, '{"a":null}', {"a": None}),
        (Item(SKU="a"), '{"SKU":"a","price":null}', {"SKU": "a", "price": None}),
        (Point(1, 2), '{"x":1,"y":2}', {"x": 1, "y": 2}),
        ([date(2026, 8, 1)], '["2026-08-01"]', {"result": ["2026-08-01"]}),
        (Color.RED, '"red"', {"result": "red"}),
        (Decimal("1.5"), '"1.5"', {"result": "1.5"}),
        ({"a": b"\xff\xfe"}, '{"a":"__4="}', {"a": "__4="}),
    ],
    ids=named,
)
def test_data_that_nobody_declared_goes_by_its_own_type(
    annotation: Any, value: Any, text: str, structured: Any
) -> None:
    write = writer(annotation)
    assert write.output_schema is None
    assert written(write, value) == ToolExecutionResult((Text(text),), structured)


@pytest.mark.parametrize("annotation", [Any, object, str | None, Image | None], ids=named)
def test_none_among_other_things_is_json(annotation: Any) -> None:
    assert written(writer(annotation), None) == ToolExecutionResult((Text("null"),), {"result": None})


FILE = File("tool:///the_tool/result/0", b"\x00", "application/octet-stream")


@pytest.mark.parametrize(
    ("annotation", "value", "content"),
    [
        (Image, PICTURE, (PICTURE,)),
        (Audio, SOUND, (SOUND,)),
        (ResourceLink, LINK, (LINK,)),
        (Text, Text("a"), (Text("a"),)),
        (Content, PICTURE, (PICTURE,)),
        (Block, PICTURE, (PICTURE,)),
        (Image | None, PICTURE, (PICTURE,)),
        (str | Image, PICTURE, (PICTURE,)),
        (Unsaid, PICTURE, (PICTURE,)),
        (Any, PICTURE, (PICTURE,)),
        (bytes, b"\x00", (FILE,)),
        (bytearray, bytearray(b"\x00"), (FILE,)),
        (Unsaid, memoryview(b"\x00"), (FILE,)),
        (list[bytes], [b"\x00"], (FILE,)),
        (list[Image], [PICTURE, PICTURE], (PICTURE, PICTURE)),
        (tuple[str, Image], ("a", PICTURE), (Text("a"), PICTURE)),
        (tuple[Image, ...], (PICTURE,), (PICTURE,)),
        (Sequence[Text | Image], [Text("a"), PICTURE], (Text("a"), PICTURE)),
        (list[str | Image], ["a", PICTURE], (Text("a"), PICTURE)),
        (list, ["a", PICTURE, {"b": [1]}, 5, None], (Text("a"), PICTURE, Text('{"b":[1]}'), Text("5"), Text("null"))),
        (list[Any], [PICTURE, Item(SKU="a")], (PICTURE, Text('{"SKU":"a","price":null}'))),
        (Unsaid, ["a", PICTURE], (Text("a"), PICTURE)),
        (list[Image] | None, [PICTURE], (PICTURE,)),
    ],
    ids=named,
)  # fmt: skip
def test_content_is_blocks_mixed_with_text(annotation: Any, value: Any, content: tuple[Content, ...]) -> None:
    write = writer(annotation)
    assert write.output_schema is None
    assert written(write, value) == ToolExecutionResult(content)


@pytest.mark.parametrize("annotation", [list[Image], list, list[Any], Sequence[bytes | int]], ids=named)
def test_a_list_that_might_hold_blocks_and_holds_none_is_data(annotation: Any) -> None:
    assert writer(annotation).write([1]) == ToolExecutionResult((Text("[1]"),), {"result": [1]})


@pytest.mark.parametrize("annotation", [None, str, int, Item, Any, Unsaid, ToolExecutionResult, Image], ids=named)
def test_a_whole_result_is_itself(annotation: Any) -> None:
    assert writer(annotation).write(GIVEN) is GIVEN


def test_a_result_as_declared_type_promises_nothing() -> None:
    assert writer(ToolExecutionResult).output_schema is None
    assert writer(ToolExecutionResult | int).output_schema is None


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_a_type_that_is_no_object_is_wrapped() -> None:
    assert writer(list[int]).output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
        "required": ["result"],
    }


def test_definitions_stay_at_the_root_of_a_wrapped_schema() -> None:
    schema = writer(list[Tree]).output_schema
    assert schema is not None
    assert schema["properties"] == {"result": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}
    assert "Tree" in schema["$defs"]
    Draft202012Validator(schema).validate({"result": [{"value": 1, "children": []}]})


def test_a_recursive_object_and_a_choice_of_objects_say_that_they_are_objects() -> None:
    for annotation in (Tree, Item | Tree):
        schema = writer(annotation).output_schema
        assert schema is not None
        assert schema["type"] == "object"
        assert "result" not in schema.get("properties", {})


def test_a_type_without_a_json_schema_promises_nothing() -> None:
    write = writer(Unknown)
    assert write.output_schema is None
    assert written(write, 5) == ToolExecutionResult((Text("5"),), {"result": 5})


def test_a_subclass_is_sent_as_what_was_declared() -> None:
    class More(Tree):
        secret: int = 1

    assert writer(Tree).write(More(value=1)).structured_content == {"value": 1, "children": []}


def test_usual_results_are_written_as_json_at_once_and_deep_ones_are_read_before() -> None:
    usual: list[tuple[Any, Any]] = [(int, 1), (list[int], [1]), (Item, Item(SKU="a")), (str, "a"), (Any, "a")]
    for annotation, value in usual:
        assert isinstance(writer(annotation).write_json(value), bytes)
    deep: Any = []
    for _ in range(250):
        deep = [deep]
    for write in (writer(list[Any]).write, writer(list[Any]).write_json):
        with pytest.raises(ResultError, match="cannot be sent as JSON"):
            write(deep)
