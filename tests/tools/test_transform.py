from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import DefinitionError, ToolError
from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.function import tool, tools_from
from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from bridge.tools.transform import filtered, prefixed, renamed, respecified, safe_names, wrapped

if TYPE_CHECKING:
    from random import Random

    from bridge.tools.middleware import CallNext

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@tool(description="Say a.", metadata={"a": 1}, timeout_seconds=5)
async def a() -> str:
    return "a"


@tool
async def b() -> str:
    return "b"


def both() -> list[Tool]:
    return tools_from([a, b])


def test_a_renamed_tool_differs_in_nothing_but_its_name() -> None:
    original, _ = both()
    other = renamed(original, "c")
    assert other.name == "c"
    assert renamed(other, "a") == original
    assert other.executor is original.executor
    assert original.name == "a"


@pytest.mark.anyio
async def test_a_renamed_tool_still_calls_the_right_thing() -> None:
    tools = ToolBox(prefixed(prefixed(both(), "x_"), "y."))
    for name, text in (("y.x_a", "a"), ("y.x_b", "b")):
        result = await execute(tools, ToolExecutionRequest(name), InvocationContext())
        assert result == ToolExecutionResult.of_text(text)


class Greeter:
    @tool
    def greet(self) -> str:
        return "hello"


def plain() -> str:
    return "plain"


@pytest.mark.parametrize("source", [a, [a], both()[0], [both()[0]], ToolBox(a)])
def test_a_tool_is_renamed_wherever_it_is(source: object) -> None:
    assert renamed(source, "c").specification == renamed(both()[0], "c").specification


def test_what_holds_another_number_of_tools_than_one_is_not_renamed() -> None:
    with pytest.raises(DefinitionError, match=r"expected one tool, but \[.*\] has 2"):
        renamed([a, b], "c")
    with pytest.raises(DefinitionError, match="there are no tools in 5"):
        renamed(5, "c")


@pytest.mark.parametrize(
    ("source", "names"),
    [(a, ["a"]), ([a, plain], ["a", "plain"]), (Greeter(), ["greet"]), (ToolBox(a, b), ["a", "b"]), ([], [])],
)
def test_prefixed_and_filtered_take_what_a_toolbox_takes(source: object, names: list[str]) -> None:
    assert [each.name for each in prefixed(source, "x_")] == [f"x_{name}" for name in names]
    assert [each.name for each in filtered(source)] == names


def test_prefixed_and_filtered_refuse_what_holds_no_tools_at_once() -> None:
    with pytest.raises(DefinitionError, match="there are no tools in 5"):
        prefixed([5], "x_")
    with pytest.raises(DefinitionError, match="there are no tools in 5"):
        filtered([5])


def test_a_specification_is_changed_as_a_whole() -> None:
    (original, _) = tools = both()
    (changed, _) = respecified(tools, lambda each: replace(each, description=f"{each.name}!", metadata={"b": 2}))
    assert changed.specification == replace(original.specification, description="a!", metadata={"b": 2})
    assert changed.executor is original.executor
    nothing: Any = lambda _: None  # noqa: E731 - a function that forgets to return
    with pytest.raises(DefinitionError, match="returned None for 'a', not a ToolSpecification"):
        list(respecified(a, nothing))


@pytest.mark.anyio
async def test_a_middleware_runs_around_each_call_and_may_change_request_and_result() -> None:
    @tool
    async def double(number: int) -> int:
        return 2 * number

    seen: list[object] = []

    async def around(
        request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        seen.append((request, context))
        result = await call_next(replace(request, arguments={"number": 4}), context)
        return replace(result, attributes={"seen": True})

    context = InvocationContext()
    box = ToolBox(prefixed(wrapped(double, around), "my_"))
    result = await execute(box, ToolExecutionRequest("my_double", '{"number": 3}'), context)
    assert (result.text, result.attributes) == ("8", {"seen": True})
    assert seen == [(ToolExecutionRequest("my_double", {"number": 3}), context)]
    tools = both()
    assert list(wrapped(tools, around)) == list(wrapped(tools, around))
    assert all(each.interactive for each in wrapped(tools, around))


def test_a_prefix_stands_before_each_name_in_order() -> None:
    assert [each.name for each in prefixed(both(), "github_")] == ["github_a", "github_b"]


def test_a_prefix_that_makes_a_name_too_long_is_refused_where_it_is_used() -> None:
    with pytest.raises(DefinitionError, match="1 to 128"):
        ToolBox(prefixed(both(), "x" * 128))


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        ({}, ["a", "b"]),
        ({"include": ["b", "c"]}, ["b"]),
        ({"include": []}, []),
        ({"exclude": ["b"]}, ["a"]),
        ({"include": ["a", "b"], "exclude": ["a"]}, ["b"]),
        ({"keep": lambda each: "a" in each.specification.metadata}, ["a"]),
        ({"keep": lambda each: each.name != "a", "include": ["a"]}, []),
    ],
)
def test_a_filter_keeps_what_passes_all_its_tests(tests: dict[str, object], names: list[str]) -> None:
    assert [each.name for each in filtered(both(), **tests)] == names  # type: ignore[call-overload]  # of several types


