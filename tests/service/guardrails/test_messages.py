from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import pytest

from bridge import (
    ChatMemory,
    DefinitionError,
    GuardrailError,
    Image,
    MemoryId,
    ReturnBehavior,
    SystemMessage,
    ToolError,
    UserMessage,
    ai_service,
    tool,
)
from bridge.service import (
    InputGuardrailRequest,
    OutputGuardrailRequest,
    Refuse,
    Reprompt,
    Retry,
    Rewrite,
    compensated,
    input_guardrails,
    output_guardrails,
)
from bridge.service.ai_service import resume
from bridge.service.approval import ApprovalPolicy, Decision, InvocationSuspended
from bridge.service.chat_model import ChatResponse, CompleteResponse, PartialResponse, PartialThinking, TokenUsage
from bridge.service.events import IntermediateResponse, ToolExecuted
from bridge.service.loop import InvocationLimits
from bridge.service.messages import AiMessage
from bridge.tools import InvocationParameters
from tests.service.fakes import Assistant, FakeModel, ask, assistant, call, calls

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    return a + b


def texts(model: FakeModel) -> list[list[str | None]]:
    return [[message.text for message in request.messages] for request in model.requests]


# --- input -----------------------------------------------------------------------------------------------------------


async def test_input_guardrails_pass_and_rewrite_in_order_and_see_the_conversation(way: str) -> None:
    seen: list[InputGuardrailRequest] = []
    memory = ChatMemory()
    await memory.add(UserMessage.of("earlier"), AiMessage("yes?"))

    def without_name(request: InputGuardrailRequest) -> Rewrite:
        seen.append(request)
        return Rewrite(request.text.replace("Ada", "***"))

    async def shouted(request: InputGuardrailRequest) -> Rewrite | None:
        seen.append(request)
        return Rewrite(UserMessage.of(request.text.upper(), name="user"))

    model = FakeModel("Hello")
    service = ai_service(
        Assistant,
        chat_model=model,
        memory=memory,
        system_message="Be kind.",
        input_guardrails=[without_name, lambda _: None, shouted],
    )
    assert (await ask(service, way, "I am Ada")).content == "Hello"
    rewritten = UserMessage.of("I AM ***", name="user")
    earlier = (SystemMessage("Be kind."), UserMessage.of("earlier"), AiMessage("yes?"))
    assert model.requests[0].messages == (*earlier, rewritten)
    assert (await memory.messages())[-2:] == (rewritten, AiMessage("Hello"))
    assert [(each.text, each.system, each.messages) for each in seen] == [
        ("I am Ada", "Be kind.", earlier),
        ("I am ***", "Be kind.", earlier),
    ]
    assert seen[0].method == ("Assistant.chat" if way == "whole" else "Assistant.stream")


async def test_a_rewritten_text_keeps_the_images_of_the_message() -> None:
    class Watcher(Protocol):
        async def see(self, text: str, image: Image) -> str: ...

    model, image = FakeModel("A cat"), Image(b"GIF89a", "image/gif")
    await ai_service(Watcher, chat_model=model, input_guardrails=lambda _: Rewrite("Look")).see("Secret", image)
    assert model.requests[0].messages == (UserMessage.of("Look", image),)


async def test_a_refused_message_reaches_neither_the_model_nor_the_memory(way: str) -> None:
    def never(request: InputGuardrailRequest) -> Refuse:
        return Refuse(f"not for {request.context.memory_id}")

    model, memory = FakeModel(), ChatMemory()
    service = ai_service(
        Assistant,
        chat_model=model,
        memory=memory,
        input_guardrails=[never, lambda _: pytest.fail("an earlier guardrail refused")],
    )
    with pytest.raises(GuardrailError, match=r"'never' refused the message to Assistant\.\w+: not for None") as caught:
        await ask(service, way)
    assert (caught.value.guardrail, caught.value.reason) == ("never", "not for None")
    assert isinstance(caught.value, ToolError)
    assert (model.requests, await memory.messages()) == ([], ())


