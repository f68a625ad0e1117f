"""Order of callbacks and events, and outcomes beside success and failure."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.errors import ToolError
from bridge.tools.channel import Channel
from bridge.tools.content import Image, Text
from bridge.tools.context import InvocationContext
from bridge.tools.execution import ExecutionPolicy, execute, execute_timed
from bridge.tools.function import tool, tools_from
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.tool import ToolExecution, ToolExecutionRequest, ToolExecutionResult, ToolPolicy
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.questions import Answer, Question

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class StopError(Exception):
    """Exception of a callback."""


# --- callbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
async def test_callbacks_see_the_request_before_and_the_execution_after(is_async: bool) -> None:
    seen: list[Any] = []
    context = InvocationContext()

    @tool
    async def work(value: str) -> str:
        seen.append("work")
        if value == "bad":
            raise ToolError("it is bad")
        return value

    def note(what: Any, where: InvocationContext) -> None:
        assert where is context
        seen.append(what)

    async def note_later(what: Any, where: InvocationContext) -> None:
        await anyio.lowlevel.checkpoint()
        note(what, where)

    callback = note_later if is_async else note
    policy = ExecutionPolicy(before=(callback, callback), after=(callback,))
    for value in ("good", "bad"):
        request = ToolExecutionRequest("work", {"value": value}, "id")
        begun = datetime.now(UTC)
        result = await execute(ToolBox(work), request, context, policy)
        execution = seen.pop()
        assert seen == [request, request, "work"]
        assert isinstance(execution, ToolExecution)
        assert execution == ToolExecution(
            request=request,
            result=result,
            started_at=execution.started_at,
            duration_seconds=execution.duration_seconds,
        )
        assert begun <= execution.started_at <= datetime.now(UTC)
        assert execution.duration_seconds >= 0
        assert (str(execution.error) if execution.error else None) == {"good": None, "bad": "it is bad"}[value]
        seen.clear()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_only_a_callback_before_the_tool_may_stop_the_invocation(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @tool
    async def work() -> None:
        calls.append("work")

    def stop(*_: Any) -> None:
        raise StopError

    policy = ExecutionPolicy(**{when: (stop,)})  # type: ignore[arg-type]  # the name is one of two
    with pytest.raises(StopError) if when == "before" else nullcontext():
        result = await execute(ToolBox(work), ToolExecutionRequest("work"), InvocationContext(), policy)
        assert result.text == "Success"
    assert calls == ([] if when == "before" else ["work"])
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == ([StopError] * (when == "after"))


async def test_an_execution_can_be_timed_without_callbacks() -> None:
    @tool
    async def work() -> None:
        pass

    execution = await execute_timed(ToolBox(work), ToolExecutionRequest("work"), InvocationContext())
    assert execution.result == ToolExecutionResult((Text("Success"),))
    assert execution.error is None


async def test_two_identical_calls_are_two_calls() -> None:
    calls: list[int] = []

    @tool
    async def count() -> int:
        calls.append(1)
        return len(calls)

    request = ToolExecutionRequest("count")
    tools, context = ToolBox(count), InvocationContext()
    results = [await execute(tools, request, context) for _ in range(2)]
    assert [result.text for result in results] == ["1", "2"]


# --- output budgets ---------------------------------------------------------------------------------------------------


def speaking(function: Callable[..., Any], max_output_chars: int | None) -> ToolBox:
    (found,) = tools_from(function)
    return ToolBox(replace(found, policy=ToolPolicy(max_output_chars=max_output_chars)))


async def said(value: Any, max_output_chars: int | None) -> ToolExecutionResult:
    @tool
    async def speak():  # type: ignore[no-untyped-def]  # noqa: ANN202 - anything
        if isinstance(value, Exception):
            raise value
        return value

    return await execute(speaking(speak, max_output_chars), ToolExecutionRequest("speak"), InvocationContext())


async def test_a_text_over_the_budget_keeps_head_and_tail_for_the_model_and_the_whole_in_the_result() -> None:
    text = "a" * 100 + "b" * 800 + "c" * 100
    result = await said(text, 90)
    assert result.text == text
    assert result.content == (Text(text),)
    assert result.model_text == f"{'a' * 60}\n… 910 characters left out …\n{'c' * 30}"


@pytest.mark.parametrize("budget", [None, 10, 1000])
async def test_a_text_within_the_budget_is_read_whole(budget: int | None) -> None:
    assert await said("a" * 10, budget) == ToolExecutionResult((Text("a" * 10),))


@pytest.mark.parametrize("budget", [1, 2, 9])
async def test_any_budget_will_do(budget: int) -> None:
    result = await said("0123456789", budget)
    head, _, tail = result.model_text.partition(f"\n… {10 - budget} characters left out …\n")
    assert "0123456789".startswith(head)
    assert "0123456789".endswith(tail)
    assert len(head + tail) == budget


async def test_blocks_that_are_no_text_are_not_cut() -> None:
    picture = Image(b"\x00" * 1000)
    result = await said(["a" * 50, picture, "b" * 50], 9)
    assert result.content == (Text("a" * 50), picture, Text("b" * 50))
    assert result.model_content == (Text("aaaaaa\n… 92 characters left out …\nbbb"), picture)


async def test_structured_content_stays_whole() -> None:
    result = await said({"a": "x" * 100}, 9)
    assert result.structured_content == {"a": "x" * 100}
    assert len(result.model_text) < 50


async def test_an_error_is_held_to_the_budget_too() -> None:
    result = await said(ToolError("x" * 1000), 9)
    assert result.is_error
    assert len(result.model_text) < 50
    assert len(result.text) == 1000


# --- asking the caller ------------------------------------------------------------------------------------------------


class Later(Channel):
    """A channel whose answers arrive only when the call is run again."""

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        raise InputRequired(questions, state="opaque")


@tool
async def careless(context: InvocationContext) -> str:
    try:
        await context.elicit("Sure?", {"type": "object", "properties": {}}, key="sure")
    except Exception as error:  # noqa: BLE001 - the point
        return f"ate {error!r}"
    return "never"


@tool
def careless_in_a_thread(context: InvocationContext) -> str:
    try:
        context.blocking.elicit("Sure?", {"type": "object", "properties": {}}, key="sure")
    except Exception as error:  # noqa: BLE001 - the point
        return f"ate {error!r}"
    return "never"


@tool
async def careless_in_a_group(context: InvocationContext) -> str:
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(careless, context)
    except Exception as error:  # noqa: BLE001 - the point
        return f"ate {error!r}"
    return "never"


@pytest.mark.parametrize("function", [careless, careless_in_a_thread, careless_in_a_group])
@pytest.mark.parametrize("policy", [ExecutionPolicy(), ExecutionPolicy(on_execution_error=lambda *_: "ate it")])
async def test_what_asks_the_caller_passes_through_an_authors_except_exception(
    function: Callable[..., Any], policy: ExecutionPolicy
) -> None:
    (asking,) = tools_from(function)
    with pytest.raises(InputRequired) as caught:
        await execute(ToolBox(asking), ToolExecutionRequest(asking.name), InvocationContext(channel=Later()), policy)
    assert caught.value.questions == {"sure": Elicitation("Sure?", {"type": "object", "properties": {}})}
    assert caught.value.state == "opaque"


async def test_a_call_that_asks_is_over_for_no_callback() -> None:
    after: list[Any] = []
    policy = ExecutionPolicy(after=(lambda *seen: after.append(seen),))
    with pytest.raises(InputRequired):
        await execute(ToolBox(careless), ToolExecutionRequest("careless"), InvocationContext(channel=Later()), policy)
    assert after == []


async def test_a_caller_that_cannot_be_asked_is_a_tool_error() -> None:
    @tool
    async def ask(context: InvocationContext) -> str:
        await context.elicit("Sure?", {"type": "object", "properties": {}})
        return "never"

    result = await execute(ToolBox(ask), ToolExecutionRequest("ask"), InvocationContext())
    assert result == ToolExecutionResult.error("this tool needs to ask something, and its caller cannot be asked")
