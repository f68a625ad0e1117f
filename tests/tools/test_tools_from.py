"""Sources of tools."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import pytest

from bridge.errors import DefinitionError
from bridge.tools.context import InvocationContext
from bridge.tools.function import tool, tools_from
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionRequest

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    return a + b


async def call(a_tool: Tool, **arguments: Any) -> str:
    result = await a_tool.executor.execute(ToolExecutionRequest(a_tool.name, arguments), InvocationContext())
    return result.text


def only(source: object) -> Tool:
    (found,) = tools_from(source)
    return found


def names(source: object) -> list[str]:
    return [found.name for found in tools_from(source)]


async def test_every_kind_of_callable_is_a_tool() -> None:
    class Adder:
        """Adds."""

        def __init__(self, n: int) -> None:
            self.n = n

        def plus(self, a: int) -> int:
            return a + self.n

        async def __call__(self, a: int) -> int:
            return a + self.n

    def plain(a: int) -> int:
        return a + 1

    @functools.lru_cache
    def cached(a: int) -> int:
        return a + 1

    async def coroutine(a: int) -> int:
        return a + 1

    @functools.wraps(coroutine)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return coroutine(*args, **kwargs)

    partial = functools.partial(add, b=1)
    for source in (plain, cached, coroutine, wrapped, partial, Adder(1).plus, Adder(1), only(plain)):
        assert await call(only(source), a=2) == "3", source
    assert [only(source).name for source in (wrapped, partial, Adder(1))] == ["coroutine", "add", "Adder"]
    assert only(Adder(1)).specification.description == "Adds."


class Base:
    @tool
    def first(self) -> str:
        """The base's first."""
        return "base"

    @tool(title="Second")
    def second(self) -> str:
        """The base's second."""
        return "base"

    @tool
    def removed(self) -> str:
        return "base"

    def undecorated(self) -> str:
        return "base"


class Mixin:
    @tool
    @staticmethod
    def mixed_in(text: str) -> str:
        return text

    @classmethod
    @tool
    def of_class(cls) -> str:
        return cls.__name__


class Tools(Mixin, Base):
    removed = None  # type: ignore[assignment]  # Python's way to take a method away

    @tool(name="renamed")
    def first(self) -> str:
        return "tools"

    def second(self) -> str:
        return "tools"

    @tool
    def _hidden(self) -> str:
        return "hidden"

    @tool
    def __private(self) -> str:
        return "private"

    @tool
    async def last(self) -> str:
        return "last"


async def test_an_object_gives_its_decorated_methods_and_those_of_its_bases() -> None:
    found = tools_from(Tools())
    assert [await call(each, **({"text": "x"} if each.name == "mixed_in" else {})) for each in found] == [
        "tools", "tools", "x", "Tools", "hidden", "private", "last",
    ]  # fmt: skip
    assert names(Tools()) == ["renamed", "second", "mixed_in", "of_class", "_hidden", "__private", "last"]


def test_an_override_without_decorator_keeps_the_settings_and_the_docstring() -> None:
    second = next(each for each in tools_from(Tools()) if each.name == "second")
    assert second.specification.title == "Second"
    assert second.specification.description == "The base's second."


async def test_static_and_class_methods_work_in_either_order_of_decorators() -> None:
    class Static:
        @tool
        @staticmethod
        def a(x: int) -> int:
            return x

        @staticmethod
        @tool
        def b(x: int) -> int:
            return x

        @tool
        @classmethod
        def c(cls, x: int) -> int:
            return x

        @classmethod
        @tool
        def d(cls, x: int) -> int:
            return x

    for source in (Static, Static()):
        assert [await call(found, x=1) for found in tools_from(source)] == ["1", "1", "1", "1"]
    assert names(Static) == ["a", "b", "c", "d"]
    assert Static.a(1) == Static().c(1) == 1


def test_a_class_with_methods_needs_an_instance() -> None:
    with pytest.raises(DefinitionError, match=r"'first' of the class 'Base' needs an instance; pass Base\(…\)"):
        tools_from(Base)


def test_a_module_gives_its_decorated_functions_and_tools_once_each() -> None:
    module = ModuleType("shop")
    by_hand = Tool(ToolSpecification(name="by_hand"), only(add).executor)
    vars(module).update(add=add, again=add, other=len, by_hand=by_hand, Base=Base, text="x")
    assert names(module) == ["add", "by_hand"]


def test_iterables_are_flattened() -> None:
    def plain() -> None: ...

    assert names([add, (plain, [Tools()])])[:3] == ["add", "plain", "renamed"]
    assert names({add}) == ["add"]
    assert names(each for each in (add, plain)) == ["add", "plain"]


class Nothing:
    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("source", "described"),
    [
        (Nothing(), "Nothing object"),
        (Nothing, "the class 'Nothing'"),
        (ModuleType("empty"), "the module 'empty'"),
        ([], r"\[\]"),
        ([add, []], r"\[\]"),
        ("add", "'add'"),
        (b"add", "b'add'"),
        (None, "None"),
        (3, "3"),
        (["x" * 200], "…"),
    ],
)
def test_what_holds_no_tools_is_refused(source: object, described: str) -> None:
    with pytest.raises(DefinitionError, match=f"no tools in .*{described}.*; decorate functions or methods with @tool"):
        tools_from(source)
