from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ToolError, tool
from bridge.errors import ChatModelError, DefinitionError, ToolLimitError
from bridge.service import compensation
from bridge.service.ai_service import ai_service, resume
from bridge.service.approval import ApprovalPolicy, Decision, InvocationSuspended, SuspendedInvocation, for_tools
from bridge.service.compensation import compensated
from bridge.service.loop import InvocationLimits
from bridge.service.tool_search import ToolSearch
from bridge.tools.execution import ExecutionPolicy
from tests.service.fakes import DEADLINE_SECONDS, Assistant, FakeModel, ask, assistant, call, calls

if TYPE_CHECKING:
    from bridge.tools.tool import Tool, ToolExecution, ToolExecutionRequest

pytestmark = pytest.mark.anyio


class Trip:
    """Bookings that were made, and undone."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def book_flight(self, city: str) -> dict[str, str]:
        self.done.append(f"flight to {city}")
        return {"booking": f"F-{city}"}

    async def cancel_flight(self, booking: str) -> None:
        self.done.append(f"no flight {booking}")

    async def book_hotel(self, city: str) -> str:
        if city == "Atlantis":
            raise ToolError("no such place")
        self.done.append(f"hotel in {city}")
        return "H-1"

    async def cancel_hotel(self, execution: ToolExecution, context: object) -> None:
        self.done.append(f"no hotel {execution.result.text}")

    def tools(self) -> list[Any]:
        return [
            compensated(self.book_flight, "cancel_flight"),
            compensated(self.book_hotel, self.cancel_hotel),
            self.cancel_flight,
        ]


ERROR = ChatModelError("overloaded", provider="fake")


@pytest.mark.parametrize("concurrently", [False, True])
async def test_what_succeeded_is_undone_in_reverse_when_the_invocation_fails(way: str, concurrently: bool) -> None:
    trip = Trip()
    booking = calls(call("book_flight", city="Rome"), call("book_hotel", city="Rome"))
    failed = calls(call("book_hotel", city="Atlantis"))
    service = assistant(booking, failed, ERROR, tools=trip.tools(), execute_tools_concurrently=concurrently)
    with pytest.raises(ChatModelError):
        await ask(service, way)
    undone = {"flight to Rome": "no flight F-Rome", "hotel in Rome": "no hotel H-1"}
    booked = trip.done[:2]  # concurrent calls may be undone in any order
    assert sorted(booked) == ["flight to Rome", "hotel in Rome"]
    assert trip.done[2:] == [undone[each] for each in reversed(booked)]


async def test_nothing_is_undone_when_it_succeeds_although_a_tool_failed(way: str) -> None:
    trip = Trip()
    service = assistant(
        calls(call("book_flight", city="Rome"), call("book_hotel", city="Atlantis")), "Half.", tools=trip.tools()
    )
    await ask(service, way)
    assert trip.done == ["flight to Rome"]


async def test_an_observer_that_fails_undoes_nothing(way: str) -> None:
    trip = Trip()

    def observe(*_: object) -> None:
        raise LookupError("no such column")

    service = assistant(
        calls(call("book_flight", city="Rome")), "Booked.", tools=trip.tools(), policy=ExecutionPolicy(after=(observe,))
    )
    assert (await ask(service, way)).content == "Booked."
    assert trip.done == ["flight to Rome"]


async def test_a_limit_is_a_failure_too(way: str) -> None:
    trip = Trip()
    again = [calls(call("book_hotel", city="Rome"))] * 2
    with pytest.raises(ToolLimitError):
        await ask(assistant(*again, tools=trip.tools(), limits=InvocationLimits(max_tool_round_trips=1)), way)
    assert trip.done == ["hotel in Rome", "no hotel H-1"]


async def test_what_is_cancelled_is_undone_before_it_ends(way: str) -> None:
    trip = Trip()
    with anyio.fail_after(DEADLINE_SECONDS), anyio.CancelScope() as scope:

        async def leave() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        booked = calls(call("book_flight", city="Rome"), call("leave"))
        await ask(assistant(booked, tools=[*trip.tools(), leave]), way)
    assert scope.cancelled_caught
    assert trip.done == ["flight to Rome", "no flight F-Rome"]


async def test_what_cannot_be_undone_is_noted_and_the_rest_is_undone(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    trip = Trip()

    def refuse(execution: ToolExecution, context: object) -> None:
        raise KeyError("too late")

    async def pay() -> None: ...

    service = assistant(
        calls(call("book_flight", city="Rome"), call("pay")), ERROR, tools=[*trip.tools(), compensated(pay, refuse)]
    )
    with pytest.raises(ChatModelError) as caught:
        await ask(service, way)
    assert trip.done == ["flight to Rome", "no flight F-Rome"]
    note = "the call of the tool 'pay' could not be undone: 'too late' (KeyError)"
    assert caught.value.__notes__ == [note]
    assert note in caplog.text
    caught.value.__notes__.clear()


async def test_all_that_is_not_undone_within_the_limit_is_noted(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compensation, "UNDO_SECONDS", 0.01)
    trip = Trip()

    async def hang(execution: ToolExecution, context: object) -> None:
        await anyio.sleep_forever()

    async def pay() -> None: ...

    booked = calls(call("book_flight", city="Rome"), call("book_hotel", city="Rome"), call("pay"))
    service = assistant(booked, ERROR, tools=[*trip.tools(), compensated(pay, hang)])
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ChatModelError) as caught:
        await ask(service, way)
    late = "could not be undone: not finished within 0.01 seconds"
    assert caught.value.__notes__ == [
        f"the call of the tool {name!r} {late}" for name in ("pay", "book_hotel", "book_flight")
    ]
    assert trip.done == ["flight to Rome", "hotel in Rome"]
    caught.value.__notes__.clear()


async def test_undoing_by_a_tool_that_fails_is_noted_too(way: str) -> None:
    async def book() -> str:
        return "B"

    async def unbook() -> None:
        raise ToolError("too late")

    service = assistant(calls(call("book")), ERROR, tools=[compensated(book, "unbook"), unbook])
    with pytest.raises(ChatModelError) as caught:
        await ask(service, way)
    assert caught.value.__notes__ == ["the call of the tool 'book' could not be undone: too late (RuntimeError)"]
    caught.value.__notes__.clear()


async def test_a_tool_that_undoes_another_is_neither_shown_to_the_model_nor_called_by_it(way: str) -> None:
    trip = Trip()
    model = FakeModel(
        calls(call("cancel_flight", booking="F-Rome"), call("search_tools", query="cancel flight")), "Ok."
    )
    service = ai_service(Assistant, chat_model=model, tools=trip.tools())
    result = await ask(service, way)
    assert [each.name for each in model.requests[0].tool_specifications] == ["book_flight", "book_hotel"]
    assert result.tool_executions[0].result.is_error
    assert trip.done == []


async def test_a_tool_that_undoes_another_is_not_found_by_a_search() -> None:
    model = FakeModel(calls(call("search_tools", query="cancel a flight")), "Ok.")
    service = ai_service(Assistant, chat_model=model, tools=Trip().tools(), tool_search=ToolSearch())
    result = await service.chat("Hello")
    assert "cancel_flight" not in result.tool_executions[0].result.text


async def test_a_tool_that_is_to_undo_another_has_to_be_there() -> None:
    async def book() -> str:
        return "B"

    with pytest.raises(DefinitionError, match="'book' is undone by 'unbook', which the service does not have"):
        assistant("never", tools=[compensated(book, "unbook")])


@pytest.mark.parametrize("is_dynamic", [False, True])
async def test_a_provided_tool_that_is_to_undo_another_has_to_be_there_before_the_model_is_asked(
    is_dynamic: bool,
) -> None:
    trip = Trip()

    class Provider:
        def __init__(self, *tools: object) -> None:
            self.is_dynamic = is_dynamic
            self.tools = tools

        def provide_tools(self, request: object) -> object:
            return self.tools

    booking = compensated(trip.book_flight, "cancel_flight")
    for providers in ([Provider(booking)], [Provider(), Provider(booking)]):
        service = assistant("never", tool_providers=providers)
        with pytest.raises(DefinitionError, match="undone by 'cancel_flight', which the service does not have"):
            await service.chat("Hello")
    service = assistant(
        calls(call("book_flight", city="Rome")), ERROR, tools=[booking], tool_providers=[Provider(trip.cancel_flight)]
    )
    with pytest.raises(ChatModelError):
        await service.chat("Hello")
    assert trip.done == ["flight to Rome", "no flight F-Rome"]


async def test_undoing_needs_no_approval_of_its_own(way: str) -> None:
    trip = Trip()
    asked: list[str] = []

    def approve(request: Any, tool: Tool, context: object) -> bool:
        asked.append(tool.name)
        return True

    service = assistant(
        calls(call("book_flight", city="Rome")),
        ERROR,
        tools=trip.tools(),
        approval=ApprovalPolicy(approve=approve),
    )
    with pytest.raises(ChatModelError):
        await ask(service, way)
    assert asked == ["book_flight"]
    assert trip.done == ["flight to Rome", "no flight F-Rome"]


async def test_only_one_tool_is_compensated_at_a_time() -> None:
    class Two:
        @tool
        def a(self) -> None: ...

        @tool
        def b(self) -> None: ...

    with pytest.raises(DefinitionError, match="expected one tool"):
        compensated(Two(), "c")


@pytest.mark.parametrize("concurrently", [False, True])
async def test_earlier_successes_are_undone_when_a_tool_fails_and_the_model_goes_on(
    way: str, concurrently: bool
) -> None:
    trip = Trip()
    model = FakeModel(
        calls(call("book_flight", city="Rome")),
        calls(call("book_hotel", city="Rome"), call("book_hotel", city="Atlantis")),
        calls(call("book_flight", city="Oslo")),
        "Oslo it is.",
    )
    service = ai_service(
        Assistant,
        chat_model=model,
        tools=trip.tools(),
        compensate_on_tool_errors=True,
        execute_tools_concurrently=concurrently,
    )
    result = await ask(service, way)
    assert result.content == "Oslo it is."
    assert trip.done == ["flight to Rome", "hotel in Rome", "no hotel H-1", "no flight F-Rome", "flight to Oslo"]
    assert model.requests[2].messages[-1].text == (
        "no such place\nSince a tool failed, the earlier successful calls were undone: book_hotel, book_flight."
    )
    assert [execution.result.is_error for execution in result.tool_executions] == [False, False, True, False]


async def test_what_was_undone_is_not_undone_again_when_the_invocation_fails_or_resumes() -> None:
    trip = Trip()

    async def pay() -> None: ...

    service = assistant(
        calls(call("book_flight", city="Rome"), call("book_hotel", city="Atlantis")),
        calls(call("book_flight", city="Oslo")),
        calls(call("pay")),
        ERROR,
        tools=[*trip.tools(), pay],
        compensate_on_tool_errors=True,
        approval=ApprovalPolicy(approve=lambda *_: Decision.later(), applies=for_tools("pay")),
    )
    with pytest.raises(InvocationSuspended) as suspended:
        await service.chat("Hello")
    state = SuspendedInvocation.from_json(json.loads(json.dumps(suspended.value.state.to_json())))
    with pytest.raises(ChatModelError):
        await resume(service, state, {0: Decision.yes()})
    assert trip.done == ["flight to Rome", "no flight F-Rome", "flight to Oslo", "no flight F-Oslo"]


@pytest.mark.parametrize(
    "refused", [call("book_hotel", town="Rome"), call("book_hotle", city="Rome"), call("book_hotel", city="Bonn")]
)
async def test_a_call_that_did_not_run_undoes_nothing(refused: ToolExecutionRequest) -> None:
    trip = Trip()
    service = assistant(
        calls(call("book_flight", city="Rome")),
        calls(refused),
        "Only a flight.",
        tools=trip.tools(),
        compensate_on_tool_errors=True,
        approval=ApprovalPolicy(approve=lambda request, *_: request.arguments.get("city") != "Bonn"),
    )
    assert (await service.chat("Hello")).content == "Only a flight."
    assert trip.done == ["flight to Rome"]


async def test_a_failed_undo_is_told_to_the_model_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def book() -> str:
        return "B"

    def refuse(execution: ToolExecution, context: object) -> None:
        raise KeyError("too late")

    trip = Trip()
    model = FakeModel(calls(call("book"), call("book_hotel", city="Atlantis")), "Sorry.")
    service = ai_service(
        Assistant, chat_model=model, tools=[compensated(book, refuse), *trip.tools()], compensate_on_tool_errors=True
    )
    await service.chat("Hello")
    note = "the call of the tool 'book' could not be undone: 'too late' (KeyError)"
    assert (model.requests[1].messages[-1].text or "").splitlines()[-1] == note
    assert note in caplog.text


@pytest.mark.parametrize("undo", [None, 3, lambda execution: None])
def test_an_undo_is_a_name_or_a_function_of_two_values(undo: Any) -> None:
    with pytest.raises(DefinitionError, match="undo that is not the name of a tool"):
        compensated(Trip().book_flight, undo)
