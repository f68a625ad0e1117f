"""Functions in place of executors, and executors called without `execute`."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from bridge import (
    DefinitionError,
    InvocationContext,
    Tool,
    ToolBox,
    ToolExecutionRequest,
    ToolExecutionResult,
    ToolSearch,
    ToolSpecification,
    execute,
    guarded,
    tool,
    tools_from,
)
from bridge.errors import ArgumentsError
from bridge.middleware import cached
from bridge.tools import JsonObjectSchema
from bridge.tools.content import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.service import ToolInputGuardrailRequest

pytestmark = pytest.mark.anyio

SPECIFICATION = ToolSpecification(name="double", parameters=JsonObjectSchema().integer("x").required("x"))
REQUEST = ToolExecutionRequest("double", '{"x": 21}')


@dataclass
class Point:
    x: int


async def asynchronously(request: ToolExecutionRequest, _: InvocationContext) -> int:
    value: int = request.argument("x")
    return 2 * value


class Answering:
    def __call__(self, request: ToolExecutionRequest, context: InvocationContext) -> str:
        return f"{request.argument('x')} for {context.memory_id}"


@pytest.mark.parametrize(
    ("function", "text", "structured"),
    [
        (lambda request, _: f"twice {request.arguments['x']}", "twice 21", None),
        (lambda *_: None, "Success", None),
        (lambda *_: {"y": [1.5, None]}, '{"y":[1.5,null]}', {"y": [1.5, None]}),
        (lambda *_: Point(3), '{"x":3}', {"x": 3}),
        (lambda *_: ToolExecutionResult.error("no"), "no", None),
        (lambda *_: Text("a block"), "a block", None),
        (lambda request, context: asynchronously(request, context), "42", {"result": 42}),  # noqa: PLW0108 - not async
        (asynchronously, "42", {"result": 42}),
        (Answering(), "21 for ada", None),
    ],
)
async def test_a_function_is_an_executor(function: Callable[..., Any], text: str, structured: object) -> None:
    context = InvocationContext(memory_id="ada")
    for source in (Tool(SPECIFICATION, function), {SPECIFICATION: function}):
        (made,) = tools_from(source)
        result = await execute(ToolBox(made), REQUEST, context)
        assert (result.text, result.structured_content) == (text, structured)
        assert await made.executor.execute(REQUEST, context) == result


async def test_a_function_runs_in_a_thread_and_a_coroutine_function_in_the_event_loop() -> None:
    async def here(*_: object) -> str:
        return str(threading.get_ident())

    for function, is_here in ((here, True), (lambda *_: str(threading.get_ident()), False)):
        result = await execute(ToolBox(Tool(SPECIFICATION, function)), REQUEST, InvocationContext())
        assert (result.text == str(threading.get_ident())) is is_here


async def test_the_executor_of_a_function_reads_json_text() -> None:
    @tool
    def double(x: int, items: list[int] | None = None) -> int:
        return 2 * x + sum(items or ())

    (made,) = tools_from(double)
    large = ToolExecutionRequest("double", f'{{"x": 1, "items": [{",".join(["1"] * 50_000)}]}}')
    for request, text in (
        (REQUEST, "42"),
        (ToolExecutionRequest("double", '```{"x": "2",}```'), "4"),
        (large, "50002"),
    ):
        assert (await made.executor.execute(request, InvocationContext())).text == text


async def test_wrapped_executors_and_the_search_read_json_text() -> None:
    seen: list[object] = []

    @tool
    def double(x: int) -> int:
        seen.append(x)
        return 2 * x

    def see(call: ToolInputGuardrailRequest) -> None:
        seen.append(call.request.arguments)

    executor = cached(guarded(double, input_guardrails=see), ttl_seconds=60).executor
    for request in (REQUEST, ToolExecutionRequest("double", {"x": 21})):
        assert (await executor.execute(request, InvocationContext())).text == "42"
    assert seen == [{"x": 21}, 21]
    search = ToolSearch().tool(tools_from(double)).executor
    query = ToolExecutionRequest("search_tools", '{"query": "double"}')
    assert "double" in (await search.execute(query, InvocationContext())).text
    with pytest.raises(ArgumentsError, match="JSON object"):
        await search.execute(ToolExecutionRequest("search_tools", "double"), InvocationContext())


@tool
def decorated(x: int, y: int) -> int:
    return x + y


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ({SPECIFICATION: lambda request: "one"}, r"executor of 'double'.* must have a method execute"),
        ({SPECIFICATION: 3}, r"executor of 'double', 3, must have a method execute"),
        ({"double": asynchronously}, "a key of a mapping of tools must be a ToolSpecification, not 'double'"),
        ({SPECIFICATION: decorated}, r"function 'decorated'.* is a tool with a specification of its own"),
    ],
)
def test_what_cannot_be_an_executor_is_refused_when_the_tool_is_made(source: Any, match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        tools_from(source)
