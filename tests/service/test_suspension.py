from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import ToolAnnotations, ToolProvider, tool, tools_from
from bridge.errors import DefinitionError, WireError
from bridge.service import compensated
from bridge.service.ai_service import ai_service, resume
from bridge.service.approval import ApprovalPolicy, Decision, InvocationSuspended, SuspendedInvocation
from bridge.service.chat_model import ChatRequestParameters, CompleteResponse
from bridge.service.events import InvocationListener
from bridge.service.interface import MemoryId
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.messages import AiMessage
from bridge.testing import connected
from bridge.tools import InvocationParameters, ToolMemoryId
from tests.processes import ROOT
from tests.service.fakes import FakeModel, ask, assistant, call, calls

if TYPE_CHECKING:
    from pathlib import Path

    from bridge import Tool
    from bridge.service.events import Result
    from bridge.tools import ToolProviderRequest

pytestmark = pytest.mark.anyio


class Bookings:
    """Tools of which one is read-only."""

    def __init__(self) -> None:
        self.looked = 0
        self.cancelled: list[tuple[str, str]] = []

    @tool(annotations=ToolAnnotations(read_only=True))
    async def look(self) -> str:
        self.looked += 1
        return "B-1, B-2"

    @tool
    async def cancel(self, booking: str, who: Annotated[str, ToolMemoryId]) -> str:
        self.cancelled.append((booking, who))
        return f"{booking} is cancelled"


class Desk(Protocol):
    async def chat(
        self,
        who: Annotated[str, MemoryId],
        message: str,
        parameters: InvocationParameters | None = None,
        request: ChatRequestParameters | None = None,
    ) -> Result[str]: ...


LATER = ApprovalPolicy(approve=lambda *_: Decision.later())


async def suspended(bookings: Bookings, memory: ChatMemory, **options: Any) -> SuspendedInvocation:
    """An invocation that has called the read-only tool, and now requests two cancellations and a further look."""
    wanted = calls(call("cancel", "2", booking="B-1"), call("look", "3"), call("cancel", "4", booking="B-2"))
    desk = ai_service(
        Desk,
        chat_model=FakeModel(calls(call("look", "1")), wanted),
        tools=[bookings],
        memory=memory,
        approval=LATER,
        system_message="Be careful.",
        **options,
    )
    parameters, request = InvocationParameters(tenant=7), ChatRequestParameters(temperature=0.5)
    with pytest.raises(
        InvocationSuspended, match=r"'Desk\.chat' waits for the approval of 'cancel', 'cancel'"
    ) as caught:
        await desk.chat("ada", "Cancel all", parameters, request)
    return caught.value.state


def through_json(state: SuspendedInvocation) -> SuspendedInvocation:
    return SuspendedInvocation.from_json(json.loads(json.dumps(state.to_json())))


async def test_an_invocation_waits_with_all_that_it_needs_and_memory_is_untouched() -> None:
    bookings, memory = Bookings(), ChatMemory()
    state = await suspended(bookings, memory)
    assert {index: request.id for index, request in state.pending.items()} == {0: "2", 2: "4"}
    assert state.memory_id == "ada"
    assert (bookings.looked, bookings.cancelled) == (1, [])
    assert await memory.of("ada").messages() == ()
    assert through_json(state) == state


async def test_it_goes_on_where_it_was() -> None:
    bookings, memory = Bookings(), ChatMemory()
    state = through_json(await suspended(bookings, memory))
    model = FakeModel("Both gone, one not.")
    desk = ai_service(Desk, chat_model=model, tools=[bookings], memory=memory, approval=LATER)
    result = await resume(desk, state, {0: Decision.yes(), 2: Decision.no("keep that one")})
    assert result.content == "Both gone, one not."
    assert [(each.request.id, each.result.text) for each in result.tool_executions] == [
        ("1", "B-1, B-2"),
        ("2", "B-1 is cancelled"),
        ("3", "B-1, B-2"),
        ("4", "keep that one"),
    ]
    assert bookings.cancelled == [("B-1", "ada")]
    assert result.token_usage.total_tokens == 3 * 12
    assert len(result.intermediate_responses) == 2
    (request,) = model.requests
    assert request.temperature == 0.5
    assert request.messages[0].text == "Be careful."
    assert [type(message).__name__ for message in await memory.of("ada").messages()] == [
        "UserMessage",
        "AiMessage",
        "ToolExecutionResultMessage",
        "AiMessage",
        *["ToolExecutionResultMessage"] * 3,
        "AiMessage",
    ]