async def test_guardrails_of_a_method_follow_those_of_the_service_and_see_the_invocation() -> None:
    order: list[object] = []

    class Guard:
        def __init__(self, name: str) -> None:
            self.name = name

        async def __call__(self, request: Any) -> None:
            order.append((self.name, request.context.memory_id, request.context.parameters["user"]))

    class Guarded(Protocol):
        @input_guardrails(Guard("method in"))
        @output_guardrails(Guard("method out"), Guard("last"))
        async def chat(
            self, message: str, conversation: Annotated[str, MemoryId], data: InvocationParameters
        ) -> str: ...

    service = ai_service(
        Guarded, chat_model=FakeModel("Hi"), input_guardrails=Guard("in"), output_guardrails=(Guard("out"),)
    )
    assert await service.chat("Hello", "c-1", InvocationParameters(user="ada")) == "Hi"
    assert order == [(name, "c-1", "ada") for name in ("in", "method in", "out", "method out", "last")]


# --- output ----------------------------------------------------------------------------------------------------------


async def test_an_answer_is_rewritten_for_the_caller_and_the_memory(way: str) -> None:
    seen: list[OutputGuardrailRequest] = []

    def redacted(request: OutputGuardrailRequest) -> Rewrite:
        seen.append(request)
        return Rewrite(request.text.replace("4711", "****"))

    model, memory = FakeModel(calls(call("add", a=1, b=2)), AiMessage("PIN 4711", thinking="4711")), ChatMemory()
    service = ai_service(Assistant, chat_model=model, memory=memory, tools=[add], output_guardrails=[redacted])
    result = await ask(service, way)
    assert result.content == "PIN ****"
    assert result.final_response.message == AiMessage("PIN ****")
    stored = await memory.messages()
    assert stored[-1] == AiMessage("PIN ****")
    (request,) = seen
    assert request.message == AiMessage("PIN 4711", thinking="4711")
    assert (request.value, request.attempt, request.user_message) == ("PIN 4711", 1, UserMessage.of("Hello"))
    assert request.messages == model.requests[1].messages
    assert request.tool_executions == result.tool_executions


async def test_a_retried_answer_is_forgotten_and_a_reprompted_one_is_shown_to_the_model_alone(way: str) -> None:
    outcomes = iter([Retry("too short"), Reprompt("Say more."), None])
    attempts: list[int] = []

    async def long_enough(request: OutputGuardrailRequest) -> Retry | Reprompt | None:
        attempts.append(request.attempt)
        return next(outcomes)

    model, memory = FakeModel("a", "b", "c"), ChatMemory()
    service = ai_service(Assistant, chat_model=model, memory=memory, output_guardrails=[long_enough])
    result = await ask(service, way)
    assert result.content == "c"
    assert attempts == [1, 2, 3]
    assert texts(model) == [["Hello"], ["Hello"], ["Hello", "b", "Say more."]]
    assert await memory.messages() == (UserMessage.of("Hello"), AiMessage("c"))
    assert result.token_usage.input_tokens == 30


@pytest.mark.parametrize(("limit", "answers"), [(0, 1), (2, 3)])
async def test_further_answers_are_bounded_and_nothing_is_stored(limit: int, answers: int, way: str) -> None:
    def never(_: OutputGuardrailRequest) -> Reprompt:
        return Reprompt("Again!")

    undone: list[str] = []
    booked = compensated(add, lambda execution, _: undone.append(execution.result.text))
    model, memory = FakeModel(calls(call("add", a=1, b=2)), "a", "b", "c"), ChatMemory()
    service = ai_service(
        Assistant,
        chat_model=model,
        memory=memory,
        tools=[booked],
        output_guardrails=[never],
        limits=InvocationLimits(max_guardrail_retries=limit),
    )
    with pytest.raises(GuardrailError, match=rf"'never' refused {answers} answers of Assistant\.\w+: Again!"):
        await ask(service, way)
    assert len(model.requests) == 1 + answers
    assert await memory.messages() == ()
    assert undone == ["3"]


