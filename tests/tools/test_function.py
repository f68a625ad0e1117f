"""Functions as tools."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, assert_type

import pytest

from bridge.errors import DefinitionError
from bridge.tools.context import InvocationContext
from bridge.tools.function import function_tool, settings_of, tool, tools_from
from bridge.tools.schema.parameters import P
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import ReturnBehavior, Tool, ToolExecutionRequest, ToolExecutionResult, ToolPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    And nothing else.
    """
    return a + b


async def call(a_tool: Tool, **arguments: Any) -> str:
    result = await a_tool.executor.execute(ToolExecutionRequest(a_tool.name, arguments), InvocationContext())
    return result.text


def only(source: object) -> Tool:
    (found,) = tools_from(source)
    return found


def test_a_decorated_function_stays_callable_as_it_was() -> None:
    assert_type(add(1, 2), int)
    assert add(1, b=2) == 3
    assert add.__name__ == "add"


def test_a_bare_decorator_takes_everything_from_the_function() -> None:
    found = only(add)
    assert found.specification == ToolSpecification(
        name="add",
        description="Add two numbers.\n\nAnd nothing else.",
        parameters={
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        output_schema={"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]},
    )
    assert found.source == f"function 'add' (test_function.py:{add.__code__.co_firstlineno})"
    assert found.policy == ToolPolicy()
    assert not found.interactive


@pytest.mark.parametrize("decorator", [tool("Explicit."), tool(description="Explicit."), tool("Explicit.", name=None)])
def test_a_description_may_be_given(decorator: Callable[..., Any]) -> None:
    def described() -> None:
        """From the docstring."""

    assert only(decorator(described)).specification.description == "Explicit."


def test_a_tool_may_leave_out_what_is_no_argument_of_it() -> None:
    @tool(extra_arguments="ignore")
    def take(a: int) -> None: ...

    assert "additionalProperties" not in only(take).specification.parameters
    with pytest.raises(DefinitionError, match="extra_arguments must be 'forbid' or 'ignore', not 'allow'"):
        tool(extra_arguments="allow")  # type: ignore[call-overload]  # what is tested


def test_without_any_description_the_name_in_words_is_one() -> None:
    @tool()
    def sum_of_squares() -> None: ...

    assert only(sum_of_squares).specification.description == "sum of squares"


def test_everything_can_be_set() -> None:
    annotations = ToolAnnotations(read_only=True)
    icon = {"src": "https://example.org/icon.png"}

    @tool(
        name="other.name",
        title="A title",
        description="What it does.",
        metadata={"k": 1},
        annotations=annotations,
        return_behavior=ReturnBehavior.IMMEDIATE,
        strict=True,
        timeout_seconds=1.5,
        max_output_chars=100,
        propagate=True,
        run_in_thread=False,
        icons=[icon],
    )
    def everything() -> None: ...

    found = only(everything)
    assert found.specification == ToolSpecification(
        name="other.name",
        title="A title",
        description="What it does.",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        metadata={"k": 1},
        annotations=annotations,
        strict=True,
        icons=(icon,),
    )
    assert found.return_behavior is ReturnBehavior.IMMEDIATE
    assert found.policy == ToolPolicy(timeout_seconds=1.5, max_output_chars=100, propagate=True)


def test_two_descriptions_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"two descriptions, 'One\.' and 'Two\.'"):
        tool("One.", description="Two.")


@pytest.mark.parametrize("what", [int, 3, object()])
def test_what_cannot_be_called_or_is_a_class_is_refused(what: Any) -> None:
    with pytest.raises(DefinitionError, match="decorate a function, or the methods of the class"):
        tool()(what)


def test_what_cannot_carry_a_note_is_refused() -> None:
    with pytest.raises(DefinitionError, match="wrap it in a function"):
        tool(len)


def test_a_tool_that_gets_the_context_is_interactive() -> None:
    def ask(context: InvocationContext) -> None: ...

    assert only(ask).interactive


def test_annotations_may_name_local_types_of_a_decorated_function() -> None:
    class Size(Enum):
        SMALL = "s"

    class Shop:
        class Colour(Enum):
            RED = "r"

        @tool
        def order(self, size: Size, colour: Colour) -> None: ...

    assert set(only(Shop()).specification.parameters["$defs"]) == {"Size", "Colour"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_is_refused(is_async: bool) -> None:
    def generator() -> Any:
        yield 1

    async def async_generator() -> Any:
        yield 1

    with pytest.raises(DefinitionError, match=r"generator' .* is a generator; a tool returns once"):
        tools_from(async_generator if is_async else generator)


def test_settings_are_found_on_what_was_decorated_only() -> None:
    assert settings_of(add) is not None
    assert settings_of(len) is None
    assert settings_of(staticmethod(add)) is not None


async def test_a_tool_can_be_made_with_other_settings_than_those_of_its_decorator() -> None:
    settings = settings_of(tool(name="plus")(lambda a, b: a + b))
    found = function_tool(add, settings)
    assert (found.name, await call(found, a=1, b=2)) == ("plus", "3")


async def test_a_default_stands_in_for_what_is_missing_and_for_null() -> None:
    def show(a: Annotated[int, P(name="number", default=1)], b: int = 2, c: int | None = 3) -> list[int | None]:
        return [a, b, c]

    found = only(show)
    assert await call(found) == "[1,2,3]"
    assert await call(found, number=None, b=None, c=None) == "[1,2,null]"
    assert await call(found, number=4, b=5, c=6) == "[4,5,6]"


async def test_a_default_that_can_be_changed_is_not_shared_between_calls() -> None:
    def grow(values: Annotated[list[int], P(default=[])], own: list[int] = [], pair: tuple[list[int]] = ([],)) -> str:  # noqa: B006 - copied
        for each in (values, own, *pair):
            each.append(1)
        return f"{values} {own} {pair}"

    found = only(grow)
    assert [await call(found), await call(found)] == ["[1] [1] ([1],)"] * 2


async def test_a_result_made_by_hand_is_the_result() -> None:
    def by_hand() -> ToolExecutionResult:
        return ToolExecutionResult.error("no")

    result = await only(by_hand).executor.execute(ToolExecutionRequest("by_hand"), InvocationContext())
    assert result == ToolExecutionResult.error("no")


def test_a_nested_function_may_use_what_is_assigned_later() -> None:
    def ask(question: str) -> str:
        return question + ending

    asking = function_tool(ask)
    ending = "?"
    assert asking.specification.parameters["required"] == ["question"]
    assert ask("Why") == "Why?"
