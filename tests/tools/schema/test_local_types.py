"""Types of the scope that defines a function, which string annotations name."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox


@dataclass
class Shadowed:
    """The type of the module, which a local one has the name of."""

    of_module: str


def only_tool(source: object) -> Any:
    (made,) = ToolBox(source)
    return made.specification


def dataclasses() -> Any:
    @dataclass
    class Inner:
        size: int

    @dataclass
    class Outer:
        inner: Inner
        others: list[Outer] | None = None

    @tool
    def echo(value: Outer) -> Outer:
        return value

    return echo


def typed_dicts() -> Any:
    class Inner(TypedDict):
        size: int

    class Outer(TypedDict):
        inner: Inner

    @tool
    def echo(value: Outer) -> Outer:
        return value

    return echo


def named_tuples() -> Any:
    class Inner(NamedTuple):
        size: int

    class Outer(NamedTuple):
        inner: Inner

    @tool
    def echo(value: list[Outer]) -> list[Outer]:
        return value

    return echo


def models() -> Any:
    class Outer(BaseModel):
        inner: Inner

    class Inner(BaseModel):
        size: int

    @tool
    def echo(value: Outer) -> Outer:
        return value

    return echo


def defaults() -> Any:
    @dataclass
    class Inner:
        size: int

    @dataclass
    class Outer:
        inner: Inner

    standard = Outer(Inner(1))

    @tool
    def echo(value: Outer = standard) -> Outer:
        return value

    return echo


def partials() -> Any:
    @dataclass
    class Inner:
        size: int

    def echo(value: Inner, more: int) -> Inner:
        return Inner(value.size + more)

    return tool(name="echo")(functools.partial(echo, more=1))


def objects() -> Any:
    @dataclass
    class Inner:
        size: int

    class Echo:
        def __call__(self, value: Inner) -> Inner:
            return value

    return tool(name="echo")(Echo())


@pytest.mark.parametrize(
    "made",
    [dataclasses, typed_dicts, named_tuples, models, defaults, partials, objects],
    ids=lambda made: made.__name__,
)
def test_types_of_a_function_may_name_one_another(made: Any) -> None:
    specification = only_tool(made())
    inner = specification.parameters["$defs"]["Inner"]
    size = {"size": {"type": "integer"}}
    assert inner["prefixItems"] == [{"type": "integer"}] if made is named_tuples else inner["properties"] == size
    assert "integer" in str(specification.output_schema)


def test_a_local_type_comes_before_one_of_the_module() -> None:
    @dataclass
    class Shadowed:
        of_function: int

    @tool
    def echo(value: Shadowed) -> str:
        return str(value)

    assert list(only_tool(echo).parameters["$defs"]["Shadowed"]["properties"]) == ["of_function"]
