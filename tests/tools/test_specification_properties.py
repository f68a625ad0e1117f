# Only the signatures of these functions count:
# mypy: disable-error-code="empty-body"
"""Functions of every shape → specification → wire → specification: the identity, and schemas that others can read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional, Union
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp_types import Tool as WireTool
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from bridge import Content, Image, InvocationContext, P, ToolAnnotations, tool, tools_from
from bridge.tools import InvocationParameters, ToolMemoryId
from bridge.wire.tools import tool_from_wire, tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge import ToolSpecification


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Mixed(Enum):
    NOTHING = None
    TEXT = "text"
    NUMBER = 1.5


class Address(BaseModel):
    """Address of somebody."""

    street: str = Field(description="With the house's number.", min_length=1)
    city: str = "Berlin"


class Person(Address):
    name: str
    friends: list[Person] = []


@dataclass
class Box:
    """A box."""

    width: float
    tags: set[str] = field(default_factory=set)
    inside: Box | None = None


class Movie(TypedDict, total=False):
    title: str
    year: int


class Point(NamedTuple):
    x: int
    y: int = 0


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


def nothing() -> None: ...


def primitives(a: str, b: int, c: float, d: bool, e: None, f: Any) -> str: ...


def without_annotations(a, b=1): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - the point


def defaults(a: int = 1, b: str = "x", c: float | None = None, d: list[int] = [1, 2]) -> int: ...  # noqa: B006


def described(
    a: Annotated[int, P("One.", name="first", default=3)],
    b: Annotated[str, "Bare."],
    c: Annotated[str, Field(description="A field.", pattern="^x", max_length=9)] = "x",
) -> bool: ...


def constrained(
    a: Annotated[int, Field(ge=1, lt=10)], b: Annotated[list[int], Field(max_length=3)]
) -> Annotated[float, Field(gt=0)]: ...


def enums(a: Color, b: Size, c: Mixed, d: Literal["x", 1] = "x", e: Color = Color.RED) -> Color: ...


def containers(
    a: list[int], b: set[str], c: tuple[int, str], d: tuple[float, ...], e: dict[str, list[Size]], f: dict[str, Any]
) -> list[dict[str, int]]: ...


def optional(a: Optional[int], b: Union[int, str, None] = None, c: "str | None" = "x") -> int | None: ...  # noqa: UP007, UP037, UP045


def models(a: Person, b: Box, c: Movie, d: Point) -> Person: ...


def unions(
    pet: Annotated[Cat | Dog, Field(discriminator="kind")], other: Cat | list[Dog] | None = None
) -> Cat | Dog: ...


def times(a: date, b: datetime, c: timedelta, d: UUID, e: Decimal, f: bytes) -> datetime: ...


def injected(
    a: int,
    context: InvocationContext,
    memory: Annotated[str, ToolMemoryId],
    parameters: InvocationParameters,
) -> Movie: ...


def in_a_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str: ...


def gives_content() -> list[Content] | Image: ...


async def asynchronous(größe: int, *, only_by_name: str = "ü") -> dict[str, float]: ...  # noqa: PLC2401 - names may be


@tool(
    "All that an author can say. ✓",
    name="said.by-author_1",
    title="Said",
    metadata={"team": {"name": "tools", "size": 3}},
    annotations=ToolAnnotations(title="Hint", read_only=True, destructive=False, idempotent=True, open_world=False),
    strict=True,
    icons=[{"src": "data:,", "sizes": ["48x48"]}],
)
def said(a: int) -> int: ...


SIGNATURES: list[Callable[..., Any]] = [
    nothing,
    primitives,
    without_annotations,
    defaults,
    described,
    constrained,
    enums,
    containers,
    optional,
    models,
    unions,
    times,
    injected,
    in_a_header,
    gives_content,
    asynchronous,
    said,
]


def specification_of(function: Callable[..., Any]) -> ToolSpecification:
    (made,) = tools_from(function)
    return made.specification


def assert_unchanged_by_the_wire(specification: ToolSpecification) -> None:
    wire = json.loads(json.dumps(tool_to_wire(specification), allow_nan=False))
    assert tool_from_wire(wire) == specification
    parsed = WireTool.model_validate(wire, by_name=False)
    assert tool_from_wire(parsed.model_dump(mode="json", by_alias=True, exclude_none=True)) == specification


def assert_readable_by_others(specification: ToolSpecification) -> None:
    Draft202012Validator.check_schema(specification.parameters)
    assert specification.parameters["type"] == "object"
    if specification.output_schema is not None:
        Draft202012Validator.check_schema(specification.output_schema)


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
def test_a_functions_specification_survives_the_wire(function: Callable[..., Any]) -> None:
    specification = specification_of(function)
    assert_unchanged_by_the_wire(specification)
    assert_readable_by_others(specification)


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
def test_a_function_has_the_same_specification_each_time(function: Callable[..., Any]) -> None:
    assert specification_of(function) == specification_of(function)


types: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([str, int, float, bool, Any, Color, Size, Person, Box, Movie, Point, date, UUID, Decimal])
    | st.sampled_from([Annotated[int, Field(ge=0)], Annotated[str, P("Said."), Field(max_length=5)]])
    | st.lists(st.text(max_size=3) | st.integers(), min_size=1, max_size=3).map(lambda values: Literal[tuple(values)]),
    lambda inner: st.one_of(
        inner.map(lambda item: GenericAlias(list, (item,))),
        inner.map(lambda item: GenericAlias(dict, (str, item))),
        inner.map(lambda item: item | None),
        st.tuples(inner, inner).map(lambda pair: GenericAlias(tuple, pair)),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=4,
)


@given(st.lists(types, max_size=4), types)
def test_the_specification_of_any_function_survives_the_wire(parameters: list[Any], result: Any) -> None:
    function = with_parameters(parameters)
    function.__annotations__ = {f"p{n}": kind for n, kind in enumerate(parameters)} | {"return": result}
    specification = specification_of(function)
    assert list(specification.parameters["properties"]) == [f"p{n}" for n in range(len(parameters))]
    assert_unchanged_by_the_wire(specification)
    assert_readable_by_others(specification)


def with_parameters(parameters: list[Any]) -> Callable[..., Any]:
    """Return a function with that many parameters."""

    def p0() -> None: ...
    def p1(p0: Any) -> None: ...
    def p2(p0: Any, p1: Any) -> None: ...
    def p3(p0: Any, p1: Any, p2: Any) -> None: ...
    def p4(p0: Any, p1: Any, p2: Any, p3: Any) -> None: ...

    return (p0, p1, p2, p3, p4)[len(parameters)]
