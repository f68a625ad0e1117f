from __future__ import annotations

import math
from inspect import Signature
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_serializer

from bridge.errors import ResultError
from bridge.tools.content import Image
from bridge.tools.results import ResultWriter


class Item(BaseModel):
    sku: str = Field(alias="SKU")
    price: float | None = None


class Measured(BaseModel):
    value: Any


class Talkative(BaseModel):
    value: int

    @field_serializer("value")
    def write(self, value: int) -> int:
        raise RuntimeError(f"the secret is {value}")


class Unknown:
    """A type that has no JSON."""


class Unsaid:
    """Placeholder for no return annotation."""


PICTURE = Image(b"\x89PNG")


def writer(annotation: Any) -> ResultWriter:
    return ResultWriter("the_tool", Signature.empty if annotation is Unsaid else annotation)


def named(value: Any) -> str:
    try:
        return repr(value)[:40]
    except ValueError:  # a number of too many digits
        return "huge"


def circle() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


def abyss() -> list[Any]:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    return deep


def changed_after_it_was_made() -> Item:
    item = Item(SKU="a")
    item.price = "secret"  # type: ignore[assignment]  # what pydantic does not notice
    return item


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (int, "secret", "type 'str' that does not conform to 'int'"),
        (str, 5, "type 'int' that does not conform to 'str'"),
        (str, None, "type 'NoneType' that does not conform to 'str'"),
        (Item, {"SKU": [], "secret": 1}, "type 'dict' that does not conform to"),
        (list[int], [1, "secret"], "type 'list' that does not conform to 'list[int]'"),
        (dict, [PICTURE], "type 'list' that does not conform to 'dict'"),
        (Item, changed_after_it_was_made(), "type 'Item' that cannot be sent as JSON"),
        (Talkative, Talkative(value=1), "type 'Talkative' that cannot be sent as JSON"),
        *(
            (annotation, value, f"type {type(value).__qualname__!r} that cannot be sent as JSON")
            for annotation in (Unsaid, Any)
            for value in (
                Unknown(),
                [Unknown()],
                {"a": Unknown},
                circle(),
                abyss(),
                "\ud800",
                ["\ud800"],
                math.nan,
                [math.inf],
                {"a": {"b": -math.inf}},
                Item.model_construct(sku="a", price=math.nan),
                Measured(value=[math.nan]),
                10**5000,
                Talkative(value=1),
            )
        ),
        (Measured, Measured(value=[math.nan]), "not finite"),
        (Item, Item(SKU="a", price=math.nan), "not finite"),
        (list[Item], [Item(SKU="a", price=math.inf)], "not finite"),
        (Measured, Measured(value=Unknown()), "unknown type"),
        (Unsaid, [PICTURE, Unknown()], "type 'Unknown' that cannot be sent as JSON"),
        (Unsaid, ["\ud800", PICTURE], "type 'str' that cannot be sent as JSON"),
        (Unknown, Unknown(), "type 'Unknown' that cannot be sent as JSON: unable to serialize unknown type"),
        (list[Any], circle(), "it contains itself"),
    ],
    ids=named,
)
def test_what_cannot_be_sent_is_an_error_that_names_the_type_and_no_value(
    annotation: Any, value: Any, words: str
) -> None:
    with pytest.raises(ResultError) as caught:
        writer(annotation).write(value)
    assert words in str(caught.value)
    assert str(caught.value).startswith("the tool 'the_tool' returned a value of type ")
    assert "secret" not in str(caught.value)
    assert str(caught.value).encode()


@pytest.mark.parametrize(
    ("annotation", "value"), [(float, math.nan), (list[float], [math.inf]), (dict[str, float], {"a": math.nan})]
)
def test_a_declared_number_must_be_finite(annotation: Any, value: Any) -> None:
    with pytest.raises(ResultError, match="a number in it is not finite"):
        writer(annotation).write(value)