@pytest.mark.parametrize(
    ("names", "safe"),
    [
        ([], {}),
        (["a", "b-2"], {"a": "a", "b-2": "b-2"}),
        (["a.b"], {"a.b": "a_b"}),
        (["a.b", "a.b"], {"a.b": "a_b"}),
        (["a/b c"], {"a/b c": "a_b_c"}),
        (["a.b", "a_b"], {"a.b": "a_b_2e7336dc", "a_b": "a_b"}),
        (["x" * 64], {"x" * 64: "x" * 64}),
    ],
)
def test_a_name_changes_only_where_it_must(names: list[str], safe: dict[str, str]) -> None:
    assert safe_names(names) == safe


def test_a_name_that_is_too_long_is_cut_and_stays_distinct() -> None:
    first, second = "x" * 70 + "1", "x" * 70 + "2"
    safe = safe_names([first, second])
    assert [len(each) for each in safe.values()] == [64, 64]
    assert len(set(safe.values())) == 2
    assert safe_names([first])[first] == safe[first], "a cut name does not depend on its neighbours"


def test_a_name_made_to_look_like_anothers_hash_is_not_taken_for_it() -> None:
    victim = safe_names(["a.b", "a_b"])["a.b"]
    safe = safe_names(["a.b", "a_b", victim])
    assert safe[victim] == victim
    assert len(set(safe.values())) == 3


NAME = st.text(st.sampled_from("ab._ /é"), min_size=1, max_size=4) | st.text(st.sampled_from("x."), min_size=60)


@given(st.lists(NAME), st.randoms(use_true_random=False))
def test_safe_names_are_safe_distinct_and_know_no_order(names: list[str], order: Random) -> None:
    safe = safe_names(names)
    assert set(safe) == set(names)
    assert all(SAFE.fullmatch(each) for each in safe.values())
    assert len(set(safe.values())) == len(safe)
    shuffled = list(names)
    order.shuffle(shuffled)
    assert safe_names(shuffled) == safe


async def drops(request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext) -> None:
    await call_next(request, context)


async def takes_two(request: ToolExecutionRequest, call_next: CallNext) -> Any:
    return await call_next(request, InvocationContext())


@pytest.mark.parametrize(
    ("middleware", "problem"),
    [
        (drops, "never returns a result; return that of call_next"),
        (takes_two, "called with 3 arguments, the request, the context and call_next"),
        (None, "a middleware must be a function"),
    ],
)
def test_a_wrong_middleware_is_refused_at_once(middleware: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        wrapped(both(), middleware)


@pytest.mark.anyio
async def test_a_middleware_that_sometimes_returns_nothing_is_named() -> None:
    async def forgetful(request: Any, context: Any, call_next: Any) -> Any:
        if request.name == "a":
            return await call_next(request, context)
        return None

    first, second = wrapped(both(), forgetful)
    assert (await execute(ToolBox(first), ToolExecutionRequest("a", {}), InvocationContext())).text == "a"
    result = await execute(ToolBox(second), ToolExecutionRequest("b", {}), InvocationContext())
    assert re.search("the middleware .*forgetful.* returned None; return a ToolExecutionResult", result.text)


@pytest.mark.anyio
async def test_a_middleware_may_raise_always_or_be_no_coroutine_function() -> None:
    async def refuses(request: Any, context: Any, call_next: Any) -> Any:
        raise ToolError("closed")

    def delegates(request: Any, context: Any, call_next: Any) -> Any:
        return call_next(request, context)

    for middleware, text in ((refuses, "closed"), (delegates, "a")):
        box = ToolBox(*wrapped(both(), middleware))
        assert (await execute(box, ToolExecutionRequest("a", {}), InvocationContext())).text == text
