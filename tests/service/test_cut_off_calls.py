"""Replies that break off within a tool call."""

from __future__ import annotations

import pytest

from bridge import ApprovalPolicy, InvocationSuspended, TokenStream, resume, tool
from bridge.errors import ArgumentsError
from bridge.service import Decision
from bridge.service.chat_model import ChatResponse, FinishReason
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.tool import ToolExecutionRequest
from tests.service.fakes import Assistant, ask, assistant, call, calls

pytestmark = pytest.mark.anyio


def broken_off(*requests: ToolExecutionRequest, reason: FinishReason = FinishReason.LENGTH) -> ChatResponse:
    """Return a reply that requests tools, and lacks its end."""
    return ChatResponse(message=calls(*requests), finish_reason=reason)


@pytest.mark.parametrize(
    ("arguments", "doubtful"),
    [("", 1), ('{"a": 1', 1), ('"{}"', 1), ("[1]", 1), ({}, 1), ({"a": 1}, 1), ('{"a": 1}', None), (" {} ", None)],
)
def test_the_last_call_is_doubtful_unless_its_text_is_an_object(
    arguments: str | dict[str, int], doubtful: int | None
) -> None:
    last = ToolExecutionRequest("add", arguments)
    for reason in FinishReason:
        expected = doubtful if reason in {FinishReason.LENGTH, FinishReason.CONTENT_FILTER} else None
        assert broken_off(call("add"), last, reason=reason).doubtful_call == expected


def test_without_calls_nothing_is_doubtful() -> None:
    assert broken_off().doubtful_call is None


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
async def test_the_model_is_told_and_the_handler_of_arguments_decides(
    way: str, together: bool, reason: FinishReason
) -> None:
    ran: list[str] = []
    heard: list[tuple[str | None, int]] = []

    @tool
    async def wipe(folder: str = "everything") -> str:
        ran.append(folder)
        return "wiped"

    def corrected(error: Exception, request: ToolExecutionRequest, _: object, attempt: int) -> ToolExecutionRequest:
        assert isinstance(error, ArgumentsError)
        heard.append((request.arguments_text, attempt))
        return ToolExecutionRequest("wipe", {"folder": "safe"})

    first, last = call("wipe", "1", folder="a"), ToolExecutionRequest("wipe", "", "2")
    reply = broken_off(first, last, reason=reason)
    options = {"tools": [wipe], "execute_tools_concurrently": together}
    result = await ask(assistant(reply, "Done.", **options), way)
    assert ran == ["a"]
    assert [each.result.is_error for each in result.tool_executions] == [False, True]
    assert "not run; call the tool again" in result.tool_executions[1].result.text

    policy = ExecutionPolicy(on_arguments_error=corrected)
    result = await ask(assistant(reply, "Done.", policy=policy, **options), way)
    assert heard == [("", 1)]
    assert sorted(ran) == ["a", "a", "safe"]
    assert [each.result.text for each in result.tool_executions] == ["wiped", "wiped"]


async def test_nobody_is_asked_to_approve_a_call_that_does_not_run(way: str) -> None:
    asked: list[str | None] = []
    ran: list[str] = []

    def approve(request: ToolExecutionRequest, *_: object) -> Decision:
        asked.append(request.id)
        return Decision.later()

    @tool
    async def wipe(folder: str = "everything") -> str:
        ran.append(folder)
        return "wiped"

    reply = broken_off(call("wipe", "1", folder="a"), ToolExecutionRequest("wipe", "", "2"))
    service: Assistant = assistant(reply, "Done.", tools=[wipe], approval=ApprovalPolicy(approve=approve))
    with pytest.raises(InvocationSuspended) as caught:
        await ask(service, way)
    assert asked == ["1"]
    state = type(caught.value.state).from_json(caught.value.state.to_json())
    resumed = await resume(service, state, {0: Decision.yes()})
    if isinstance(resumed, TokenStream):
        async for _ in (stream := resumed):
            pass
        resumed = stream.result
    assert [each.result.is_error for each in resumed.tool_executions] == [False, True]
    assert ran == ["a"]
