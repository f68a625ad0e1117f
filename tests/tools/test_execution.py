"""Failures, handlers and callbacks; see `test_execution_time` for calls that end early."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.errors import ArgumentsError, DefinitionError, ResultError, ToolError, UnknownToolError
from bridge.service.messages import ToolExecutionResultMessage
from bridge.tools.content import Text
from bridge.tools.context import InvocationContext
from bridge.tools.execution import ExecutionPolicy, execute
from bridge.tools.function import tool, tools_from
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from bridge.tools.transform import renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.execution import Remedy

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

REMOTE = ExecutionPolicy(reveal_errors=False)


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool(name="fail")
async def fail_on_purpose(reason: str) -> str:
    raise ToolError(f"try again later: {reason}")


@tool(name="crash")
async def crash_by_mistake(secret: str = "") -> str:
    raise ValueError(secret)


@tool
async def lie() -> int:
    return "secret"  # type: ignore[return-value]  # the point


TOOLS = ToolBox(add, fail_on_purpose, crash_by_mistake, lie)


async def run(name: str, arguments: Mapping[str, Any] | str = "", **policy: Any) -> ToolExecutionResult:
    return await execute(TOOLS, ToolExecutionRequest(name, arguments), InvocationContext(), ExecutionPolicy(**policy))


def failed(text: str) -> ToolExecutionResult:
    return ToolExecutionResult((Text(text),), is_error=True)


# --- the table of errors: what happens by default ---------------------------------------------------------------------


async def test_a_call_gives_a_result() -> None:
    assert await run("add", {"a": 1, "b": 2}) == ToolExecutionResult((Text("3"),), {"result": 3})


async def test_the_json_text_of_a_model_is_as_good_as_a_mapping() -> None:
    assert await run("add", '```json\n{"a": "1", "b": 2.0,}\n```') == await run("add", {"a": 1, "b": 2})


async def test_arguments_that_do_not_parse_are_told_to_the_model() -> None:
    result = await run("add", '{"a": 1, "b":')
    assert result.is_error
    assert result.text.startswith("invalid arguments for 'add': should be a JSON object (")


async def test_arguments_that_do_not_validate_are_told_to_the_model_together() -> None:
    assert await run("add", {"a": "x"}) == failed(
        "invalid arguments for 'add': a: should be a valid integer, got \"x\"; b: is required"
    )


async def test_arguments_errors_name_the_tool_as_its_caller_knows_it() -> None:
    (original,) = tools_from(add)
    tools = ToolBox(renamed(original, "plus"))
    result = await execute(tools, ToolExecutionRequest("plus", {"a": 1}), InvocationContext())
    assert result == failed("invalid arguments for 'plus': b: is required")


@pytest.mark.parametrize("policy", [ExecutionPolicy(), REMOTE, ExecutionPolicy(propagate=True)])
async def test_what_an_author_raises_for_the_model_reaches_it(policy: ExecutionPolicy) -> None:
    result = await execute(TOOLS, ToolExecutionRequest("fail", {"reason": "full"}), InvocationContext(), policy)
    assert result == failed("try again later: full")


async def test_what_an_author_raises_in_a_task_group_reaches_the_model() -> None:
    @tool
    async def group() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail_on_purpose, "full")
        return "never"

    result = await execute(ToolBox(group), ToolExecutionRequest("group"), InvocationContext(), REMOTE)
    assert result == failed("try again later: full")


async def test_an_unexpected_exception_is_logged_and_told_locally(caplog: pytest.LogCaptureFixture) -> None:
    assert await run("crash", {"secret": "hush"}) == failed("hush")
    [record] = caplog.records
    assert (record.name, record.levelno) == ("bridge.tools", logging.ERROR)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_an_exception_without_words_is_told_by_its_class() -> None:
    assert await run("crash") == failed("ValueError")


async def test_an_unexpected_exceptions_text_stays_on_this_side_of_a_connection() -> None:
    assert await run("crash", {"secret": "hush"}, reveal_errors=False) == failed(
        "the tool 'crash' failed; its server's log says why"
    )


@pytest.mark.parametrize("where", ["policy", "tool"])
async def test_an_unexpected_exception_can_stop_the_invocation(where: str) -> None:
    (crash,) = tools_from(crash_by_mistake)
    if where == "tool":
        crash = replace(crash, policy=replace(crash.policy, propagate=True))
    policy = ExecutionPolicy(propagate=where == "policy")
    with pytest.raises(ValueError, match="hush"):
        await execute(ToolBox(crash), ToolExecutionRequest("crash", {"secret": "hush"}), InvocationContext(), policy)


async def test_a_result_that_is_not_what_was_declared_is_told_without_its_value_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await run("lie", reveal_errors=False) == failed(
        "the tool 'lie' returned a value of type 'str' that does not conform to 'int'"
    )
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ResultError]


async def test_a_tool_that_ends_the_process_only_fails() -> None:
    @tool
    async def leave() -> None:
        raise SystemExit(3)

    result = await execute(ToolBox(leave), ToolExecutionRequest("leave"), InvocationContext())
    assert result == failed("the tool tried to end the process")


async def test_an_unknown_tool_is_named_with_the_nearest_names() -> None:
    assert await run("ad") == failed("there is no tool named 'ad'; did you mean 'add'?")
    assert await run("zzz") == failed("there is no tool named 'zzz'")


# --- what can be changed ----------------------------------------------------------------------------------------------


def both(answer: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return a handler as it is, and as a coroutine function."""

    async def asynchronous(*arguments: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return answer(*arguments)

    return [answer, asynchronous]


@pytest.mark.parametrize("handler", both(lambda error, request, context, attempt: f"no: {error}"))
async def test_handlers_give_the_model_other_words(handler: Any) -> None:
    assert await run("fail", {"reason": "full"}, on_execution_error=handler) == failed("no: try again later: full")
    assert await run("crash", {"secret": "hush"}, on_execution_error=handler) == failed("no: hush")
    assert await run("add", {"a": 1}, on_arguments_error=handler) == failed(
        "no: invalid arguments for 'add': b: is required"
    )


@pytest.mark.parametrize("handler", both(lambda error, request, context: f"use one of {error.suggestions}"))
async def test_an_unknown_tool_can_be_told_in_other_words(handler: Any) -> None:
    assert await run("ad", on_unknown_tool=handler) == failed("use one of ('add',)")


async def test_a_handler_can_give_a_whole_result() -> None:
    whole = ToolExecutionResult((Text("sunny"),), {"weather": "sunny"})
    assert await run("crash", on_execution_error=lambda *_: whole) == whole


def _corrected(error: Exception, request: ToolExecutionRequest, *_: Any) -> ToolExecutionRequest:
    return replace(request, name="add", arguments='{"a": 1, "b": 2}')


@pytest.mark.parametrize("handler", both(_corrected))
@pytest.mark.parametrize("name", ["add", "fail", "crash", "ad"])
async def test_handlers_can_correct_the_request(name: str, handler: Any) -> None:
    result = await run(name, on_arguments_error=handler, on_execution_error=handler, on_unknown_tool=handler)
    assert result == ToolExecutionResult((Text("3"),), {"result": 3})


@pytest.mark.parametrize("name", ["add", "fail", "crash", "ad"])
@pytest.mark.parametrize(
    ("remedy", "result"),
    [
        (None, failed("")),
        (ToolExecutionResultMessage("1", "x", (Text("there"),)), ToolExecutionResult((Text("there"),))),
        (ToolExecutionResultMessage("1", "x", (Text("no"),), is_error=True), failed("no")),
    ],
)
async def test_handlers_can_answer_nothing_or_a_message(name: str, remedy: Any, result: ToolExecutionResult) -> None:
    def handler(*_: Any) -> Any:
        return remedy

    told = await run(name, on_arguments_error=handler, on_execution_error=handler, on_unknown_tool=handler)
    assert told == result


async def test_a_handler_that_answers_something_else_is_a_mistake_that_is_named() -> None:
    with pytest.raises(DefinitionError, match="an error handler for 'fail' returned 5; return text, None"):
        await run("fail", {"reason": "x"}, on_execution_error=lambda *_: 5)


async def test_corrections_are_numbered_and_bounded() -> None:
    seen: list[tuple[str, Any, int]] = []

    def again(error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int) -> Remedy:
        seen.append((type(error).__name__, request.arguments, attempt))
        return replace(request, arguments={"reason": f"{attempt}"})

    result = await run("fail", {}, on_arguments_error=again, on_execution_error=again, max_attempts=3)
    assert result == failed("'fail' failed 3 times; last: try again later: 2")
    assert seen == [
        ("ArgumentsError", {}, 1),
        ("ToolError", {"reason": "1"}, 2),
        ("ToolError", {"reason": "2"}, 3),
    ]


async def test_the_last_of_many_failures_is_not_revealed_either() -> None:
    result = await run(
        "crash", {"secret": "hush"}, on_execution_error=lambda error, request, *_: request, reveal_errors=False
    )
    assert result == failed("'crash' failed 3 times; last: the tool 'crash' failed; its server's log says why")


async def test_corrections_of_an_unknown_name_are_bounded_too() -> None:
    result = await run("ad", on_unknown_tool=lambda error, request, context: request, max_attempts=1)
    assert result == failed("'ad' failed 1 times; last: there is no tool named 'ad'; did you mean 'add'?")


class StopError(Exception):
    """Exception of a handler or callback."""


def stop(*_: Any) -> Any:
    raise StopError


@pytest.mark.parametrize("handler", both(stop))
@pytest.mark.parametrize("name", ["add", "fail", "crash", "ad"])
async def test_what_a_handler_raises_stops_the_invocation(name: str, handler: Any) -> None:
    with pytest.raises(StopError):
        await run(name, on_arguments_error=handler, on_execution_error=handler, on_unknown_tool=handler)


async def test_handlers_get_the_error_the_request_and_the_context() -> None:
    context = InvocationContext()
    seen: list[tuple[Any, ...]] = []

    def remember(*arguments: Any) -> str:
        seen.append(arguments)
        return "noted"

    policy = ExecutionPolicy(on_unknown_tool=remember, on_arguments_error=remember, on_execution_error=remember)
    for name in ("ad", "add", "crash"):
        await execute(TOOLS, ToolExecutionRequest(name, '{"c": 1}' if name != "crash" else "{}"), context, policy)
    assert [request.arguments for _, request, *_ in seen] == [{"c": 1}, {"c": 1}, {}]
    assert [type(error) for error, *_ in seen] == [UnknownToolError, ArgumentsError, ValueError]
    assert [(request.name, which is context, *attempt) for _, request, which, *attempt in seen] == [
        ("ad", True),
        ("add", True, 1),
        ("crash", True, 1),
    ]


async def test_a_tool_that_reports_an_unknown_tool_of_its_own_has_failed() -> None:
    @tool
    async def delegate() -> str:
        raise UnknownToolError("delegate")

    result = await execute(
        ToolBox(delegate), ToolExecutionRequest("delegate"), InvocationContext(), ExecutionPolicy(on_unknown_tool=stop)
    )
    assert result == failed("there is no tool named 'delegate'")
