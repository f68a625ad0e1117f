from __future__ import annotations

from typing import Any

import pytest

from bridge import (
    DefinitionError,
    InvocationContext,
    ToolBox,
    ToolExecutionRequest,
    ToolExecutionResult,
    execute,
    guarded,
    tool,
    tools_from,
)
from bridge.service import Refuse, Reprompt, Rewrite, ToolInputGuardrailRequest, ToolOutputGuardrailRequest
from bridge.testing import connected, recorded
from tests.service.fakes import assistant, call, calls

pytestmark = pytest.mark.anyio


@tool
async def read(path: str) -> dict[str, str]:
    """Read a file."""
    return {"text": f"{path}: key 4711"}


def inside(request: ToolInputGuardrailRequest) -> Refuse | Rewrite | None:
    path = request.request.arguments["path"]  # type: ignore[index]  # a mapping
    if path.startswith("/"):
        return Refuse(f"{path} is outside")
    return Rewrite({"path": path.strip()}) if path != path.strip() else None


async def redacted(request: ToolOutputGuardrailRequest) -> Rewrite | None:
    return Rewrite(request.text.replace("4711", "****"))


async def result_of(source: object, **arguments: Any) -> ToolExecutionResult:
    return await execute(ToolBox(source), ToolExecutionRequest("read", arguments), InvocationContext())


async def test_guardrails_check_the_calls_and_results_of_local_and_imported_tools() -> None:
    async with connected(read) as provider:
        for source in (read, provider.tools):
            spied, log = recorded(source)
            safe = guarded(spied, input_guardrails=inside, output_guardrails=[redacted])
            assert await result_of(safe, path=" a.txt ") == ToolExecutionResult.of_text('{"text":"a.txt: key ****"}')
            refused = await result_of(safe, path="/etc/passwd")
            assert (refused.is_error, refused.text) == (
                True,
                "the guardrail 'inside' refused the call of 'read': /etc/passwd is outside",
            )
            assert [each.request.arguments for each in log] == [{"path": "a.txt"}]


async def test_a_model_reads_why_a_result_was_refused_and_goes_on() -> None:
    def never(request: ToolOutputGuardrailRequest) -> Refuse:
        assert (request.specification.name, request.context.memory_id) == ("read", None)
        return Refuse("not for you")

    service = assistant(
        calls(call("read", path="a")),
        "Sorry",
        tools=[guarded(read, output_guardrails=[never, lambda _: pytest.fail("an earlier guardrail refused")])],
    )
    result = await service.chat("Read a")
    assert result.content == "Sorry"
    assert [each.result.text for each in result.tool_executions] == [
        "the guardrail 'never' refused the result of 'read': not for you"
    ]


def test_a_tool_whose_result_may_be_rewritten_publishes_no_output_schema() -> None:
    (plain,) = tools_from(read)
    assert plain.specification.output_schema is not None
    assert guarded(read, input_guardrails=inside).specification == plain.specification
    assert guarded(read, output_guardrails=redacted).specification.output_schema is None


async def test_a_result_may_be_replaced_as_a_whole() -> None:
    other = ToolExecutionResult.error("no")
    safe = guarded(read, output_guardrails=lambda _: Rewrite(other))
    assert await result_of(safe, path="a") == other


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input_guardrails": [lambda: None]}, "is called with 1 argument, the request"),
        ({"output_guardrails": None}, "output_guardrails must be a list"),
    ],
)
def test_wrong_guardrails_are_refused_at_once(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        guarded(read, **options)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input_guardrails": lambda _: Rewrite("a")}, "rewrote the arguments to 'a'; give a mapping"),
        ({"output_guardrails": lambda _: Rewrite(3)}, "rewrote the result to 3; give text or a ToolExecutionResult"),
        ({"output_guardrails": lambda _: Reprompt("Again")}, "returned Reprompt(text='Again')"),
    ],
)
async def test_a_wrong_outcome_is_an_error(options: dict[str, Any], problem: str) -> None:
    assert problem in (await result_of(guarded(read, **options), path="a")).text
