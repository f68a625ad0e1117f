from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import anyio
import pytest

from bridge import InvocationContext, ReturnBehavior, ToolBox, tool, tools_from
from bridge.errors import DefinitionError, NameClashError
from bridge.service.ai_service import ai_service, resume
from bridge.service.chat_model import ChatRequestParameters
from bridge.service.interface import MemoryId
from bridge.service.loop import InvocationLimits
from bridge.service.memory.chat_memory import ChatMemory, message_window
from bridge.service.messages import AiMessage, SystemMessage, UserMessage
from bridge.service.templates import system_message, user_message
from bridge.tools import InvocationParameters, ToolMemoryId
from bridge.tools.content import Image
from tests.service.fakes import DEADLINE_SECONDS, Assistant, FakeModel, call, calls

if TYPE_CHECKING:
    from bridge.service.events import Result
    from bridge.service.token_stream import TokenStream

pytestmark = pytest.mark.anyio


class Translator(ABC):
    @system_message("You translate into {language}.")
    @user_message("Translate: {{it}}")
    @abstractmethod
    async def translate(self, text: str, language: str) -> str: ...

    async def shout(self, text: str) -> str:
        return (await self.translate(text, language="French")).upper()


async def test_templates_say_what_the_model_gets() -> None:
    model = FakeModel("Bonjour {language}")
    translator = ai_service(Translator, chat_model=model)
    assert await translator.shout("Hello {language}") == "BONJOUR {LANGUAGE}"
    assert model.requests[0].messages == (
        SystemMessage("You translate into French."),
        UserMessage.of("Translate: Hello {language}"),
    )
    assert isinstance(translator, Translator)


async def test_images_are_content_beside_the_text() -> None:
    class Viewer(Protocol):
        async def look(self, question: str, picture: Image) -> str: ...

        @user_message("Compare these in one {unit}.")
        async def compare(self, unit: str, pictures: list[Image]) -> str: ...

        async def read(self, message: UserMessage) -> str: ...

    cat, dog = Image(b"cat"), Image(b"dog")
    model = FakeModel("a", "b", "c")
    viewer = ai_service(Viewer, chat_model=model)
    await viewer.look("What is it?", cat)
    await viewer.compare("word", [cat, dog])
    await viewer.read(UserMessage.of("Hi", name="Ada"))
    assert [request.messages for request in model.requests] == [
        (UserMessage.of("What is it?", cat),),
        (UserMessage.of("Compare these in one word.", cat, dog),),
        (UserMessage.of("Hi", name="Ada"),),
    ]


async def test_data_is_said_as_json() -> None:
    class Judge(Protocol):
        async def judge(self, points: list[int]) -> str: ...

    model = FakeModel("fine")
    await ai_service(Judge, chat_model=model).judge([1, 2])
    assert model.requests[0].messages == (UserMessage.of("[1,2]"),)


async def test_a_system_message_of_the_service_serves_methods_without_one() -> None:
    model = FakeModel("a", "b", "c")
    await ai_service(Assistant, chat_model=model, system_message="Be brief about {message}.").chat("tea")
    await ai_service(Assistant, chat_model=model, system_message=lambda memory_id: f"You serve {memory_id}.").chat("x")
    await ai_service(Translator, chat_model=model, system_message="Be brief.").translate("Hi", "Latin")
    assert [request.messages[0] for request in model.requests] == [
        SystemMessage("Be brief about tea."),
        SystemMessage("You serve None."),
        SystemMessage("You translate into Latin."),
    ]


class Desk(Protocol):
    async def chat(
        self,
        who: Annotated[str | None, MemoryId],
        message: str,
        parameters: InvocationParameters | None = None,
        request: ChatRequestParameters | None = None,
        context: InvocationContext | None = None,
    ) -> str: ...


async def test_conversations_are_told_apart_by_their_memory_id() -> None:
    model = FakeModel("re ada", "re bob", "re ada 2")
    memory = ChatMemory(window=message_window(10))
    desk = ai_service(Desk, chat_model=model, memory=memory)
    await desk.chat("ada", "1")
    await desk.chat("bob", "2")
    await desk.chat("ada", "3")
    assert model.requests[2].messages == (UserMessage.of("1"), AiMessage("re ada"), UserMessage.of("3"))
    assert await memory.of("bob").messages() == (UserMessage.of("2"), AiMessage("re bob"))


