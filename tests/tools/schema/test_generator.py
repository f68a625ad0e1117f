"""JSON Schema from types."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from bridge.errors import DefinitionError
from bridge.tools.arguments.coercion import MEMBERS
from bridge.tools.schema.generator import internal_schema, output_schema, schema_of

T = TypeVar("T")


class Colour(Enum):
    """Its looks."""

    RED = "red"
    """Warm."""
    BLUE = "blue"


class Rank(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    NOTHING = None
    YES = True
    HALF = 0.5
    TEXT = "text"
    PAIR = (1, 2)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(default=9, ge=0, description="How many are left.")


class Dog(BaseModel):
    """Man's best friend."""

    kind: Literal["dog"]
    name: Annotated[str, Field(min_length=1, pattern="^[A-Z]")]
    """Name that it listens to."""


class Puppy(Dog):
    weeks: int = 0
    """Age in years."""


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Titled(BaseModel):
    model_config = ConfigDict(title="A person")
    name: str = Field(title="Full name", alias="fullName")
    """As in the passport."""


class Box(BaseModel, Generic[T]):
    content: T


@dataclass
class Point:
    """Somewhere."""

    x: float
    """To the right."""
    y: float = 0
    tags: list[str] = field(default_factory=list)


@dataclass
class Undocumented:
    a: int


class Item(TypedDict, total=False):
    """Something to buy."""

    count: int
    """Number of items."""


class Pair(NamedTuple):
    left: int
    right: str = ""


COLOUR = {"description": "Its looks.\n- red: Warm.", "enum": ["red", "blue"], "type": "string"}
POINT = {
    "description": "Somewhere.",
    "type": "object",
    "properties": {
        "x": {"type": "number", "description": "To the right."},
        "y": {"type": "number", "default": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
}
CAT = {
    "type": "object",
    "properties": {
        "kind": {"const": "cat", "type": "string"},
        "lives": {"default": 9, "description": "How many are left.", "minimum": 0, "type": "integer"},
    },
    "required": ["kind"],
}
DOG = {
    "description": "Man's best friend.",
    "type": "object",
    "properties": {
        "kind": {"const": "dog", "type": "string"},
        "name": {"minLength": 1, "pattern": "^[A-Z]", "type": "string", "description": "Name that it listens to."},
    },
    "required": ["kind", "name"],
}
PUPPY = {
    "type": "object",
    "properties": {**DOG["properties"], "weeks": {"default": 0, "type": "integer", "description": "Age in years."}},  # type: ignore[dict-item]  # a mapping
    "required": ["kind", "name"],
}
NODE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []},
    },
    "required": ["value"],
}

