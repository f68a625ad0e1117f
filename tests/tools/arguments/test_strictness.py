"""Arguments that strict validation alone accepts are also accepted by the walk along the schema."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_core import to_json

from bridge.errors import ArgumentsError
from bridge.tools.arguments.reader import ArgumentReader
from bridge.tools.arguments.strictness import StrictModeGaps
from bridge.tools.schema.signature import signature_of


class Span(NamedTuple):
    since: date
    until: date


class Payment(BaseModel):
    day: date
    amount: Decimal
    note: str = ""
    parts: list[Payment] = []


class Order(BaseModel):
    number: str
    payments: list[Payment] = []
    paid_at: datetime | str | None = Field(default=None, alias='paid "at"')
    days: dict[str, date] = {}
    span: Span | None = None
    done: Literal[True] | None = None
    level: Literal[0, 1, 2] = 0


def order(order: Order, day: date | None = None, price: Annotated[Decimal, Field(ge=0)] | int = 0) -> None: ...


class Walking(ArgumentReader):
    """A reader that accepts no text."""

    __slots__ = ()

    def _needs_second_check(self, raw: bytes) -> bool:
        return True


SIGNATURE = signature_of(order)
QUICK = ArgumentReader("order", SIGNATURE.adapter, SIGNATURE.internal_schema)
THOROUGH = Walking("order", SIGNATURE.adapter, SIGNATURE.internal_schema)
TEXTS = st.sampled_from(
    [
        "2026-08-01",
        "2026-08-01T10:00:00Z",
        "12",
        " 12.5\n",
        "1e5",
        "4_2",
        "٣",
        "1\uff12",
        "\u20092",
        "x",
        "é",
        '"12"',
        "",
    ]
)
SCALARS = TEXTS | st.sampled_from([0, 1, 1.0, 2, 0.5, True, False, None])
NAMES = st.sampled_from(["day", "amount", "note", "parts", "x", 'paid "at"', "paid_at"])
PAYMENTS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries({"day": TEXTS, "amount": SCALARS}, optional={"note": TEXTS}),
    lambda inner: st.fixed_dictionaries({"day": TEXTS, "amount": SCALARS, "parts": st.lists(inner, max_size=2)}),
    max_leaves=4,
)
ORDERS = st.fixed_dictionaries(
    {"number": TEXTS},
    optional={
        "payments": st.lists(PAYMENTS, max_size=2),
        'paid "at"': SCALARS,
        "days": st.dictionaries(NAMES, TEXTS, max_size=2),
        "span": st.lists(TEXTS, min_size=2, max_size=2),
        "done": SCALARS,
        "level": SCALARS,
        "unknown": SCALARS,
    },
)


def outcome(reader: ArgumentReader, arguments: dict[str, Any]) -> Any:
    try:
        return reader.read(arguments)
    except ArgumentsError as error:
        return str(error)


@given(st.fixed_dictionaries({"order": ORDERS}, optional={"day": SCALARS, "price": SCALARS, "more": SCALARS}))
def test_what_is_not_looked_at_would_have_been_found_to_be_right(arguments: dict[str, Any]) -> None:
    assert outcome(QUICK, arguments) == outcome(THOROUGH, arguments)


@pytest.mark.parametrize(
    ("arguments", "is_found"),
    [
        ({"number": "12", "payments": [{"day": "2026-08-01", "amount": "62.50", "note": "12 é"}], "level": 2}, False),
        ({"number": "12", "payments": [{"day": "12", "amount": "62.50"}]}, True),
        ({"number": "12", "payments": [{"day": "٣", "amount": "62.50"}]}, True),
        ({"number": "12", "payments": [{"day": "2026-08-01", "amount": "6_2"}]}, True),
        ({"number": "x", 'paid "at"': " 12 "}, True),
        ({"number": "x", "days": {"any": "12"}}, True),
        ({"number": "x", "span": ["12", "12"]}, True),
        ({"number": "x", "done": 1}, True),
        ({"number": "x", "level": True}, True),
    ],
)
def test_doubtful_is_only_what_stands_where_it_can_be_wrong(arguments: dict[str, Any], is_found: bool) -> None:
    schema = {**SIGNATURE.internal_schema}
    for name in ("span", "days"):  # what stands in them can stand anywhere
        if name not in arguments:
            schema = without(schema, name)
    assert StrictModeGaps(schema).may_be_in(to_json({"order": arguments})) is is_found


def without(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """A schema of an order without one property."""
    order = schema["$defs"]["Order"]
    properties = {each: value for each, value in order["properties"].items() if each != name}
    return {**schema, "$defs": {**schema["$defs"], "Order": {**order, "properties": properties}}}


def test_a_schema_of_which_pydantic_is_strict_is_never_doubted() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["x", 5]}}}
    assert not StrictModeGaps(schema).may_be_in(to_json({"a": "12 é", "b": 1, "c": True}))


def test_a_definition_that_is_missing_or_refers_to_itself_is_no_matter() -> None:
    leaf = {"$ref": "#/$defs/Leaf"}
    schema = {"properties": {"a": leaf, "b": {"$ref": "#/$defs/None"}}, "$defs": {"Leaf": {"anyOf": [leaf]}}}
    assert not StrictModeGaps(schema).may_be_in(b'{"a":"12"}')


def test_a_text_of_many_quotes_is_searched_once() -> None:
    schema = signature_of(spans).internal_schema
    assert StrictModeGaps(schema).may_be_in(to_json({"days": ['"' * 1_000_000, "é"]}))
    assert StrictModeGaps(schema).may_be_in(to_json({"days": ["x", '"é']}))


def spans(days: list[date]) -> None: ...