async def test_the_same_message_object_may_come_twice() -> None:
    message, outcomes = AiMessage("again"), iter([Reprompt("Really?"), None])
    memory = ChatMemory()
    service = assistant(message, message, memory=memory, output_guardrails=lambda _: next(outcomes))
    await service.chat("Hello")
    assert await memory.messages() == (UserMessage.of("Hello"), message)


async def test_a_model_may_use_tools_after_a_reprompt() -> None:
    def with_sum(request: OutputGuardrailRequest) -> Reprompt | None:
        return None if request.tool_executions else Reprompt("Use the tool.")

    memory = ChatMemory()
    model = FakeModel("3?", calls(call("add", a=1, b=2)), "3")
    service = ai_service(Assistant, chat_model=model, memory=memory, tools=[add], output_guardrails=[with_sum])
    assert (await service.chat("1 + 2?")).content == "3"
    assert [message.text for message in await memory.messages()] == ["1 + 2?", None, "3", "3"]


async def test_a_suspended_invocation_keeps_no_refused_answer_and_is_judged_when_it_resumes() -> None:
    def with_sum(request: OutputGuardrailRequest) -> Reprompt | Rewrite:
        return Rewrite(f"{request.text}!") if request.tool_executions else Reprompt("Use the tool.")

    memory = ChatMemory()
    service = assistant(
        "no",
        calls(call("add", a=1, b=2)),
        "3",
        memory=memory,
        tools=[add],
        output_guardrails=[with_sum],
        input_guardrails=[lambda request: Rewrite(f"{request.text}?")],
        approval=ApprovalPolicy(approve=lambda *_: Decision.later()),
    )
    with pytest.raises(InvocationSuspended) as suspended:
        await service.chat("1 + 2")
    assert [message.text for message in suspended.value.state.turn] == ["1 + 2?", None]
    result = await resume(service, suspended.value.state, {0: Decision.yes()})
    assert result.content == "3!"
    assert [message.text for message in await memory.messages()] == ["1 + 2?", None, "3", "3!"]


# --- answers of other types ------------------------------------------------------------------------------------------


@dataclass
class Offer:
    price: int


class Shop(Protocol):
    async def offer(self, article: str) -> Offer: ...


async def test_structured_answers_are_judged_after_parsing_and_rewritten_by_value() -> None:
    seen: list[object] = []

    def affordable(request: OutputGuardrailRequest) -> Reprompt | Rewrite | None:
        seen.append(request.value)
        if request.value.price > 100:
            return Reprompt("Cheaper!")
        return Rewrite(Offer(request.value.price - 1))

    memory = ChatMemory()
    model = FakeModel("no JSON", '{"price": 200}', "no JSON", '{"price": "90"}')
    service = ai_service(Shop, chat_model=model, memory=memory, output_guardrails=[affordable])
    assert await service.offer("lamp") == Offer(89)
    assert seen == [Offer(200), Offer(90)]
    assert await memory.messages() == (UserMessage.of("lamp"), AiMessage('{"price":89}'))