TYPES: list[tuple[Any, dict[str, Any]]] = [
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (str, {"type": "string"}),
    (None, {"type": "null"}),
    (Any, {}),
    (Colour, COLOUR),
    (Rank, {"enum": [1, 2], "type": "integer"}),
    (Mixed, {"enum": [None, True, 0.5, "text", [1, 2]]}),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (Literal["a"], {"const": "a", "type": "string"}),
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (
        tuple[int, str],
        {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
        },
    ),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Mapping[str, list[int]], schema_of(dict[str, list[int]])),
    (
        dict[Rank, int] | Rank,
        {
            "$defs": {"Rank": {"enum": [1, 2], "type": "integer"}},
            "anyOf": [
                {
                    "type": "object",
                    "additionalProperties": {"type": "integer"},
                    "propertyNames": {"enum": ["1", "2"]},
                },
                {"$ref": "#/$defs/Rank"},
            ],
        },
    ),
    (
        dict[Colour, int],
        {
            "$defs": {"Colour": COLOUR},
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "propertyNames": {"$ref": "#/$defs/Colour"},
        },
    ),
    (Point, POINT),
    (Undocumented, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
    (
        Item,
        {
            "description": "Something to buy.",
            "type": "object",
            "properties": {"count": {"type": "integer", "description": "Number of items."}},
        },
    ),
    (
        Pair,
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "prefixItems": [{"type": "integer"}, {"type": "string", "default": ""}],
        },
    ),
    (Dog, DOG),
    (Puppy, PUPPY),
    (Node, {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"}),
    (Box[int], {"type": "object", "properties": {"content": {"type": "integer"}}, "required": ["content"]}),
    (
        Titled,
        {
            "title": "A person",
            "type": "object",
            "properties": {"fullName": {"title": "Full name", "type": "string", "description": "As in the passport."}},
            "required": ["fullName"],
        },
    ),
    (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {
            "$defs": {"Cat": CAT, "Dog": DOG},
            "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        },
    ),
    (dt.date, {"type": "string", "format": "date"}),
    (dt.datetime, {"type": "string", "format": "date-time"}),
    (dt.time, {"type": "string", "format": "time"}),
    (dt.timedelta, {"type": "string", "format": "duration"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (Path, {"type": "string", "format": "path"}),
    (
        Annotated[int, Field(gt=1, le=5, multiple_of=2)],
        {"type": "integer", "exclusiveMinimum": 1, "maximum": 5, "multipleOf": 2},
    ),
    (
        Annotated[list[int], Field(min_length=1, max_length=3)],
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    ),
]


@pytest.mark.parametrize(("kind", "expected"), TYPES, ids=lambda value: getattr(value, "__name__", None))
def test_a_type_has_its_schema(kind: Any, expected: dict[str, Any]) -> None:
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    assert schema == expected


def test_a_decimal_is_a_number_or_its_text() -> None:
    kinds = [alternative["type"] for alternative in schema_of(Decimal)["anyOf"]]
    assert kinds == ["number", "string"]


def test_the_internal_schema_knows_the_members_of_enums_wherever_they_stand() -> None:
    schema = internal_schema(TypeAdapter(dict[str, list[Colour]]))
    assert schema["$defs"]["Colour"] == {**COLOUR, MEMBERS: {"RED": "red", "BLUE": "blue"}}
    assert internal_schema(TypeAdapter(Mixed))[MEMBERS]["PAIR"] == [1, 2]


def test_an_alias_of_an_enum_member_is_a_name_as_well() -> None:
    class Size(Enum):
        SMALL = "s"
        TINY = "s"  # noqa: PIE796 - an alias

    schema = internal_schema(TypeAdapter(Size))
    assert schema == {"enum": ["s"], "type": "string", MEMBERS: {"SMALL": "s", "TINY": "s"}}
    assert MEMBERS not in schema_of(Size)


def test_a_field_that_is_called_title_is_kept() -> None:
    class Book(BaseModel):
        title: str

    assert schema_of(Book)["properties"] == {"title": {"type": "string"}}


def test_a_default_that_is_no_json_is_left_out() -> None:
    class Holder(BaseModel):
        path: Any = object()

    assert schema_of(Holder)["properties"] == {"path": {}}


def test_a_default_that_is_not_finite_is_left_out() -> None:
    class Holder(BaseModel):
        limit: float = float("inf")

    assert schema_of(Holder)["properties"] == {"limit": {"type": "number"}}


def test_an_explicit_description_comes_before_the_docstring() -> None:
    class Holder(BaseModel):
        a: int = Field(description="Explicit.")
        """Docstring."""

    assert schema_of(Holder)["properties"]["a"]["description"] == "Explicit."


def test_the_output_schema_is_that_of_what_is_written() -> None:
    class Holder(BaseModel):
        amount: Decimal

    assert output_schema(TypeAdapter(Holder))["properties"]["amount"]["type"] == "string"


class Foreign:
    pass


@pytest.mark.parametrize("kind", [Foreign, list[Foreign], "Unknown"])
def test_a_type_without_a_schema_is_refused(kind: Any) -> None:
    with pytest.raises(DefinitionError, match="has no JSON Schema"):
        schema_of(kind)


def test_the_remedy_that_pydantic_knows_is_told() -> None:
    import typing  # noqa: PLC0415 - the wrong module's TypedDict

    class Wrong(typing.TypedDict):
        a: int

    if sys.version_info >= (3, 12):  # where it is complete
        assert schema_of(Wrong)["required"] == ["a"]
        return
    with pytest.raises(DefinitionError, match=r"use typing_extensions\.TypedDict"):
        schema_of(Wrong)
