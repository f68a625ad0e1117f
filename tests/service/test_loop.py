from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ToolError, tool
from bridge.errors import ChatModelError, DefinitionError, InvocationTimeoutError, ToolLimitError
from bridge.service.ai_service import ai_service
from bridge.service.chat_model import ChatRequestParameters, FinishReason, TokenUsage, ToolChoice, ToolChoiceMode
from bridge.service.loop import InvocationLimits
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.messages import (
    AiMessage,
    SystemMessage,
    ToolExecutionResultMessage,
    UserMessage,
    message_from_text,
    message_to_text,
)
from bridge.tools.content import Image, Text
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
from tests.service.fakes import DEADLINE_SECONDS, Assistant, FakeModel, ask, assistant, call, calls

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatRequest
    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio


@tool
async def square_root(x: float) -> float:
    return math.sqrt(x)


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def fail() -> str:
    raise ToolError("it is raining")


QUESTION = "What is the square root of 475695037565?"


async def test_the_model_is_asked_again_with_what_came_of_its_tools(way: str) -> None:
    model = FakeModel(calls(call("square_root", "1", x=475695037565)), "It is 689706.486532.")
    service = ai_service(Assistant, chat_model=model, tools=[square_root, add])
    result = await ask(service, way, QUESTION)
    assert result.content == "It is 689706.486532."
    wanted = ToolExecutionRequest("square_root", '{"x": 475695037565}', "1")
    question = UserMessage.of(QUESTION)
    assert [request.messages for request in model.requests] == [
        (question,),
        (
            question,
            AiMessage(None, (wanted,)),
            ToolExecutionResultMessage("1", "square_root", (Text("689706.4865324959"),)),
        ),
    ]
    assert [each.name for each in model.requests[0].tool_specifications] == ["square_root", "add"]


async def test_the_result_tells_what_ran_and_what_it_cost(way: str) -> None:
    result = await ask(assistant(calls(call("add", a=1, b=2)), "3", tools=[add]), way)
    (execution,) = result.tool_executions
    assert execution.request == ToolExecutionRequest("add", {"a": 1, "b": 2})
    assert execution.request.arguments_text == '{"a": 1, "b": 2}'
    assert execution.result.structured_content == {"result": 3}
    assert execution.duration_seconds >= 0
    assert execution.started_at.tzinfo is not None
    assert result.token_usage == TokenUsage(20, 4)
    assert result.finish_reason is FinishReason.STOP
    assert [each.message for each in result.intermediate_responses] == [calls(call("add", a=1, b=2))]
    assert result.final_response.message == AiMessage("3")


async def test_two_identical_calls_without_ids_are_two_calls(way: str) -> None:
    twice = calls(call("add", a=1, b=2), call("add", a=1, b=2))
    result = await ask(assistant(twice, "done", tools=[add]), way)
    assert [each.result.text for each in result.tool_executions] == ["3", "3"]


async def test_a_tool_that_fails_tells_the_model_why(way: str) -> None:
    model = FakeModel(calls(call("fail", "1")), "Take an umbrella.")
    await ask(ai_service(Assistant, chat_model=model, tools=[fail]), way)
    assert model.requests[1].messages[-1] == ToolExecutionResultMessage("1", "fail", (Text("it is raining"),), True)


