from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bridge import ToolAnnotations, tool
from bridge.service.ai_service import ai_service
from bridge.service.approval import ApprovalPolicy, Decision, for_tools, unless_read_only
from bridge.service.messages import ToolExecutionResultMessage
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.function import function_tool
from bridge.tools.tool import ToolExecutionRequest
from tests.service.fakes import Assistant, FakeModel, ask, assistant, call, calls

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool

pytestmark = pytest.mark.anyio


class Bookings:
    """Tools of which one is read-only."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    @tool(annotations=ToolAnnotations(read_only=True))
    async def look(self) -> str:
        return "B-1, B-2"

    @tool
    async def cancel(self, booking: str) -> str:
        self.cancelled.append(booking)
        return f"{booking} is cancelled"


class Clerk:
    """Policy that decides by a list, and records its requests."""

    def __init__(self, *decisions: Decision | bool) -> None:
        self.decisions = list(decisions)
        self.asked: list[tuple[str, object, str]] = []

    async def __call__(self, request: ToolExecutionRequest, tool: Tool, context: InvocationContext) -> Decision | bool:
        self.asked.append((request.name, request.arguments, tool.name))
        return self.decisions.pop(0)


@pytest.mark.parametrize("concurrently", [False, True])
async def test_a_call_runs_when_it_is_approved_and_what_only_reads_needs_no_approval(
    way: str, concurrently: bool
) -> None:
    bookings, clerk = Bookings(), Clerk(True)
    service = assistant(
        calls(call("look"), call("cancel", booking="B-1")),
        "done",
        tools=[bookings],
        approval=ApprovalPolicy(approve=clerk),
        execute_tools_concurrently=concurrently,
    )
    result = await ask(service, way)
    assert clerk.asked == [("cancel", {"booking": "B-1"}, "cancel")]
    assert bookings.cancelled == ["B-1"]
    assert [each.result.text for each in result.tool_executions] == ["B-1, B-2", "B-1 is cancelled"]


@pytest.mark.parametrize(
    ("decision", "words"),
    [(Decision.no("Not before noon."), "Not before noon."), (False, "the call was not approved")],
)
async def test_a_call_that_is_not_approved_gives_the_model_words(
    way: str, decision: Decision | bool, words: str
) -> None:
    bookings = Bookings()
    model = FakeModel(calls(call("cancel", "1", booking="B-1"), call("look", "2")), "done")
    service = ai_service(
        Assistant, chat_model=model, tools=[bookings], approval=ApprovalPolicy(approve=Clerk(decision))
    )
    await ask(service, way)
    refused, looked = model.requests[1].messages[-2:]
    assert isinstance(refused, ToolExecutionResultMessage)
    assert isinstance(looked, ToolExecutionResultMessage)
    assert (refused.id, refused.text, refused.is_error) == ("1", words, True)
    assert (looked.id, looked.text, looked.is_error) == ("2", "B-1, B-2", False)
    assert bookings.cancelled == []


async def test_approval_may_be_for_some_tools_only(way: str) -> None:
    clerk = Clerk(False)
    service = assistant(
        calls(call("look"), call("cancel", booking="B-1")),
        "done",
        tools=[bookings := Bookings()],
        approval=ApprovalPolicy(approve=clerk, applies=for_tools("look")),
    )
    await ask(service, way)
    assert [name for name, *_ in clerk.asked] == ["look"]
    assert bookings.cancelled == ["B-1"]


async def test_arguments_that_cannot_be_read_need_no_approval_since_nothing_can_run(way: str) -> None:
    clerk = Clerk()
    broken = ToolExecutionRequest("cancel", "{oh no", "1")
    service = assistant(calls(broken), "done", tools=[Bookings()], approval=ApprovalPolicy(approve=clerk))
    result = await ask(service, way)
    assert result.tool_executions[0].result.is_error
    assert clerk.asked == []


@pytest.mark.parametrize("wanted", [ToolExecutionRequest("cancel", "{oh no"), call("cancl", booking="B-1")])
async def test_a_handler_cannot_correct_a_call_into_one_that_nobody_approved(
    way: str, wanted: ToolExecutionRequest
) -> None:
    corrected = ToolExecutionRequest("cancel", {"booking": "B-2"})
    bookings = Bookings()
    service = assistant(
        calls(wanted),
        "done",
        tools=[bookings],
        approval=ApprovalPolicy(approve=Clerk()),
        policy=ExecutionPolicy(on_arguments_error=lambda *_: corrected, on_unknown_tool=lambda *_: corrected),
    )
    result = await ask(service, way)
    assert bookings.cancelled == []
    assert result.tool_executions[0].result.text == "this call of 'cancel' was not approved; call the tool again"


@pytest.mark.parametrize(("trusted", "needed"), [(True, False), (False, True)])
async def test_annotations_count_only_where_they_can_be_relied_on(trusted: bool, needed: bool) -> None:
    tool = replace(function_tool(Bookings().look), trusted=trusted)
    assert unless_read_only(tool) is needed
    assert tool.trusted_annotations == (ToolAnnotations(read_only=True) if trusted else ToolAnnotations())


@pytest.mark.parametrize(
    ("annotations", "needed"),
    [
        (None, True),
        (ToolAnnotations(), True),
        (ToolAnnotations(read_only=False), True),
        (ToolAnnotations(read_only=True), False),
    ],
)
async def test_a_tool_needs_approval_unless_it_only_reads(annotations: ToolAnnotations | None, needed: bool) -> None:
    @tool(annotations=annotations)
    def work() -> None: ...

    assert unless_read_only(function_tool(work)) is needed