async def test_what_is_not_decided_is_asked_again_and_may_wait_again() -> None:
    bookings, memory = Bookings(), ChatMemory()
    state = await suspended(bookings, memory)
    desk = ai_service(Desk, chat_model=FakeModel("done"), tools=[bookings], memory=memory, approval=LATER)
    with pytest.raises(InvocationSuspended) as caught:
        await resume(desk, state, {0: Decision.yes()})
    assert list(caught.value.state.pending) == [2]
    assert bookings.cancelled == []
    result = await resume(desk, through_json(caught.value.state), {2: Decision.yes()})
    assert result.content == "done"
    assert [booking for booking, _ in bookings.cancelled] == ["B-1", "B-2"]


async def test_a_clerk_who_has_made_up_his_mind_is_asked_where_nothing_is_given() -> None:
    bookings, memory = Bookings(), ChatMemory()
    state = await suspended(bookings, memory)
    clerk = ApprovalPolicy(approve=lambda request, *_: request.arguments == {"booking": "B-1"})
    desk = ai_service(Desk, chat_model=FakeModel("done"), tools=[bookings], memory=memory, approval=clerk)
    await resume(desk, state)
    assert bookings.cancelled == [("B-1", "ada")]


async def test_tools_that_ran_while_the_response_came_in_do_not_run_again() -> None:
    bookings = Bookings()
    service = assistant(
        calls(call("look", "1"), call("cancel", "2", booking="B-1")),
        tools=[bookings],
        approval=LATER,
        execute_tools_concurrently=True,
    )
    with pytest.raises(InvocationSuspended) as caught:
        await service.stream("Hello").start()
    state = through_json(caught.value.state)
    assert bookings.looked == 1
    assert {index: each.result.text for index, each in state.executed.items()} == {0: "B-1, B-2"}
    other = assistant("done", tools=[bookings], approval=LATER)
    stream = await resume(other, state, {1: Decision.yes()})
    events = [event async for event in stream]
    assert isinstance(events[-1], CompleteResponse)
    assert bookings.looked == 1
    assert [each.request.id for each in stream.result.tool_executions] == ["1", "2"]


class Mutable(ToolProvider):
    """Provides the tools of an object as long as it is up."""

    def __init__(self, tools: object, *, is_dynamic: bool) -> None:
        self.is_dynamic = is_dynamic
        self.is_up = True
        self._tools = tools

    async def provide_tools(self, request: ToolProviderRequest) -> list[Tool]:
        assert request.user_message.text == "Hello"
        return tools_from(self._tools) if self.is_up else []


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("option", ["tools", "tool_providers"])
async def test_an_approved_call_of_a_provided_tool_runs(way: str, option: str, is_dynamic: bool) -> None:
    bookings = Bookings()
    provider = Mutable(bookings, is_dynamic=is_dynamic)
    options: Any = {option: [provider], "approval": LATER}
    with pytest.raises(InvocationSuspended) as caught:
        await ask(assistant(calls(call("cancel", booking="B-1"), call("look")), **options), way)
    resumed = await resume(assistant("done", **options), through_json(caught.value.state), {0: Decision.yes()})
    if way == "streamed":
        assert isinstance([event async for event in resumed][-1], CompleteResponse)
        resumed = resumed.result
    assert [each.result.text for each in resumed.tool_executions] == ["B-1 is cancelled", "B-1, B-2"]
    assert [booking for booking, _ in bookings.cancelled] == ["B-1"]


async def test_a_call_of_an_imported_tool_runs_if_its_server_is_there() -> None:
    bookings = Bookings()
    async with connected(bookings) as provider:
        service = assistant(calls(call("cancel", booking="B-1")), tools=provider, approval=LATER)
        with pytest.raises(InvocationSuspended) as caught:
            await service.chat("Hello")
    async with connected(bookings) as provider:
        other = assistant("done", tools=[provider], approval=LATER)
        await resume(other, caught.value.state, {0: Decision.yes()})
    assert [booking for booking, _ in bookings.cancelled] == ["B-1"]


async def test_a_call_that_undoes_is_known_after_the_invocation_was_continued() -> None:
    undone: list[str] = []

    @tool
    async def rebook(booking: str) -> str:
        undone.append(booking)
        return "rebooked"

    provider = Mutable([compensated(Bookings().cancel, undo="rebook"), rebook], is_dynamic=True)
    with pytest.raises(InvocationSuspended) as caught:
        await assistant(calls(call("cancel", booking="B-1")), tools=[provider], approval=LATER).chat("Hello")
    service = assistant(RuntimeError("the model failed"), tools=[provider], approval=LATER)
    with pytest.raises(RuntimeError, match="the model failed"):
        await resume(service, caught.value.state, {0: Decision.yes()})
    assert undone == ["B-1"]