async def test_a_tools_result_that_is_the_answer_is_judged_too(way: str) -> None:
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    async def pin() -> str:
        return "4711"

    def judged(request: OutputGuardrailRequest) -> Rewrite | None:
        assert request.message == AiMessage("4711")
        assert request.messages[-1].text == "4711"
        return Rewrite("****")

    service = assistant(calls(call("pin")), tools=[pin], output_guardrails=[judged])
    assert (await ask(service, way)).content == "****"

    outcomes = iter([Retry("no"), Reprompt("Say nothing of it."), None])
    model = FakeModel(calls(call("pin")), "It is 4711.", "I do not say.")
    service = ai_service(Assistant, chat_model=model, tools=[pin], output_guardrails=lambda _: next(outcomes))
    assert (await ask(service, way)).content == "I do not say."
    assert texts(model)[1:] == [
        ["Hello", None, "4711"],
        ["Hello", None, "4711", "It is 4711.", "Say nothing of it."],
    ]


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrites", [False, True])
async def test_the_parts_of_a_streamed_answer_are_held_back_until_it_is_accepted(rewrites: bool) -> None:
    accepted: list[object] = []

    def strict(request: OutputGuardrailRequest) -> Retry | Rewrite | None:
        if request.text == "bad words":
            return Retry("bad")
        accepted.append(request.text)
        return Rewrite("better words") if rewrites else None

    first = AiMessage("Let me see", (call("add", a=1, b=2),))
    service = assistant(
        first, "bad words", AiMessage("good words", thinking="hm"), tools=[add], output_guardrails=[strict]
    )
    events: list[object] = []
    async for event in service.stream("Hello"):
        assert accepted or not isinstance(event, PartialResponse | PartialThinking)
        events.append(event)
    shown = [event for event in events if isinstance(event, PartialResponse | PartialThinking)]
    whole = [PartialThinking("hm"), PartialResponse("good"), PartialResponse("words")]
    assert shown == ([PartialResponse("better words")] if rewrites else whole)
    assert {IntermediateResponse, ToolExecuted} <= {type(event) for event in events}
    last = events[-1]
    assert isinstance(last, CompleteResponse)
    assert last.response.message.text == ("better words" if rewrites else "good words")


async def test_text_beside_tool_calls_leaves_the_service_nowhere(way: str) -> None:
    looking = AiMessage("SECRET", (call("add", a=1, b=2),), thinking="SECRET", attributes={"signature": "SECRET"})
    refused, accepted = (
        ChatResponse(message=AiMessage(f"{text} SECRET"), raw="SECRET", token_usage=TokenUsage(1, 1))
        for text in ("bad", "good")
    )
    outcomes: list[Retry | Rewrite] = [Rewrite("good"), Retry("bad")]
    model, memory = FakeModel(looking, refused, accepted), ChatMemory()
    service = ai_service(
        Assistant, chat_model=model, tools=[add], memory=memory, output_guardrails=lambda _: outcomes.pop()
    )
    events: list[object] = []
    if way == "streamed":
        stream = service.stream("Hello")
        events = [event async for event in stream]
        result = stream.result
    else:
        result = await service.chat("Hello")
    messages = await memory.messages()
    responses = [*result.intermediate_responses, result.final_response]
    assert "SECRET" not in repr([events, messages, responses, [each.raw for each in responses]])
    assert messages[1] == AiMessage(tool_execution_requests=looking.tool_execution_requests)
    assert [each.message.text for each in responses] == [None, None, "good"]
    assert result.token_usage.total_tokens == 12 + 2 + 2
    assert model.requests[1].messages[1] == looking, "the model sees what it has written"


async def test_text_beside_the_call_whose_result_is_the_answer_is_withheld(way: str) -> None:
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    async def pin() -> str:
        return "****"

    service = assistant(AiMessage("4711", (call("pin"),)), tools=[pin], output_guardrails=lambda _: None)
    result = await ask(service, way)
    assert (result.content, result.final_response.message.text) == ("****", None)


async def test_without_output_guardrails_text_beside_tool_calls_is_kept(way: str) -> None:
    looking, memory = AiMessage("Let me see", (call("add", a=1, b=2),)), ChatMemory()
    result = await ask(assistant(looking, "3", tools=[add], memory=memory), way)
    assert result.intermediate_responses[0].message == looking
    assert (await memory.messages())[1] == looking


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input_guardrails": None}, "input_guardrails must be a list, each item a function of the request, not None"),
        ({"output_guardrails": "polite"}, "output_guardrails must be a list"),
        ({"output_guardrails": [3]}, "a guardrail in output_guardrails must be a function of the request, not 3"),
        ({"input_guardrails": [lambda: None]}, "is called with 1 argument, the request, but"),
    ],
)
def test_wrong_guardrails_are_refused_when_the_service_is_built(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        assistant(**options)
    assert problem in str(caught.value)