async def test_a_call_that_belongs_to_no_conversation_shares_none() -> None:
    model = FakeModel("a", "b")
    desk = ai_service(Desk, chat_model=model, memory=ChatMemory())
    await desk.chat(None, "1")
    await desk.chat(None, "2")
    assert model.requests[1].messages == (UserMessage.of("2"),)


async def test_a_provider_gives_the_memory_of_each_conversation() -> None:
    memories: dict[Any, ChatMemory] = {}
    desk = ai_service(
        Desk, chat_model=FakeModel("a", "b"), memory_provider=lambda who: memories.setdefault(who, ChatMemory())
    )
    await desk.chat("ada", "1")
    await desk.chat("bob", "2")
    assert [(who, (await memory.messages())[0]) for who, memory in memories.items()] == [
        ("ada", UserMessage.of("1")),
        ("bob", UserMessage.of("2")),
    ]


async def test_a_provider_is_asked_once_for_each_conversation_which_goes_on() -> None:
    asked: list[Any] = []

    def provide(who: Any) -> ChatMemory:
        asked.append(who)
        return ChatMemory()

    model = FakeModel("a", "b", "c", "d")
    desk = ai_service(Desk, chat_model=model, memory_provider=provide)
    for who, text in (("ada", "1"), ("bob", "2"), ("ada", "3"), ("1", "4")):
        await desk.chat(who, text)
    assert asked == ["ada", "bob", "1"]
    assert [len(request.messages) for request in model.requests] == [1, 1, 3, 1]


async def test_a_provider_that_gives_no_memory_is_a_mistake() -> None:
    provide: Any = lambda who: None  # noqa: E731 - a provider without types
    with pytest.raises(
        DefinitionError, match=r"memory_provider must return a ChatMemory, not None \(memory id 'ada'\)"
    ):
        await ai_service(Desk, chat_model=FakeModel("a"), memory_provider=provide).chat("ada", "1")


async def test_the_system_message_is_not_remembered_and_stays_first() -> None:
    memory = ChatMemory(window=message_window(3))
    model = FakeModel("a", "b")
    service = ai_service(Assistant, chat_model=model, memory=memory, system_message="Be kind.")
    await service.chat("1")
    await service.chat("2")
    assert model.requests[1].messages == (SystemMessage("Be kind."), UserMessage.of("2"))
    assert await memory.messages() == (UserMessage.of("2"), AiMessage("b"))


async def test_tools_learn_the_conversation_and_the_free_data() -> None:
    seen: list[Any] = []

    @tool
    async def look(
        who: Annotated[str, ToolMemoryId], parameters: InvocationParameters, context: InvocationContext
    ) -> None:
        seen.extend([who, dict(parameters), context.caller])

    model = FakeModel(calls(call("look")), "ok")
    desk = ai_service(Desk, chat_model=model, tools=[look])
    await desk.chat("ada", "Hi", InvocationParameters(tenant=7))
    assert seen == ["ada", {"tenant": 7}, None]
    assert model.requests[0].tool_specifications[0].parameters["properties"] == {}


async def test_a_context_is_continued() -> None:
    seen: list[InvocationContext] = []

    @tool
    async def look(context: InvocationContext) -> None:
        seen.append(context)

    given = InvocationContext(memory_id="other", headers={"x": "1"}, deadline=anyio.current_time() + DEADLINE_SECONDS)
    desk = ai_service(
        Desk,
        chat_model=FakeModel(calls(call("look")), "ok"),
        tools=[look],
        limits=InvocationLimits(timeout_seconds=600),
    )
    await desk.chat("ada", "Hi", context=given)
    assert (seen[0].headers, seen[0].memory_id, seen[0].deadline) == ({"x": "1"}, "ada", given.deadline)
    assert seen[0].invocation_id == given.invocation_id
    assert given.memory_id == "other"
    assert (seen[0].interface_name, seen[0].method_name) == ("Desk", "chat")
    assert (given.interface_name, given.method_name, given.timestamp) == (None, None, None)