async def test_an_approved_call_of_a_tool_that_is_gone_does_not_run() -> None:
    provider = Mutable(Bookings(), is_dynamic=True)
    service = assistant(calls(call("cancel", booking="B-1")), "done", tools=[provider], approval=LATER)
    with pytest.raises(InvocationSuspended) as caught:
        await service.chat("Hello")
    provider.is_up = False
    result = await resume(service, caught.value.state, {0: Decision.yes()})
    assert "there is no tool named 'cancel'" in result.tool_executions[0].result.text


async def test_an_exception_handler_on_the_way_does_not_eat_it() -> None:
    async def careful() -> None:
        try:
            await suspended_chat()
        except Exception as error:
            raise AssertionError from error

    async def suspended_chat() -> None:
        service = assistant(calls(call("cancel", booking="B-1")), tools=[Bookings()], approval=LATER)
        await service.chat("Hello")

    with pytest.raises(InvocationSuspended):
        await careful()


async def test_listeners_hear_that_it_ends_for_now() -> None:
    heard: list[BaseException] = []

    class Listener(InvocationListener):
        def on_invocation_failed(self, error: BaseException, context: object) -> None:
            heard.append(error)

    await suspended(Bookings(), ChatMemory(), listeners=[Listener()])
    assert [type(error) for error in heard] == [InvocationSuspended]


def test_plain_code_sees_it_too() -> None:
    class Plain(Protocol):
        def chat(self, message: str) -> str: ...

    service = ai_service(
        Plain, chat_model=FakeModel(calls(call("cancel", booking="B-1"))), tools=[Bookings()], approval=LATER
    )
    with pytest.raises(InvocationSuspended):
        service.chat("Hello")


async def test_another_service_cannot_go_on() -> None:
    state = await suspended(Bookings(), ChatMemory())
    with pytest.raises(DefinitionError, match=r"suspended in 'Desk\.chat', which this service does not have"):
        await resume(assistant(), state)


async def test_what_cannot_be_stored_is_said_when_it_is_stored() -> None:
    service = ai_service(
        Desk, chat_model=FakeModel(calls(call("cancel", booking="B-1"))), tools=[Bookings()], approval=LATER
    )
    with pytest.raises(InvocationSuspended) as caught:
        await service.chat("ada", "Hello", InvocationParameters(connection=object()))
    with pytest.raises(DefinitionError, match="cannot be stored as JSON"):
        caught.value.state.to_json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(["version", "method", "turn", "responses", "decisions"]), JSON))
def test_data_that_is_no_state_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        SuspendedInvocation.from_json(data)


@pytest.mark.parametrize("turn", [[], [{"type": "ai", "text": "Hi"}], [{"type": "user", "content": []}]])
async def test_a_state_must_begin_with_the_user_and_end_with_calls(turn: list[Any]) -> None:
    state = await suspended(Bookings(), ChatMemory())
    with pytest.raises(WireError, match="a malformed suspended invocation"):
        SuspendedInvocation.from_json({**state.to_json(), "turn": turn})


OTHER_PROCESS = """
import asyncio, json, sys
from bridge.service.ai_service import ai_service, resume
from bridge.service.approval import ApprovalPolicy, Decision
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.approval import SuspendedInvocation
from tests.service.fakes import FakeModel
from tests.service.test_suspension import Bookings, Desk, LATER

state = SuspendedInvocation.from_json(json.load(sys.stdin))
memory = ChatMemory(sys.argv[1])
desk = ai_service(Desk, chat_model=FakeModel("done"), tools=[Bookings()], memory=memory, approval=LATER)
result = asyncio.run(resume(desk, state, {index: Decision.yes() for index in state.pending}))
print(json.dumps([each.result.text for each in result.tool_executions]))
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_another_process_goes_on(database: Path) -> None:
    memory = ChatMemory(database)
    state = await suspended(Bookings(), memory)
    run = subprocess.run(  # noqa: ASYNC221 - nothing else runs in this test
        [sys.executable, "-c", OTHER_PROCESS, str(database)],
        cwd=ROOT,
        input=json.dumps(state.to_json()),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(run.stdout) == ["B-1, B-2", "B-1 is cancelled", "B-1, B-2", "B-2 is cancelled"]
    messages = await memory.of("ada").messages()
    assert messages[-1] == AiMessage("done")
    assert len(messages) == 8
    memory.store.close()  # type: ignore[attr-defined]  # a store in SQLite can be closed
