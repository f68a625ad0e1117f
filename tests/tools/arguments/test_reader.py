from __future__ import annotations

import json
import math
from collections import UserDict
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from bridge.errors import ArgumentProblem, ArgumentsError
from bridge.tools.arguments.reader import ArgumentReader
from bridge.tools.schema.parameters import P
from bridge.tools.schema.signature import signature_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    sku: str
    price: float = 0.0


class Order(BaseModel):
    items: list[Item]


class Node(BaseModel):
    value: int
    next: Node | None = None


class Broken(BaseModel):
    value: Annotated[int, BeforeValidator(lambda value: {}[value])]


class Color(Enum):
    RED = "red"


def two_integers(a: int, b: int) -> int:
    return a + b


def order(order: Order, note: str = "none") -> None: ...


def anything(value: Any) -> None: ...


def number(value: float) -> None: ...


def reader_of(function: Callable[..., Any]) -> ArgumentReader:
    read = signature_of(function)
    return ArgumentReader(function.__name__, read.adapter, read.internal_schema)


def problems_of(function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[ArgumentProblem]:
    with pytest.raises(ArgumentsError) as caught:
        reader_of(function).read(arguments)
    assert caught.value.tool == function.__name__
    return list(caught.value.problems)


def test_arguments_come_by_published_name_and_leave_by_the_name_in_python() -> None:
    def search(query: Annotated[str, P(name="q")], limit: Annotated[int, P(name="max-results", default=5)]) -> None: ...

    read = reader_of(search).read
    assert read({"q": "x"}) == {"query": "x", "limit": 5}
    assert read({"q": 7, "max-results": "2"}) == {"query": "7", "limit": 2}


def test_an_unknown_argument_is_refused_with_the_nearest_parameter() -> None:
    def remove(path: str, dryRun: bool = False, depth: int = 0) -> None: ...  # noqa: N803 - as callers write it

    assert problems_of(remove, {"path": "/", "dry_run": True}) == [
        ArgumentProblem("dry_run", "is not a parameter (did you mean 'dryRun'?)", "true")
    ]
    assert problems_of(remove, {"path": "/", "paths": 1, "zzz": None}) == [
        ArgumentProblem("paths", "is not a parameter (did you mean 'path'?)", "1"),
        ArgumentProblem("zzz", "is not a parameter (the parameters are path, dryRun, depth)", "null"),
    ]


def test_a_tool_without_parameters_refuses_any_argument() -> None:
    def ping() -> None: ...

    assert problems_of(ping, {"a": 1}) == [ArgumentProblem("a", "is not a parameter (there are none)", "1")]


def test_unknown_arguments_are_reported_together_with_all_other_problems() -> None:
    assert problems_of(two_integers, {"c": 1, "b": "x"}) == [
        ArgumentProblem("a", "is required"),
        ArgumentProblem("b", "should be a valid integer", '"x"'),
        ArgumentProblem("c", "is not a parameter (the parameters are a, b)", "1"),
    ]


def test_unknown_arguments_are_left_out_where_the_tool_says_so() -> None:
    read = signature_of(two_integers, extra_arguments="ignore")
    reader = ArgumentReader("two_integers", read.adapter, read.internal_schema)
    assert "additionalProperties" not in read.schema
    assert reader.read({"a": 1, "b": 2, "c": [3]}) == {"a": 1, "b": 2}
    assert reader.read({"a": 1, "b": "2", "c": [3]}) == {"a": 1, "b": 2}


def test_unknown_fields_of_a_model_are_the_models_own_affair() -> None:
    def take(node: Node) -> None: ...

    assert reader_of(take).read({"node": {"value": 1, "other": 2}})["node"] == Node(value=1)


def test_a_functions_own_default_is_left_to_it() -> None:
    def greet(name: str = "you", times: int | None = 3) -> None: ...

    read = reader_of(greet).read
    assert read({}) == {}
    assert read({"name": None, "times": None}) == {"times": None}


def test_a_default_stands_in_for_null_and_never_for_a_bad_value() -> None:
    def count(step: Annotated[int, P(default=2)]) -> None: ...

    assert reader_of(count).read({"step": None}) == {"step": 2}
    assert problems_of(count, {"step": "x"}) == [ArgumentProblem("step", "should be a valid integer", '"x"')]


def test_null_is_no_value_for_a_required_argument() -> None:
    assert problems_of(number, {"value": None}) == [ArgumentProblem("value", "should be a valid number", "null")]


def test_a_mutable_default_is_not_shared_by_calls() -> None:
    def collect(tags: Annotated[list[str], P(default=["a"])]) -> None: ...

    read = reader_of(collect).read
    read({})["tags"].append("b")
    assert read({}) == {"tags": ["a"]}


def test_all_problems_are_reported_together_in_the_order_of_the_parameters() -> None:
    def book(city: str, nights: int, order: Order, color: Color) -> None: ...

    arguments = {
        "color": "green",
        "order": {"items": [{"sku": "a"}, {"sku": "b", "size": 1}, {"sku": [], "price": "much"}]},
        "nights": 1.5,
    }
    assert problems_of(book, arguments) == [
        ArgumentProblem("city", "is required"),
        ArgumentProblem("nights", "should be a valid integer", "1.5"),
        ArgumentProblem("order.items[1].size", "is not known here", "1"),
        ArgumentProblem("order.items[2].sku", "should be a valid string", "[]"),
        ArgumentProblem("order.items[2].price", "should be a valid number", '"much"'),
        ArgumentProblem("color", "should be 'red'", '"green"'),
    ]


def test_alternatives_are_named_together() -> None:
    def pick(value: int | list[int] | None) -> None: ...

    assert problems_of(pick, {"value": "x"}) == [
        ArgumentProblem("value", "should be a valid integer or a valid array", '"x"')
    ]


def test_a_problem_shows_what_came_and_not_what_a_repair_made_of_it() -> None:
    def order_of(order: Order, count: Annotated[int, Field(ge=3)]) -> None: ...

    assert problems_of(order_of, {"order": '{"items": [{"sku": 1, "price": "x"}]}', "count": " 2 "}) == [
        ArgumentProblem("order.items[0].price", "should be a valid number", '"x"'),
        ArgumentProblem("count", "should be greater than or equal to 3", '" 2 "'),
    ]


def test_constraints_are_enforced_on_repaired_values_too() -> None:
    def page(size: Annotated[int, Field(le=100)]) -> None: ...

    assert problems_of(page, {"size": "101"}) == [
        ArgumentProblem("size", "should be less than or equal to 100", '"101"')
    ]


def test_what_came_is_cut_at_200_characters() -> None:
    [problem] = problems_of(number, {"value": ["x" * 1000]})
    assert problem.received == '["' + "x" * 198 + "…"


def test_the_number_of_problems_shown_is_bounded() -> None:
    def numbers(values: list[int]) -> None: ...

    problems = problems_of(numbers, {"values": ["x"] * 1000})
    assert len(problems) == 101
    assert problems[-1] == ArgumentProblem("", "and 900 more problems")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("function", [number, anything])
def test_a_number_that_is_not_finite_is_refused(function: Callable[..., Any], value: float) -> None:
    [problem] = problems_of(function, {"value": value})
    assert (problem.path, problem.received is not None) == ("value", True)


def test_a_number_that_is_not_finite_is_refused_at_any_depth() -> None:
    assert problems_of(anything, {"value": {"deep": [1, {"er": math.nan}]}}) == [
        ArgumentProblem("value.deep[1].er", "should be a finite number", "NaN")
    ]


def test_a_number_in_a_model_that_would_overflow_is_refused() -> None:
    [problem] = problems_of(order, {"order": {"items": [{"sku": "a", "price": 10**400}]}})
    assert (problem.path, problem.expected) == ("order.items[0].price", "should be a finite number")


def test_a_text_inside_a_text_is_read_by_the_same_rules() -> None:
    [problem] = problems_of(order, {"order": '{"items": [{"sku": "a", "price": 1e999}]}'})
    assert (problem.path, problem.expected) == ("order.items[0].price", "should be a finite number")


def test_a_text_that_names_a_number_is_a_text() -> None:
    assert reader_of(anything).read({"value": ["NaN", "Infinity"]}) == {"value": ["NaN", "Infinity"]}


@pytest.mark.parametrize("mapping", [MappingProxyType({"a": 1, "b": "2"}), UserDict({"a": 1, "b": 2})])
def test_any_mapping_will_do(mapping: Mapping[str, Any]) -> None:
    assert reader_of(two_integers).read(mapping) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "value",
    [object(), [object()], {"deep": two_integers}, "\ud800", b"\xff", 10**5000, Color],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_json_is_refused_by_name(value: Any) -> None:
    [problem] = problems_of(anything, {"value": value})
    assert problem.path in {"value", ""}
    assert problem.expected.startswith("should be JSON data")
    assert str(problem).encode()


def test_a_circular_argument_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    [problem] = problems_of(anything, {"value": circle})
    assert problem.path == "value"


@pytest.mark.parametrize("depth", [150, 199, 200, 250, 300, 100_000])
def test_deep_nesting_is_read_or_refused(depth: int) -> None:
    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    try:
        assert reader_of(anything).read({"value": nested}) == {"value": nested}
    except ArgumentsError:
        assert depth > 150


def test_texts_nested_in_texts_are_read_or_refused() -> None:
    text = json.dumps({"value": 0})
    for _ in range(6):
        text = json.dumps({"value": 1, "next": text})

    def take(node: Node) -> None: ...

    assert reader_of(take).read({"node": text})["node"].next.next.value == 1


def test_a_recursion_through_texts_that_is_too_deep_is_refused() -> None:
    def take(node: Node) -> None: ...

    text = json.dumps({"value": "x"})
    for _ in range(3):
        for _ in range(90):
            text = '{"value": 1, "next": ' + text + "}"
        text = json.dumps({"value": 1, "next": text})
    with pytest.raises(ArgumentsError):
        reader_of(take).read({"node": text})


def test_the_callers_mapping_is_never_changed() -> None:
    inner = [{"sku": 1}]
    arguments = {"order": {"items": inner}, "note": None}
    assert reader_of(order).read(arguments) == {"order": Order(items=[Item(sku="1")])}
    assert arguments == {"order": {"items": inner}, "note": None}
    assert inner == [{"sku": 1}]


def test_scalars_of_the_types_of_their_parameters_are_copied() -> None:
    def note(title: str, count: int = 1, sure: bool = False) -> None: ...

    read = reader_of(note).read
    for arguments in ({"title": "a", "count": -5, "sure": True}, {"title": "\u00e9", "count": 2**80, "sure": False}):
        values = read(arguments)
        assert values == arguments
        assert [*map(type, values.values())] == [str, int, bool]
        assert values is not arguments
    assert read({"title": "a"}) == {"title": "a"}
    assert read({"title": 5, "count": "2", "sure": "true"}) == {"title": "5", "count": 2, "sure": True}
    right: dict[str, Any] = {"title": "a", "count": 1, "sure": True}
    for wrong in (
        right | {"title": "\ud800"},
        right | {"count": True},
        right | {"count": 1.5},
        right | {"count": 10**5000},
        right | {"sure": 1},
        {"title": "a", "count": 1, "note": True},
    ):
        assert problems_of(note, wrong)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Annotated[str, Field(max_length=3)], "long", None),
        (Annotated[str, StringConstraints(strip_whitespace=True)], " a ", "a"),
        (Annotated[str, AfterValidator(len)], "abc", 3),
        (Annotated[str, P(name="published")], "abc", "abc"),
        (Literal["a", "b"], "c", None),
    ],
)
def test_scalars_with_constraints_are_validated(kind: Any, text: str, value: object) -> None:
    def note(value: str) -> None: ...

    note.__annotations__["value"] = kind
    name = "published" if "published" in str(kind) else "value"
    if name != "value":
        assert problems_of(note, {"value": text})
    if value is None:
        assert problems_of(note, {name: text})
    else:
        assert reader_of(note).read({name: text}) == {"value": value}


def test_an_exception_of_a_validator_that_is_no_complaint_is_passed_on() -> None:
    """A fault of the program is not reported as one of the arguments."""

    def take(broken: Broken) -> None: ...

    with pytest.raises(KeyError):
        reader_of(take).read({"broken": {"value": 1}})


def test_a_literal_is_written_as_json_writes_it() -> None:
    def take(sure: Literal[True, "True"]) -> None: ...

    with pytest.raises(ArgumentsError, match="sure: should be true or 'True', got false"):
        reader_of(take).read({"sure": False})
