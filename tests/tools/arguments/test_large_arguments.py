from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date  # noqa: TC003 - the signature is read at run time
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from bridge.errors import ArgumentProblem, ArgumentsError
from bridge.tools.arguments import problems as argument_problems
from bridge.tools.arguments import reader as arguments_of_tools
from bridge.tools.arguments.reader import ArgumentReader
from bridge.tools.schema.signature import signature_of
from tests.tools.arguments.test_reader import Item, problems_of, reader_of, two_integers

if TYPE_CHECKING:
    from pydantic import ValidationError


class Wide(BaseModel):
    a: int
    b: int
    c: int


def take_many(items: list[Wide]) -> None: ...


FIRST_ONLY = ArgumentProblem(
    "", "the arguments contain many values, so only the first mistake in each list is reported"
)


def test_of_very_many_mistakes_in_a_list_only_the_first_are_looked_for() -> None:
    read = signature_of(take_many)
    collected: list[int] = []
    reader = ArgumentReader("take_many", read.adapter, read.internal_schema)
    problems_of_many = reader._all_errors

    def noted(raw: bytes, first: ValidationError) -> ValidationError:
        error = problems_of_many(raw, first)
        collected.append(error.error_count())
        return error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArgumentReader, "_all_errors", lambda _, raw, first: noted(raw, first))
        for count in (10, 100, 500, 4_000, 50_000):
            with pytest.raises(ArgumentsError) as caught:
                reader.read({"items": [{}] * count})
            assert caught.value.problems[0] == ArgumentProblem("items[0].a", "is required")
            assert (caught.value.problems[-1] == FIRST_ONLY) is (count >= 4_000)
    assert collected == [30, 300, 1_500]


def test_the_first_mistakes_of_large_arguments_are_told_with_their_places() -> None:
    good = {"a": 1, "b": 2, "c": 3}
    items = [*[good] * 20_000, {"a": 1, "b": "x", "c": "3"}, {}]
    assert problems_of(take_many, {"items": items, "itmes": 1}) == [
        ArgumentProblem("itmes", "is not a parameter (did you mean 'items'?)", "1"),
        FIRST_ONLY,
    ]
    assert problems_of(take_many, {"items": items}) == [
        ArgumentProblem("items[20000].b", "should be a valid integer", '"x"'),
        ArgumentProblem("items[20000].c", "should be a valid integer", '"3"'),
        FIRST_ONLY,
    ]


def test_large_arguments_that_are_valid_are_read_whole() -> None:
    def take(rows: list[list[int]], text: str, note: str = "") -> None: ...

    rows = [[i, i] for i in range(50_000)]
    arguments = {"rows": rows, "text": "NaN, Infinity and others" * 1_000}
    assert reader_of(take).read(arguments) == arguments
    assert reader_of(take).read({"rows": [], "text": 5, "note": "x," * 4_000}) == {
        "rows": [],
        "text": "5",
        "note": "x," * 4_000,
    }


def test_large_arguments_that_are_not_finite_or_ambiguous_are_refused() -> None:
    def take(numbers: list[float], days: list[date]) -> None: ...

    numbers = [1.5] * 50_000
    [problem, _] = problems_of(take, {"numbers": [*numbers, math.inf], "days": []})
    assert (problem.path, problem.expected) == ("numbers[50000]", "should be a finite number")
    [problem, _] = problems_of(take, {"numbers": numbers, "days": ["86400"]})
    assert problem.expected.startswith("the arguments contain too many values to be converted for the tool")


def test_very_many_unknown_arguments_are_counted_and_not_collected() -> None:
    problems = problems_of(two_integers, {f"x{i}": i for i in range(100_000)})
    assert len(problems) <= 102
    assert problems[0].path == "x0"


def test_the_number_of_objects_and_arrays_is_bounded_whatever_texts_hold() -> None:
    def take(items: list[dict[str, int]], text: str = "") -> None: ...

    assert problems_of(take, {"items": [{}] * 250_000}) == [
        ArgumentProblem("", "has 250,002 objects and arrays, of 250,000 at most; send fewer at once")
    ]
    text = '{"[' * 200_000
    assert reader_of(take).read({"items": [{}], "text": text}) == {"items": [{}], "text": text}


@dataclass
class Place:
    sku: str


@pytest.mark.parametrize("kind", [Item, Place, Item | Place, list[Item], dict[str, Item]], ids=str)
def test_very_many_unknown_names_in_an_object_are_counted_and_not_collected(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(value: Any, free: dict[str, int]) -> None: ...

    take.__annotations__["value"] = kind
    counts: list[int] = []

    def refusals_of(error: ValidationError, value: Any) -> Any:
        counts.append(error.error_count())
        return argument_problems.refusals_of(error, value)

    monkeypatch.setattr(arguments_of_tools, "refusals_of", refusals_of)
    wide: Any = {f"x{i}": i for i in range(30_000)} | {"sku": "a"}
    value = {list[Item]: [wide] * 2, dict[str, Item]: {"a": wide, "b": wide}}.get(kind, wide)
    problems = problems_of(take, {"value": value, "free": {}})
    assert len(problems) <= 102
    assert "x0" in problems[0].path
    assert max(counts) < 500


def test_an_object_of_very_many_names_is_read_where_its_names_are_free() -> None:
    def take(free: dict[str, int], item: Item) -> None: ...

    free: dict[str, Any] = {f"x{i}": i for i in range(50_000)}
    arguments = {"free": free, "item": {"sku": "a"}}
    assert reader_of(take).read(arguments) == {"free": free, "item": Item(sku="a")}
    free["x40000"] = "?"
    assert problems_of(take, arguments)[0].path == "free.x40000"


def test_a_number_is_large_from_309_digits_on_however_many_have_fewer() -> None:
    def take(numbers: list[float]) -> None: ...

    assert reader_of(take).read({"numbers": [10**307] * 1_000}) == {"numbers": [1e307] * 1_000}
    [problem, *_] = problems_of(take, {"numbers": [*[10**307] * 1_000, 10**309]})
    assert "finite" in problem.expected or "too many values" in problem.expected