@pytest.mark.parametrize("hides", [{"policy": ExecutionPolicy(reveal_errors=False)}])
async def test_the_text_of_an_exception_reaches_the_model_unless_it_is_to_be_hidden(
    way: str, hides: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def crash() -> None:
        raise RuntimeError("password=hush")

    texts = []
    for options in ({}, hides):
        model = FakeModel(calls(call("crash"), call("fail")), "Sorry.")
        await ask(ai_service(Assistant, chat_model=model, tools=[crash, fail], **options), way)
        texts.append([message.text for message in model.requests[1].messages[-2:]])
    generic = "the tool 'crash' failed; its server's log says why"
    assert texts == [["password=hush", "it is raining"], [generic, "it is raining"]]
    assert [str(record.exc_info and record.exc_info[1]) for record in caplog.records] == ["password=hush"] * 2


async def test_a_tool_that_does_not_exist_is_answered_with_the_nearest_names(way: str) -> None:
    model = FakeModel(calls(call("square_rot", "1", x=4)), "Sorry.")
    await ask(ai_service(Assistant, chat_model=model, tools=[square_root]), way)
    message = model.requests[1].messages[-1]
    assert isinstance(message, ToolExecutionResultMessage)
    assert message.is_error
    assert message.text == "there is no tool named 'square_rot'; did you mean 'square_root'?"


async def test_a_strategy_for_hallucinated_tools_answers_instead(way: str) -> None:
    model = FakeModel(calls(call("nothing", "1")), "Sorry.")
    policy = ExecutionPolicy(on_unknown_tool=lambda error, *_: f"Error: there is no tool called {error.name}")
    await ask(ai_service(Assistant, chat_model=model, tools=[add], policy=policy), way)
    message = model.requests[1].messages[-1]
    assert isinstance(message, ToolExecutionResultMessage)
    assert message.text == "Error: there is no tool called nothing"


async def test_a_handler_that_raises_stops_the_invocation_and_memory_is_as_it_was(way: str) -> None:
    def stop(*_: object) -> str:
        raise KeyError("enough")

    memory = ChatMemory()
    service = assistant(
        calls(call("fail")), "never", tools=[fail], memory=memory, policy=ExecutionPolicy(on_execution_error=stop)
    )
    with pytest.raises(KeyError, match="enough"):
        await ask(service, way)
    assert await memory.messages() == ()


async def test_wrong_arguments_go_to_their_handler_which_may_correct_them(way: str) -> None:
    def corrected(error: Exception, request: ToolExecutionRequest, *_: Any) -> ToolExecutionRequest:
        return ToolExecutionRequest(request.name, {"a": 1, "b": 1}, request.id)

    service = assistant(
        calls(call("add", a="one")), "2", tools=[add], policy=ExecutionPolicy(on_arguments_error=corrected)
    )
    result = await ask(service, way)
    assert result.tool_executions[0].result.text == "2"


@pytest.mark.parametrize("limit", [1, 3])
async def test_the_limit_of_round_trips_admits_so_many_and_names_itself(way: str, limit: int) -> None:
    endless = [calls(call("add", a=1, b=1))] * (limit + 1)
    service = assistant(*endless[:limit], "done", tools=[add], limits=InvocationLimits(max_tool_round_trips=limit))
    assert len((await ask(service, way)).tool_executions) == limit
    service = assistant(*endless, "never", tools=[add], limits=InvocationLimits(max_tool_round_trips=limit))
    with pytest.raises(ToolLimitError, match=r"max_tool_round_trips"):
        await ask(service, way)


async def test_a_response_may_want_a_hundred_tools_unless_there_is_no_limit(way: str) -> None:
    for wanted, options in ((100, {}), (101, {"limits": InvocationLimits(max_tool_calls_per_response=None)})):
        many = calls(*[call("add", a=1, b=n) for n in range(wanted)])
        assert len((await ask(assistant(many, "ok", tools=[add], **options), way)).tool_executions) == wanted
    with pytest.raises(ToolLimitError, match=r"requests 101 tools at once .*=100; raise it"):
        await ask(assistant(many, "never", tools=[add]), way)


@pytest.mark.parametrize("concurrently", [False, True])
async def test_a_response_may_want_only_so_many_tools(way: str, concurrently: bool) -> None:
    many = calls(*[call("add", a=1, b=n) for n in range(3)])
    options = {"tools": [add], "execute_tools_concurrently": concurrently}
    three, two = (InvocationLimits(max_tool_calls_per_response=limit) for limit in (3, 2))
    assert (await ask(assistant(many, "ok", limits=three, **options), way)).content == "ok"
    with pytest.raises(ToolLimitError, match=r"max_tool_calls_per_response=2"):
        await ask(assistant(many, "never", limits=two, **options), way)


async def test_a_model_that_stalls_is_an_error_that_says_so(way: str) -> None:
    async def stall(_: object) -> AiMessage:
        await anyio.sleep_forever()
        raise AssertionError

    model = FakeModel(stall)
    service = ai_service(Assistant, chat_model=model, limits=InvocationLimits(model_timeout_seconds=0.01))
    with anyio.fail_after(DEADLINE_SECONDS):
        with pytest.raises(ChatModelError, match=r"FakeModel: no response for 0\.01 seconds") as caught:
            await ask(service, way)
    assert caught.value.retryable
    assert model.open_streams == 0


async def test_an_invocation_that_takes_too_long_is_stopped_with_its_tools(way: str) -> None:
    stopped = anyio.Event()

    @tool
    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    memory = ChatMemory()
    service = assistant(
        calls(call("wait")), "never", tools=[wait], memory=memory, limits=InvocationLimits(timeout_seconds=0.05)
    )
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(InvocationTimeoutError, match="timeout_seconds"):
        await ask(service, way)
    assert stopped.is_set()
    assert await memory.messages() == ()


async def test_an_error_of_the_model_is_raised_as_it_is_and_memory_is_as_it_was(way: str) -> None:
    memory = ChatMemory()
    error = ChatModelError("overloaded", provider="fake", status=529, retryable=True)
    service = assistant(calls(call("add", a=1, b=1)), error, tools=[add], memory=memory)
    with pytest.raises(ChatModelError) as caught:
        await ask(service, way)
    assert caught.value is error
    assert await memory.messages() == ()


async def test_a_forced_tool_choice_is_obeyed_once(way: str) -> None:
    model = FakeModel(calls(call("add", a=1, b=1)), "2")
    service = ai_service(
        Assistant,
        chat_model=model,
        tools=[add],
        parameters=ChatRequestParameters(tool_choice=ToolChoice.of("add"), temperature=0.5),
    )
    await ask(service, way)
    assert [request.tool_choice for request in model.requests] == [ToolChoice.of("add"), ToolChoice()]
    assert [request.temperature for request in model.requests] == [0.5, 0.5]


@pytest.mark.parametrize("mode", [ToolChoiceMode.AUTO, ToolChoiceMode.NONE])
async def test_a_choice_that_forces_nothing_stays(way: str, mode: ToolChoiceMode) -> None:
    model = FakeModel(calls(call("add", a=1, b=1)), "2")
    parameters = ChatRequestParameters(tool_choice=ToolChoice(mode))
    await ask(ai_service(Assistant, chat_model=model, tools=[add], parameters=parameters), way)
    assert [request.tool_choice.mode for request in model.requests] == [mode, mode]


async def test_a_stream_that_breaks_off_is_an_error() -> None:
    class Broken(FakeModel):
        async def stream(self, request: Any) -> Any:
            async with aclosing(super().stream(request)) as events:
                async for event in events:
                    yield event
                    return

    service = ai_service(Assistant, chat_model=Broken("one two"))
    with pytest.raises(ChatModelError, match="the stream ended before the response was complete"):
        async for _ in service.stream("Hello"):
            pass


async def test_a_streaming_model_alone_answers_whole_too() -> None:
    class OnlyStreams:
        def __init__(self) -> None:
            self.stream = FakeModel("one two").stream

    result = await ai_service(Assistant, streaming_chat_model=OnlyStreams()).chat("Hello")
    assert result.content == "one two"


async def test_an_execution_has_the_value_that_the_function_returned(way: str) -> None:
    returned: list[object] = [[1, 2], "text", None, Image(b"\x89PNG")]

    @tool
    async def give(index: int) -> Any:
        return returned[index]

    @tool
    async def numbers() -> list[int]:
        return returned[0]  # type: ignore[return-value]  # the list above

    wanted = calls(call("numbers"), *(call("give", index=index) for index in range(4)))
    result = await ask(assistant(wanted, "done", tools=[give, numbers]), way)
    for execution, value in zip(result.tool_executions, [returned[0], *returned], strict=True):
        assert execution.result_object is value


async def test_attributes_of_a_result_are_kept_in_the_memory_and_hidden_from_the_model(way: str) -> None:
    handle = object()

    @tool
    async def look() -> ToolExecutionResult:
        return ToolExecutionResult((Text("a cat"),), attributes={"row": 7, "handle": handle})

    memory = ChatMemory()
    model = FakeModel(calls(call("look", "1")), "A cat.")
    await ask(ai_service(Assistant, chat_model=model, tools=[look], memory=memory), way)
    _, _, kept, _ = await memory.messages()
    assert kept == ToolExecutionResultMessage("1", "look", (Text("a cat"),), attributes={"row": 7, "handle": handle})
    assert message_from_text(message_to_text(kept)) == replace(kept, attributes={"row": 7})


async def test_each_request_may_be_changed_without_changing_the_memory(way: str) -> None:
    async def briefer(request: ChatRequest, context: InvocationContext) -> ChatRequest:
        assert context.method_name in {"chat", "stream"}
        return replace(request, messages=(SystemMessage("Be brief."), *request.messages), temperature=0.5)

    model, memory = FakeModel(calls(call("add", a=1, b=2)), "3"), ChatMemory()
    service = ai_service(Assistant, chat_model=model, tools=[add], memory=memory, chat_request_transformer=briefer)
    await ask(service, way)
    assert [(request.messages[0], request.temperature) for request in model.requests] == [
        (SystemMessage("Be brief."), 0.5)
    ] * 2
    assert not any(isinstance(message, SystemMessage) for message in await memory.messages())


async def test_a_transformer_that_returns_no_request_is_named() -> None:
    forgetful: Any = lambda *_: None  # noqa: E731 - a function that forgets to return
    with pytest.raises(DefinitionError, match="chat_request_transformer returned None; return a ChatRequest"):
        await assistant("unused", chat_request_transformer=forgetful).chat("Hi")
