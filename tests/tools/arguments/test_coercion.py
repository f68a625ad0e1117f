from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from bridge.errors import ArgumentsError
from bridge.tools.arguments.coercion import Coercion
from bridge.tools.arguments.reader import ArgumentReader
from bridge.tools.schema.generator import schema_of
from bridge.tools.schema.signature import signature_of


class Color(enum.Enum):
    RED = "red"
    DARK_BLUE = "#00008b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    NOTHING = None
    YES = True
    HALF = 0.5
    PAIR = ("a", 1)


class Switch(enum.Enum):
    on = 1
    ON = 2


class Single(enum.Enum):
    ONLY = "only"


class Item(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    items: list[Item]
    color: Color | None = None


class Point(TypedDict):
    x: float
    y: float


class Span(NamedTuple):
    start: int
    end: int


@dataclasses.dataclass
class Flag:
    on: bool


class Batch(BaseModel, extra="forbid"):
    ids: list[int]


class Note(BaseModel, extra="forbid"):
    ids: str
    pages: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    age: float


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
IDENTITY = "12345678-1234-5678-1234-567812345678"
HUGE = 10**30

TAKEN: list[tuple[Any, Any, Any]] = [
    # str: strings; numbers and booleans become their JSON text
    (str, "5", "5"),
    (str, "", ""),
    (str, "NaN", "NaN"),
    (str, "\x00", "\x00"),
    (str, 5, "5"),
    (str, 5.0, "5.0"),
    (str, -0.25, "-0.25"),
    (str, HUGE, str(HUGE)),
    (str, True, "true"),
    (str, False, "false"),
    (Annotated[str, Field(pattern="^[0-9]+$")], 5, "5"),
    # int, of any size
    (int, 5, 5),
    (int, -5, -5),
    (int, HUGE, HUGE),
    (int, 10**400, 10**400),
    (int, 1.0, 1),
    (int, 1e22, 10**22),
    (int, "5", 5),
    (int, " +5 ", 5),
    (int, "\t-007\n", -7),
    (int, str(HUGE), HUGE),
    # float and Decimal: numbers, numeric strings
    (float, 5, 5.0),
    (float, 1.5, 1.5),
    (float, "1.5", 1.5),
    (float, " -1e3 ", -1000.0),
    (float, ".5", 0.5),
    (float, "5", 5.0),
    (Decimal, 5, Decimal(5)),
    (Decimal, 10**400, Decimal(10**400)),
    (Decimal, 1.5, Decimal("1.5")),
    (Decimal, "1.50", Decimal("1.50")),
    (Decimal, "0.1234567890123456789012", Decimal("0.1234567890123456789012")),
    # bool
    (bool, True, True),
    (bool, False, False),
    (bool, "true", True),
    (bool, "false", False),
    # enum: the value; a member's name, whatever its case
    (Color, "red", Color.RED),
    (Color, "#00008b", Color.DARK_BLUE),
    (Color, "RED", Color.RED),
    (Color, "Dark_Blue", Color.DARK_BLUE),
    (Level, 1, Level.LOW),
    (Level, 1.0, Level.LOW),
    (Level, "high", Level.HIGH),
    (Level, "1", Level.LOW),
    (Literal[1, 2], "2", 2),
    (Literal[1, "2"], "2", "2"),
    (Literal[1, "a"], " 1 ", 1),
    (Mixed, "0.5", Mixed.HALF),
    (str | Literal[1], "1", "1"),
    (Switch, "1", Switch.on),
    (Mixed, None, Mixed.NOTHING),
    (Mixed, True, Mixed.YES),
    (Mixed, 0.5, Mixed.HALF),
    (Mixed, "half", Mixed.HALF),
    (Mixed, "yes", Mixed.YES),
    (Switch, "on", Switch.on),
    (Switch, "ON", Switch.ON),
    (Single, "only", Single.ONLY),
    (Single, "Only", Single.ONLY),
    # Literal: the value; strings exactly
    (Literal["a", "b"], "a", "a"),
    (Literal[1, 2], 1, 1),
    (Literal[1, 2], 1.0, 1),
    (Literal[True], True, True),
    # list, set, dict, model: the JSON shape; JSON text of it
    (list[int], [1, 2], [1, 2]),
    (list[int], "[1, 2]", [1, 2]),
    (list[int], ["1", 2.0], [1, 2]),
    (list[int], '["1", 2.0]', [1, 2]),
    (set[int], [1, 1, "2"], {1, 2}),
    (frozenset[str], '["a"]', frozenset({"a"})),
    (tuple[int, str], ["1", 2], (1, "2")),
    (tuple[int, ...], "[1, 2]", (1, 2)),
    (dict[str, int], {"a": "1"}, {"a": 1}),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (dict[int, str], {"1": 2}, {1: "2"}),
    (dict[str, Any], '{"a": [1]}', {"a": [1]}),
    (Item, {"sku": 7, "count": "2"}, Item(sku="7", count=2)),
    (Item, '{"sku": "a"}', Item(sku="a")),
    (Item, {"sku": "a", "unknown": 1}, Item(sku="a")),
    (Point, {"x": "1", "y": 2}, {"x": 1.0, "y": 2.0}),
    (Span, ["1", 2.0], Span(1, 2)),
    (Flag, {"on": "true"}, Flag(on=True)),
    (Order, {"items": '[{"sku": 1}]', "color": "red"}, Order(items=[Item(sku="1")], color=Color.RED)),
    (Order, '{"items": [], "color": "DARK_blue"}', Order(items=[], color=Color.DARK_BLUE)),
    (Tree, {"value": "1", "children": [{"value": 2.0}]}, Tree(value=1, children=[Tree(value=2)])),
    # dates, UUIDs and the like: ISO text
    (date, "2026-08-01", date(2026, 8, 1)),
    (datetime, "2026-08-01T10:00:00Z", datetime(2026, 8, 1, 10, tzinfo=UTC)),
    (time, "10:00", time(10)),
    (timedelta, "P1DT2H", timedelta(days=1, hours=2)),
    (uuid.UUID, IDENTITY, uuid.UUID(IDENTITY)),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (bytes, "aGk=", b"hi"),
    # alternatives: as it is before anything else, then the nearest
    (int | None, "5", 5),
    (int | None, None, None),
    (int | str, 5, 5),
    (int | str, "5", "5"),
    (int | str, 1.0, 1),
    (str | int, 1.0, 1),
    (int | str, 1.5, "1.5"),
    (str | None, 5, "5"),
    (int | float, "1.5", 1.5),
    (int | float, "5", 5),
    (int | bool, "true", True),
    (str | list[int], "[1]", "[1]"),
    (str | Item, '{"sku": "a"}', '{"sku": "a"}'),
    (list[int] | None, "[1]", [1]),
    (list[str], ["[1]", "{}"], ["[1]", "{}"]),
    (list[int] | dict[str, int], '{"a": "1"}', {"a": 1}),
    (Literal["all"] | list[int], "[1]", [1]),
    (Color | int, "RED", Color.RED),
    (date | int, "1577836800", 1577836800),
    (list[int] | list[str], [1, "a"], ["1", "a"]),
    (Cat | Dog, {"kind": "dog", "age": "3"}, Dog(kind="dog", age=3.0)),
    (Pet, {"kind": "dog", "age": "3"}, Dog(kind="dog", age=3.0)),
    (Batch | Note, {"ids": "[1]", "pages": "2"}, Note(ids="[1]", pages=2)),
    (Pet, '{"kind": "cat", "lives": 9.0}', Cat(kind="cat", lives=9)),
    (list[Pet], [{"kind": "cat", "lives": "9"}], [Cat(kind="cat", lives=9)]),
    # anything
    (Any, "[1]", "[1]"),
    (Any, None, None),
    (Any, {"a": [1, "2"]}, {"a": [1, "2"]}),
]

REFUSED: list[tuple[Any, list[Any]]] = [
    (str, [[], ["a"], {}, None]),
    (int, [1.5, "4_2", True, False, "1.0", "", "5x", "0x5", "٣", "1" * 5000, [], {}, None]),
    (float, [True, "x", "", "1_0.5", "NaN", "Infinity", "1e999", "0x1p3", 10**400, [], None]),
    (Decimal, [True, "x", "1_000", "NaN", "Infinity", [], None]),
    (bool, [0, 1, 1.0, "True", "FALSE", "yes", "1", "", " true", None]),
    (Color, ["green", "", " red", "RED ", 1, None, []]),
    (Level, [True, 3, "3", "1.5", "", "True", 1.5, "middle"]),
    (Mixed, [1, "None", 0]),
    (Switch, ["On"]),
    (Literal["a", "b"], ["A", " a", "c", 1, None]),
    (Literal[0, 1], [True, False, "2", "", "true", 2]),
    (Literal[True], [1, 1.0, "true"]),
    (list[int], ["x", "", "1", "{}", "[1", '"[1]"', 1, {}, ["a"], '["a"]', [1.5]]),
    (dict[str, int], ["x", "[]", '{"a": 1', [], {"a": "x"}, {"a": True}]),
    (Item, ["x", "[]", {}, {"sku": []}, {"sku": "a", "count": "x"}, None]),
    (date, ["1577836800", " 1577836800", "1e9", 1577836800, "2026-13-01", "x", True]),
    (datetime, ["1577836800", "-5.5", 1577836800, 5.0, "x"]),
    (time, [36000, "36000", "x"]),
    (timedelta, [5, "5", "x"]),
    (uuid.UUID, [5, "x", True]),
    (bytes, [5, "*", []]),
    (pathlib.Path, [5]),
    (str | None, [[]]),
    (int | None, ["x"]),
    (date | None, ["1577836800"]),
    (None | date, ["1577836800"]),
    (list[int] | str, [{}]),
    (Pet, [{"kind": "bird"}]),
    (Pet, [{"lives": 9}]),
]


def reader_for(kind: Any) -> ArgumentReader:
    def function(value: Any) -> None:
        """Take one value."""

    function.__annotations__ = {"value": kind}
    signature = signature_of(function)
    return ArgumentReader("function", signature.adapter, signature.internal_schema)


def _named(value: Any) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize(("kind", "given", "taken"), TAKEN, ids=_named)
def test_what_says_the_same_is_taken(kind: Any, given: Any, taken: Any) -> None:
    read = reader_for(kind).read({"value": given})
    assert read == {"value": taken}
    assert type(read["value"]) is type(taken)


@pytest.mark.parametrize(("kind", "given"), [(kind, given) for kind, each in REFUSED for given in each], ids=_named)
def test_what_says_something_else_is_refused(kind: Any, given: Any) -> None:
    with pytest.raises(ArgumentsError) as caught:
        reader_for(kind).read({"value": given})
    assert caught.value.problems
    assert all(problem.path.startswith("value") for problem in caught.value.problems)


@pytest.mark.parametrize(("kind", "given", "taken"), TAKEN, ids=_named)
def test_a_value_is_coerced_at_any_depth(kind: Any, given: Any, taken: Any) -> None:
    read = reader_for(dict[str, list[kind]]).read({"value": {"deep": [given, given]}})
    assert read == {"value": {"deep": [taken, taken]}}


@pytest.mark.parametrize(("kind", "given", "taken"), TAKEN, ids=_named)
def test_what_came_is_never_changed(kind: Any, given: Any, taken: Any) -> None:
    arguments = {"value": given}
    before = json.dumps(arguments)
    reader_for(kind).read(arguments)
    assert json.dumps(arguments) == before


@pytest.mark.parametrize(
    ("kind", "given", "choices"),
    [
        (Color, "green", "should be 'red' or '#00008b'"),
        (Level, 3, "should be 1 or 2"),
        (Level, True, "should be 1 or 2"),
        (Literal["a", "b"], "c", "should be 'a' or 'b'"),
        (Literal[0, 1], True, "should be 0 or 1"),
    ],
)
def test_a_refused_choice_names_the_choices(kind: Any, given: Any, choices: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        reader_for(kind).read({"value": given})
    assert [problem.expected for problem in caught.value.problems] == [choices]


class Left(BaseModel):
    next: Left | Right | None = None
    left: int = 0


class Right(BaseModel):
    next: Left | Right | None = None
    right: int = 0


def test_alternatives_within_alternatives_are_each_tried_once() -> None:
    schema = schema_of(Left)
    tree: dict[str, Any] = {"right": "1"}
    for _ in range(60):
        tree = {"next": tree, "left": "1"}
    fit = Coercion(schema).fit(tree, schema)
    assert fit.value["next"]["next"]["left"] == 1
    assert not fit.refusals
