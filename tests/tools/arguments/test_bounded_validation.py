"""Validation that stops at the first bad item of each collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from bridge.tools.arguments import bounded_validation
from bridge.tools.arguments.bounded_validation import bounded_validate_json
from bridge.tools.schema.signature import signature_of
from tests.tools.arguments.test_reader_any_input import EVERYTHING_NAMES, JSON, everything

if TYPE_CHECKING:
    from collections.abc import Callable


class Item(BaseModel):
    a: int
    b: int


class Order(BaseModel):
    items: list[Item]


class Tree(BaseModel):
    children: list[Tree] = []
    value: int


@dataclass
class Record:
    items: list[Item]


class Pair(NamedTuple):
    left: list[Item]
    right: int


@pytest.mark.parametrize("yields", [False, True])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (list[Item], "[{},{},{}]"),
        (set[int], '["","",""]'),
        (frozenset[int], '["","",""]'),
        (tuple[Item, ...], "[{},{},{}]"),
        (dict[str, Item], '{"x":{},"y":{},"z":{}}'),
        (Order, '{"items":[{},{},{}]}'),
        (list[Order], '[{"items":[{},{},{}]},{"items":[{},{}]}]'),
        (Record, '{"items":[{},{},{}]}'),
        (dict[str, list[Item]], '{"x":[{},{}],"y":[{},{}]}'),
    ],
    ids=str,
)
def test_only_the_first_bad_item_of_a_collection_is_an_error(kind: Any, text: str, yields: bool) -> None:
    with pytest.raises(ValidationError) as raised:
        bounded_validate_json(TypeAdapter(kind), yields=yields)(text, strict=True)
    assert raised.value.error_count() <= 2


def test_a_recursive_model_is_bounded_too() -> None:
    with pytest.raises(ValidationError) as raised:
        bounded_validate_json(TypeAdapter(Tree))('{"value":1,"children":[{"children":[{},{}]},{},{}]}', strict=True)
    assert [error["loc"] for error in raised.value.errors()] == [
        ("children", 0, "children", 0, "value"),
        ("children", 0, "value"),
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, Order(items=[Item(a=1, b=2)])),
        (Tree, Tree(value=1, children=[Tree(value=2)])),
        (Record, Record([Item(a=1, b=2)])),
        (Pair, Pair([Item(a=1, b=2)], 1)),
        (dict[int, tuple[int, str]], {1: (2, "x")}),
    ],
    ids=str,
)
@pytest.mark.parametrize("yields", [False, True])
def test_what_is_valid_is_the_same_value(kind: Any, value: object, yields: bool) -> None:
    assert bounded_validate_json(TypeAdapter(kind), yields=yields)(to_json(value), strict=True) == value


ADAPTER = signature_of(everything).adapter
VALIDATORS = [bounded_validate_json(ADAPTER), bounded_validate_json(ADAPTER, yields=True)]


def outcome_of(validate: Callable[..., Any], raw: bytes) -> object:
    try:
        return repr(validate(raw, strict=True))
    except ValidationError:
        return ValidationError


@given(st.dictionaries(st.sampled_from(EVERYTHING_NAMES), JSON))
def test_the_outcome_is_that_of_the_plain_validator(arguments: dict[str, Any]) -> None:
    try:
        raw = to_json(arguments)
    except ValueError:
        return
    plain = outcome_of(ADAPTER.validator.validate_json, raw)
    assert [outcome_of(validate, raw) for validate in VALIDATORS] == [plain, plain]


def test_a_python_function_is_called_after_every_item_so_that_other_threads_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []

    def note(value: object) -> object:
        seen.append(value)
        return value

    monkeypatch.setattr(bounded_validation, "_unchanged", note)
    bounded_validate_json(TypeAdapter(Order), yields=True)('{"items":[{"a":1,"b":2},{"a":3,"b":4}]}', strict=True)
    assert seen == [Item(a=1, b=2), Item(a=3, b=4)]
