from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Protocol

import anyio
import pytest
from mcp import Client
from mcp_types import TextContent

from bridge import Caller, InvocationContext, ToolBox, execute, tool, tools_from
from bridge.adapters.sdk import sdk_server
from bridge.server.server import Server
from bridge.service.ai_service import ai_service
from bridge.service.approval import ApprovalPolicy, Decision
from bridge.service.interface import MemoryId
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.messages import AiMessage, UserMessage
from bridge.service.templates import user_message
from bridge.testing import connected
from bridge.tools.tool import ToolExecutionRequest
from tests.service.fakes import DEADLINE_SECONDS, Assistant, FakeModel, call, calls

pytestmark = pytest.mark.anyio


class Synchronous(Protocol):
    def chat(self, message: str) -> str: ...


def test_a_plain_method_is_called_from_plain_code() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    service = ai_service(Synchronous, chat_model=FakeModel(calls(call("add", a=1, b=2)), "3"), tools=[add])
    assert service.chat("1 + 2?") == "3"


async def test_a_plain_method_called_by_a_tool_runs_in_the_event_loop_of_the_tool() -> None:
    inner = ai_service(Synchronous, chat_model=FakeModel("inner"))

    def expert(question: str) -> str:
        return inner.chat(question)

    model = FakeModel(calls(call("expert", question="?")), "outer")
    result = await ai_service(Assistant, chat_model=model, tools=[expert]).chat("Hello")
    assert result.tool_executions[0].result.text == "inner"


async def test_cancelling_reaches_through_a_plain_method_in_a_thread() -> None:
    stopped, started = anyio.Event(), anyio.Event()

    async def stall(_: object) -> AiMessage:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    inner = ai_service(Synchronous, chat_model=FakeModel(stall))

    def expert() -> str:
        return inner.chat("?")

    service = ai_service(Assistant, chat_model=FakeModel(calls(call("expert"))), tools=[expert])
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(service.chat, "Hello")
            await started.wait()
            group.cancel_scope.cancel()
        await stopped.wait()


class Expert(Protocol):
    @tool("A medical expert")
    @user_message("You are a medical expert. The request is {{it}}.")
    async def medical_request(self, request: str) -> str: ...


class LegalExpert(ABC):
    @tool("A legal expert")
    @user_message("You are a legal expert. The request is {{it}}.")
    @abstractmethod
    def legal_request(self, request: str, who: Annotated[str, MemoryId]) -> str: ...


class Router(Protocol):
    @user_message("Forward the request to the right expert: '{{it}}'.")
    async def ask_to_expert(self, request: str) -> str: ...


async def test_a_service_is_a_tool_of_another_service() -> None:
    medical, legal = FakeModel("Rest."), FakeModel("Sue.")
    experts = [ai_service(Expert, chat_model=medical), ai_service(LegalExpert, chat_model=legal)]
    model = FakeModel(calls(call("medical_request", request="my leg")), "Rest.")
    router = ai_service(Router, chat_model=model, tools=experts)
    assert await router.ask_to_expert("I broke my leg") == "Rest."
    assert [(each.name, each.description) for each in model.requests[0].tool_specifications] == [
        ("medical_request", "A medical expert"),
        ("legal_request", "A legal expert"),
    ]
    assert list(model.requests[0].tool_specifications[1].parameters["properties"]) == ["request"]
    assert medical.requests[0].messages == (UserMessage.of("You are a medical expert. The request is my leg."),)
    assert legal.requests == []


async def test_a_service_that_is_a_tool_keeps_the_conversation_of_its_caller() -> None:
    class Front(Protocol):
        async def chat(self, who: Annotated[str, MemoryId], message: str) -> str: ...

    memory = ChatMemory()
    legal = ai_service(LegalExpert, chat_model=FakeModel("Sue."), memory=memory)
    front = ai_service(Front, chat_model=FakeModel(calls(call("legal_request", request="?")), "ok"), tools=[legal])
    await front.chat("ada", "Help")
    assert (await memory.of("ada").messages())[-1] == AiMessage("Sue.")


async def test_a_service_that_is_a_tool_counts_towards_the_limits_of_its_caller() -> None:
    accounts: list[str] = []

    @tool
    async def look(context: InvocationContext) -> None:
        accounts.append(context.account)

    expert = ai_service(Expert, chat_model=FakeModel(calls(call("look")), "Rest."), tools=[look])
    await ToolBox(expert).call("medical_request", request="my leg", context=InvocationContext(account="192.0.2.1"))
    assert accounts == ["192.0.2.1"]


