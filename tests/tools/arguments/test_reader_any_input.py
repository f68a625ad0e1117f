from __future__ import annotations

import json
from datetime import date, time  # noqa: TC003 - the signature is read at run time
from decimal import Decimal
from enum import Enum
from inspect import signature
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bridge.errors import ArgumentsError
from bridge.tools.arguments.reader import ArgumentReader, parse_arguments
from bridge.tools.schema.signature import signature_of


class Item(BaseModel):
    sku: str
    price: float = 0.0


class Order(BaseModel):
    items: list[Item]


class Node(BaseModel):
    value: int
    next: Node | None = None


class Color(Enum):
    RED = "red"


FIELD = st.sampled_from(["items", "sku", "price", "value", "next", "kind", "lives"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["5", "true", "[1]", '{"sku": 1}', "RED", "2026-08-01", "1e999", "NaN", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | FIELD, inner, max_size=4),
    max_leaves=12,
)


def everything(
    text: str = "",
    integer: int = 0,
    real: float = 0.0,
    exact: Decimal = Decimal(0),
    flag: bool = False,
    color: Color | None = None,
    level: Literal[0, 1, "x"] = 0,
    many: list[int] | dict[str, Node] | None = None,
    order: Order | str | None = None,
    node: Node | list[Node] | None = None,
    when: date | time | None = None,
    anything: Any = None,
) -> None: ...


SIGNATURE = signature_of(everything)
EVERYTHING = ArgumentReader("everything", SIGNATURE.adapter, SIGNATURE.internal_schema)
EVERYTHING_NAMES = tuple(signature(everything).parameters)


@given(st.text() | st.text(alphabet='{}[]",:\\`\n 1aeE+-.').map(lambda text: "{" + text))
def test_no_text_raises_anything_but_an_arguments_error(text: str) -> None:
    try:
        assert isinstance(parse_arguments("any", text), dict)
    except ArgumentsError as error:
        assert str(error).encode()  # noqa: PT017 - what it says must be sendable


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.data())
def test_no_mutilated_json_raises_anything_but_an_arguments_error(data: dict[str, Any], draw: st.DataObject) -> None:
    text = json.dumps(data)
    start = draw.draw(st.integers(0, len(text)))
    end = draw.draw(st.integers(start, min(len(text), start + 4)))
    text = text[:start] + draw.draw(st.text(max_size=3)) + text[end:]
    try:
        assert isinstance(parse_arguments("any", text), dict)
    except ArgumentsError as error:
        assert str(error).encode()  # noqa: PT017 - what it says must be sendable


@given(
    st.dictionaries(st.text(min_size=1), st.integers() | st.text() | st.lists(st.booleans(), min_size=1), min_size=1)
)
def test_no_part_of_an_object_is_taken_for_the_whole(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    for end in range(1, len(text)):
        with pytest.raises(ArgumentsError):
            parse_arguments("any", text[:end])


@given(st.dictionaries(st.sampled_from(EVERYTHING_NAMES) | st.text(max_size=5), JSON))
def test_no_mapping_raises_anything_but_an_arguments_error(arguments: dict[str, Any]) -> None:
    before = repr(arguments)
    try:
        assert EVERYTHING.read(arguments).keys() <= set(EVERYTHING_NAMES)
    except ArgumentsError as error:
        assert error.problems  # noqa: PT017 - what it says must be sendable
        assert str(error).encode()  # noqa: PT017 - what it says must be sendable
    assert repr(arguments) == before
