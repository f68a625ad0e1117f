from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import pytest

from bridge import (
    DefinitionError,
    Image,
    InvocationContext,
    NameClashError,
    PromptMessage,
    Text,
    ToolExecutionRequest,
    prompt,
)
from bridge.errors import ArgumentsError, ResultError
from bridge.prompts import PromptBox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools import Completion

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    GREEN = "green"


async def rendered(function: Callable[..., Any], **arguments: str) -> Any:
    (found,) = PromptBox(function)
    return (await found.tool.executor.execute(ToolExecutionRequest(found.name, arguments), InvocationContext())).value


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("Hi", (PromptMessage("Hi"),)),
        (Image(b"\x89"), (PromptMessage(Image(b"\x89")),)),
        (["Hi", PromptMessage("Hello", "assistant")], (PromptMessage(Text("Hi")), PromptMessage("Hello", "assistant"))),
        ((), ()),
    ],
)
async def test_what_a_function_returns_are_the_messages(value: Any, messages: Any) -> None:
    @prompt
    def function() -> Any:
        return value

    assert await rendered(function) == messages


async def test_arguments_are_typed_and_described() -> None:
    @prompt(title="Review", description="Review it.", icons=[{"src": "https://example.org"}], metadata={"k": 1})
    async def review(
        code: str, lines: int, context: InvocationContext, language: Literal["python", "go"] = "go"
    ) -> str:
        """Unused.

        Args:
            code: The code.
        """
        assert context.invocation_id
        return f"{code} {lines + 1} {language}"

    assert await rendered(review, code="x", lines="4") == (PromptMessage("x 5 go"),)
    with pytest.raises(ArgumentsError, match="lines"):
        await rendered(review, code="x", lines="many")
    (found,) = PromptBox(review)
    assert [(each.name, each.description, each.required) for each in found.arguments] == [
        ("code", "The code.", True),
        ("lines", None, True),
        ("language", None, False),
    ]
    assert (found.name, found.title, found.description, found.metadata) == ("review", "Review", "Review it.", {"k": 1})


def test_a_description_is_given_as_that_of_a_tool() -> None:
    @prompt("Review it.")
    def review() -> str:
        """Unused."""
        return ""

    (found,) = PromptBox(review)
    assert (found.name, found.description) == ("review", "Review it.")
    with pytest.raises(DefinitionError, match="the prompt has two descriptions, 'a' and 'b'; keep one"):
        prompt("a", description="b")


async def test_methods_are_prompts_and_others_are_refused() -> None:
    class Prompts:
        @prompt
        def hello(self) -> str:
            return "Hello"

    assert [each.name for each in PromptBox(Prompts())] == ["hello"]
    with pytest.raises(DefinitionError, match="needs an instance"):
        PromptBox(Prompts)
    with pytest.raises(NameClashError, match=r"^two prompts are named .*; give one another name, with @prompt"):
        PromptBox(Prompts(), Prompts())
    with pytest.raises(DefinitionError, match="no prompts"):
        PromptBox([])

    @prompt
    def wrong() -> Any:
        return 5

    with pytest.raises(ResultError, match=r"^the prompt 'wrong' returned .*; return text, content, messages"):
        await rendered(wrong)
    with pytest.raises(DefinitionError, match="'user' or 'assistant'"):
        PromptMessage("x", "system")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="text or a content block"):
        PromptMessage(5)  # type: ignore[arg-type]


async def test_completions_come_from_choices_lists_and_functions() -> None:
    seen: list[Any] = []

    async def streets(text: str, others: Mapping[str, str], context: InvocationContext) -> list[str]:
        seen.append((text, dict(others), context.account))
        return [f"{text}{number}" for number in range(150)]

    def cities(text: str, others: Mapping[str, str], context: InvocationContext) -> list[str]:
        return [others["country"] + text]

    @prompt(completions={"country": ["France", "Finland", "Spain"], "city": cities, "street": streets})
    def address(
        colour: Colour, country: str, city: str, street: str, size: Literal[1, 2] | None = None, is_new: bool = False
    ) -> str:
        return ""

    (found,) = PromptBox(address)
    context = InvocationContext(account="ada")

    async def complete(name: str, text: str, **others: str) -> Completion:
        return await found.complete(name, text, others, context)

    assert (await complete("colour", "")).values == ("red", "green")
    assert (await complete("country", "f")).values == ("France", "Finland")
    assert (await complete("city", "x", country="Fr")).values == ("Frx",)
    assert (await complete("size", "")).values == ("1", "2")
    assert (await complete("is_new", "t")).values == ("true",)
    assert (await complete("nope", "")).values == ()
    many = await complete("street", "a", city="b")
    assert (len(many.values), many.total, many.has_more) == (100, 150, True)
    assert seen == [("a", {"city": "b"}, "ada")]


@pytest.mark.parametrize(
    ("given", "words"),
    [({"nope": ["a"]}, "not one of its parameters"), ({"a": 5}, "must be a list"), ({"a": list}, "takes")],
)
def test_a_completion_that_cannot_work_is_refused(given: Any, words: str) -> None:
    @prompt(completions=given)
    def function(a: str) -> str:
        return a

    with pytest.raises(DefinitionError, match=words):
        PromptBox(function)