def test_the_tools_of_a_service_are_those_of_its_interface() -> None:
    (made,) = tools_from(ai_service(Expert, chat_model=FakeModel()))
    assert made.specification.parameters == {
        "type": "object",
        "properties": {"request": {"type": "string"}},
        "required": ["request"],
        "additionalProperties": False,
    }


async def test_a_service_is_published_over_mcp() -> None:
    model = FakeModel("Rest.")
    server = Server(ToolBox(ai_service(Expert, chat_model=model)), name="experts")
    async with Client(sdk_server(server)) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("medical_request", {"request": "my leg"})
    assert (listed.name, listed.description) == ("medical_request", "A medical expert")
    assert result.content == [TextContent(text="Rest.")]
    assert len(model.requests) == 1


async def test_a_tool_that_waits_for_approval_fails_and_says_so() -> None:
    @tool
    async def operate() -> None: ...

    later = ApprovalPolicy(approve=lambda *_: Decision.later())
    expert = ai_service(Expert, chat_model=FakeModel(calls(call("operate"))), tools=[operate], approval=later)
    model = FakeModel(calls(call("medical_request", request="my leg")), "Ask your doctor.")
    router = ai_service(Router, chat_model=model, tools=[expert])
    assert await router.ask_to_expert("I broke my leg") == "Ask your doctor."
    message = model.requests[1].messages[-1]
    assert message.text == "'Expert.medical_request' waits for the approval of 'operate', which cannot be given here"


class Diary(Protocol):
    """A tool without a conversation."""

    @tool
    async def note(self, text: str) -> str: ...


class ContextDiary(Protocol):
    """A tool that continues the invocation of its caller."""

    @tool
    async def note(self, text: str, context: InvocationContext) -> str: ...


class PlainDiary(Protocol):
    """A tool that runs in a thread."""

    @tool
    def note(self, text: str) -> str: ...


def said_to(model: FakeModel) -> list[list[str]]:
    return [[message.text or "" for message in request.messages] for request in model.requests]


@pytest.mark.parametrize("kind", [Diary, ContextDiary, PlainDiary])
@pytest.mark.parametrize("provides", [False, True])
async def test_over_mcp_no_caller_sees_the_conversation_of_another(kind: Any, provides: bool) -> None:
    model, memory = FakeModel("1", "2", "3"), ChatMemory()
    kept: dict[str, Any] = {"memory_provider": memory.of} if provides else {"memory": memory}
    service = ai_service(kind, chat_model=model, **kept)
    for name, text in (("ada", "I am Ada"), ("bob", "I am Bob"), ("ada", "Who am I?")):
        async with connected(service, caller=Caller(name)) as provider:
            await provider.call("note", {"text": text})
    assert said_to(model) == [["I am Ada"], ["I am Bob"], ["I am Ada", "1", "Who am I?"]]


@pytest.mark.parametrize("kind", [Diary, ContextDiary])
async def test_over_http_whoever_has_neither_a_name_nor_a_session_has_no_conversation(kind: Any) -> None:
    model = FakeModel("1", "2")
    tools = ToolBox(ai_service(kind, chat_model=model, memory=ChatMemory()))
    for text in ("first", "second"):
        await execute(tools, ToolExecutionRequest("note", {"text": text}), InvocationContext(headers={"host": "here"}))
    assert said_to(model) == [["first"], ["second"]]


async def test_who_calls_is_known_to_the_services_below_too() -> None:
    class Front(Protocol):
        @tool
        async def chat(self, message: str) -> str: ...

    model = FakeModel("1", "2")
    below = ai_service(Diary, chat_model=model, memory=ChatMemory())
    front = ai_service(
        Front,
        chat_model=FakeModel(calls(call("note", text="a")), "ok", calls(call("note", text="b")), "ok"),
        tools=[below],
    )
    for context in (InvocationContext(headers={"host": "here"}), InvocationContext(memory_id="ada")):
        await execute(ToolBox(front), ToolExecutionRequest("chat", {"message": "?"}), context)
    assert said_to(model) == [["a"], ["b"]]


async def test_a_program_that_calls_a_method_by_itself_has_one_conversation() -> None:
    model = FakeModel("1", "2")
    service = ai_service(Diary, chat_model=model, memory=ChatMemory())
    for text in ("first", "second"):
        await service.note(text)
    assert said_to(model) == [["first"], ["first", "1", "second"]]