async def test_the_context_names_interface_and_method_and_has_the_start() -> None:
    seen: list[InvocationContext] = []

    @tool
    def look(context: InvocationContext) -> None:
        seen.append(context)

    desk = ai_service(Desk, chat_model=FakeModel(calls(call("look")), "ok"), tools=[look])
    before = datetime.now(UTC)
    await desk.chat("ada", "Hi")
    (context,) = seen
    assert (context.interface_name, context.method_name, context.service) == ("Desk", "chat", "Desk.chat")
    assert context.timestamp is not None
    assert before <= context.timestamp <= datetime.now(UTC)


async def test_one_call_may_want_something_else_of_the_model() -> None:
    model = FakeModel("a", "b")
    usual = ChatRequestParameters(temperature=0.2, model_name="small", extra={"seed": 1})
    desk = ai_service(Desk, chat_model=model, parameters=usual)
    await desk.chat("ada", "1")
    await desk.chat("ada", "2", request=ChatRequestParameters(model_name="large", extra={"top_k": 5}))
    assert [(r.model_name, r.temperature, r.extra) for r in model.requests] == [
        ("small", 0.2, {"seed": 1}),
        ("large", 0.2, {"seed": 1, "top_k": 5}),
    ]


class Router(Protocol):
    @user_message("Forward the request to the right expert: '{{it}}'.")
    async def ask_to_expert(self, request: str) -> str: ...


@tool(return_behavior=ReturnBehavior.IMMEDIATE)
def receipt() -> str:
    return "receipt"


async def test_the_answer_of_a_tool_needs_a_return_type_that_can_hold_it() -> None:
    with pytest.raises(DefinitionError, match=r"'receipt' .*IMMEDIATE.* Router\.ask_to_expert cannot return"):
        ai_service(Router, chat_model=FakeModel(), tools=[receipt])


async def test_a_tool_of_a_provider_whose_result_cannot_be_held_is_refused_when_it_comes() -> None:
    class Provider:
        is_dynamic = False

        async def provide_tools(self, request: object) -> list[Any]:
            return tools_from(receipt)

    router = ai_service(Router, chat_model=FakeModel("never"), tool_providers=[Provider()])
    with pytest.raises(DefinitionError, match="cannot return"):
        await router.ask_to_expert("?")


async def test_an_immediate_answer_is_data_where_the_method_returns_data() -> None:
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    async def count() -> int:
        return 7

    class Counter(Protocol):
        async def count(self, what: str) -> Result[int]: ...

    assert (
        await ai_service(Counter, chat_model=FakeModel(calls(call("count"))), tools=[count]).count("?")
    ).content == 7


async def test_a_toolbox_is_followed_as_it_changes() -> None:
    @tool
    async def late() -> str:
        return "late"

    box = ToolBox()
    model = FakeModel("a", "b")
    service = ai_service(Assistant, chat_model=model, tools=box)
    await service.chat("1")
    box.add(late)
    await service.chat("2")
    assert [[each.name for each in request.tool_specifications] for request in model.requests] == [[], ["late"]]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(NameClashError, match="'receipt'"):
        ai_service(Assistant, chat_model=FakeModel(), tools=[receipt, receipt])


def test_a_service_needs_a_model_for_what_its_methods_return() -> None:
    class Whole:
        chat = FakeModel("x").chat

    with pytest.raises(DefinitionError, match="a service needs a model"):
        ai_service(Assistant)
    with pytest.raises(DefinitionError, match=r"Assistant\.stream returns TokenStream; give a streaming_chat_model"):
        ai_service(Assistant, chat_model=Whole())


def test_two_memories_are_one_too_many() -> None:
    with pytest.raises(DefinitionError, match="memory or memory_provider"):
        ai_service(Desk, chat_model=FakeModel(), memory=ChatMemory(), memory_provider=lambda _: ChatMemory())


async def test_an_asynchronous_method_may_return_a_stream() -> None:
    class Streaming(Protocol):
        async def chat(self, message: str) -> TokenStream: ...

    stream = await ai_service(Streaming, chat_model=FakeModel("one")).chat("Hello")
    assert (await stream.start() or stream.result).content == "one"


async def test_only_a_service_can_be_resumed() -> None:
    state: Any = None
    with pytest.raises(DefinitionError, match="is not an AI service"):
        await resume(object(), state)


def test_the_instance_is_typed_as_the_interface() -> None:
    service: Router = ai_service(Router, chat_model=FakeModel())
    assert inspect.iscoroutinefunction(service.ask_to_expert)
    assert type(service).__name__ == "Router"
