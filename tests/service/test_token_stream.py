from __future__ import annotations

import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import InvocationContext, tool
from bridge.errors import ChatModelError, InvocationError
from bridge.service.ai_service import ai_service
from bridge.service.chat_model import (
    CompleteResponse,
    CompleteToolCall,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
)
from bridge.service.events import BeforeToolExecution, IntermediateResponse, ToolExecuted, ToolProgress
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.messages import AiMessage
from bridge.testing import connected
from tests.service.fakes import DEADLINE_SECONDS, Assistant, FakeModel, assistant, call, calls, response_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    return a + b


WANTED = call("add", "1", a=1, b=2)


def service(**options: Any) -> Assistant:
    return assistant(calls(WANTED), AiMessage("It is 3", thinking="easy"), tools=[add], **options)


async def test_the_events_come_in_the_order_in_which_things_happen() -> None:
    stream = service().stream("1 + 2?")
    events = [event async for event in stream]
    (execution,) = stream.result.tool_executions
    assert events == [
        PartialResponse(""),
        PartialToolCall(0, "1", "add", '{"a": 1, "b": 2}'),
        CompleteToolCall(0, WANTED),
        IntermediateResponse(response_of(calls(WANTED))),
        BeforeToolExecution(WANTED.parsed()),
        ToolExecuted(execution),
        PartialThinking("easy"),
        PartialResponse("It"),
        PartialResponse("is"),
        PartialResponse("3"),
        CompleteResponse(response_of(AiMessage("It is 3", thinking="easy"))),
    ]
    assert stream.result.content == "It is 3"


async def test_callbacks_are_told_the_same() -> None:
    told: list[tuple[str, Any]] = []

    def note(what: str) -> Callable[[Any], None]:
        return lambda value: told.append((what, value))

    async def note_asynchronously(value: Any) -> None:
        told.append(("complete", value))

    stream = (
        service()
        .stream("1 + 2?")
        .on_partial_response(note("text"))
        .on_partial_thinking(note("thinking"))
        .on_partial_tool_call(note("piece"))
        .on_complete_tool_call(note("call"))
        .on_intermediate_response(note("intermediate"))
        .before_tool_execution(note("before"))
        .on_tool_executed(note("executed"))
        .on_complete_response(note_asynchronously)
        .on_error(note("error"))
    )
    result = await stream.start()
    assert result is stream.result
    assert told == [
        ("text", PartialResponse("")),
        ("piece", PartialToolCall(0, "1", "add", '{"a": 1, "b": 2}')),
        ("call", CompleteToolCall(0, WANTED)),
        ("intermediate", response_of(calls(WANTED))),
        ("before", WANTED.parsed()),
        ("executed", stream.result.tool_executions[0]),
        ("thinking", PartialThinking("easy")),
        ("text", PartialResponse("It")),
        ("text", PartialResponse("is")),
        ("text", PartialResponse("3")),
        ("complete", stream.result.final_response),
    ]


async def test_callbacks_are_told_while_it_is_iterated_too() -> None:
    told: list[PartialResponse] = []
    stream = assistant("one two").stream("Hello").on_partial_response(told.append)
    events = [event async for event in stream]
    assert events[:2] == told == [PartialResponse("one"), PartialResponse("two")]


async def test_progress_of_tools_comes_while_they_run_from_threads_too() -> None:
    @tool
    async def climb(context: InvocationContext) -> str:
        await context.progress(1, 2, "halfway")
        await context.progress(2, 2)
        return "there"

    @tool
    def dig(context: InvocationContext) -> str:
        context.blocking.progress(0.5)
        return "deep"

    wanted = call("climb", "1").parsed(), call("dig", "2").parsed()
    told: list[ToolProgress] = []
    replies = calls(call("climb", "1"), call("dig", "2")), "done"
    stream = assistant(*replies, tools=[climb, dig]).stream("Go").on_tool_progress(told.append)
    events = [event async for event in stream]
    climbed, dug = stream.result.tool_executions
    assert told == [
        ToolProgress(wanted[0], 1, 2, "halfway"),
        ToolProgress(wanted[0], 2, 2),
        ToolProgress(wanted[1], 0.5),
    ]
    first, last = events.index(BeforeToolExecution(wanted[0])), events.index(ToolExecuted(dug))
    assert events[first + 1 : last] == [
        *told[:2],
        ToolExecuted(climbed),
        BeforeToolExecution(wanted[1]),
        told[2],
    ]


async def test_progress_of_an_imported_tool_comes_from_its_server() -> None:
    @tool
    async def climb(context: InvocationContext) -> str:
        await context.progress(1, 2, "halfway")
        return "there"

    wanted = call("climb", "1").parsed()
    async with connected(climb) as provider:
        stream = assistant(calls(call("climb", "1")), "done", tools=provider.tools).stream("Go")
        events = [event async for event in stream if isinstance(event, ToolProgress)]
    assert events == [ToolProgress(wanted, 1, 2, "halfway")]


async def test_progress_after_the_call_or_to_a_receiver_that_fails_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[InvocationContext] = []

    @tool
    async def climb(context: InvocationContext) -> str:
        seen.append(context)
        await context.progress(1)
        return "there"

    def fail(_: object) -> None:
        raise KeyError("no more")

    stream = assistant(calls(call("climb", "1")), "done", tools=[climb]).stream("Go").on_tool_progress(fail)
    with anyio.fail_after(DEADLINE_SECONDS):
        events = [event async for event in stream]
        await seen[0].progress(2)
    assert [event.progress for event in events if isinstance(event, ToolProgress)] == [1]
    assert stream.result.tool_executions[0].result.text == "there"
    assert "KeyError: 'no more'" in caplog.text


async def test_leaving_a_stream_frees_a_thread_that_reports_progress() -> None:
    ended = threading.Event()

    @tool
    def dig(context: InvocationContext) -> str:
        try:
            for depth in range(3):
                context.blocking.progress(depth)
        finally:
            ended.set()
        return "deep"

    stream = assistant(calls(call("dig", "1")), tools=[dig]).stream("Go")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with stream as events:
            async for event in events:
                if isinstance(event, ToolProgress):
                    break
        assert await anyio.to_thread.run_sync(partial(ended.wait, DEADLINE_SECONDS))


async def test_an_error_goes_to_its_callback_instead_of_the_caller() -> None:
    told: list[Exception] = []
    error = ChatModelError("overloaded", provider="fake")
    assert await assistant(error).stream("Hello").on_error(told.append).start() is None
    assert told == [error]


async def test_an_error_that_nobody_is_told_of_is_raised() -> None:
    error = ChatModelError("overloaded", provider="fake")
    with pytest.raises(ChatModelError) as caught:
        await assistant(error).stream("Hello").start()
    assert caught.value is error


async def test_only_a_callback_before_a_tool_may_stop_the_invocation(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: object) -> None:
        raise KeyError("no more")

    memory = ChatMemory()
    with pytest.raises(KeyError, match="no more"):
        await service(memory=memory).stream("Hello").before_tool_execution(refuse).start()
    assert await memory.messages() == ()
    stream = service(memory=memory).stream("Hello").on_tool_executed(refuse).on_complete_response(refuse)
    assert await stream.on_partial_response(refuse).start() is stream.result
    assert len(await memory.messages()) == 4
    assert len([record for record in caplog.records if record.exc_info]) == 6


async def test_a_stream_runs_once_and_has_a_result_when_it_is_over() -> None:
    stream = assistant("one").stream("Hello")
    with pytest.raises(InvocationError, match="no result yet"):
        _ = stream.result
    await stream.start()
    with pytest.raises(InvocationError, match="has already run"):
        await stream.start()
    with pytest.raises(InvocationError, match="has already run"):
        async for _ in stream:
            pass


class Waiting(FakeModel):
    """A model that stops sending in the middle of its reply."""

    def __init__(self) -> None:
        super().__init__("one two")
        self.stopped = anyio.Event()

    async def stream(self, request: Any) -> Any:
        try:
            yield PartialResponse("one")
            yield PartialResponse("two")
            await anyio.sleep_forever()
        finally:
            self.stopped.set()


async def test_leaving_early_stops_the_models_stream_and_leaves_memory_as_it_was() -> None:
    model, memory = Waiting(), ChatMemory()
    stream = ai_service(Assistant, chat_model=model, memory=memory).stream("Hello")
    with anyio.fail_after(DEADLINE_SECONDS):
        async for event in stream:
            assert event == PartialResponse("one")
            break
        gc.collect()
        await model.stopped.wait()
    assert await memory.messages() == ()


async def test_a_block_waits_until_everything_has_stopped() -> None:
    model = Waiting()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with ai_service(Assistant, chat_model=model).stream("Hello") as events:
            assert await anext(events) == PartialResponse("one")
        assert model.stopped.is_set()


async def test_being_cancelled_while_waiting_for_an_event_stops_the_stream() -> None:
    model = Waiting()
    stream = ai_service(Assistant, chat_model=model).stream("Hello")
    seen = []
    with anyio.fail_after(DEADLINE_SECONDS), anyio.CancelScope() as scope:
        async for event in stream:
            seen.append(event)
            if len(seen) == 2:
                scope.cancel()
    assert scope.cancelled_caught
    assert model.stopped.is_set()


@pytest.mark.parametrize("concurrently", [False, True])
async def test_leaving_early_stops_the_running_tools(concurrently: bool) -> None:
    stopped = anyio.Event()

    @tool
    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    memory = ChatMemory()
    leaving = assistant(
        calls(call("wait")), "never", tools=[wait], memory=memory, execute_tools_concurrently=concurrently
    )
    with anyio.fail_after(DEADLINE_SECONDS):
        async with leaving.stream("Hello") as events, anyio.create_task_group() as group:

            async def take_all() -> None:
                async for _ in events:
                    pass

            group.start_soon(take_all)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert stopped.is_set()
    assert await memory.messages() == ()


async def test_the_turn_is_remembered_only_when_the_last_event_is_taken() -> None:
    memory = ChatMemory()
    async with assistant("one two", memory=memory).stream("Hello") as events:
        assert await anext(events) == PartialResponse("one")
        assert await anext(events) == PartialResponse("two")
        assert await memory.messages() == ()
    assert await memory.messages() == ()
    async for event in assistant("one two", memory=memory).stream("Hello"):
        assert isinstance(event, CompleteResponse) == (len(await memory.messages()) == 2)


async def test_a_failing_consumer_stops_the_stream_and_sees_its_own_error() -> None:
    model = Waiting()

    async def fail_while_taking() -> None:
        async for _ in ai_service(Assistant, chat_model=model).stream("Hello"):
            raise KeyError("mine")

    with anyio.fail_after(DEADLINE_SECONDS):
        with pytest.raises(KeyError, match="mine"):
            await fail_while_taking()
        gc.collect()
        await model.stopped.wait()


def test_synchronous_code_iterates_too() -> None:
    stream = service().stream("1 + 2?")
    texts = [event.text for event in stream if isinstance(event, PartialResponse)]
    assert texts == ["", "It", "is", "3"]
    assert stream.result.content == "It is 3"


def test_synchronous_code_that_leaves_early_stops_the_stream() -> None:
    class Noting:
        """Records in a thread-safe way that the stream was closed."""

        closed = False

        async def stream(self, request: Any) -> Any:
            try:
                yield PartialResponse("one")
                await anyio.sleep_forever()
            finally:
                self.closed = True

    noting = Noting()
    for _ in ai_service(Assistant, streaming_chat_model=noting).stream("Hello"):
        break
    gc.collect()
    assert noting.closed


def test_synchronous_code_starts_and_waits() -> None:
    told: list[PartialResponse] = []
    result = assistant("one two").stream("Hello").on_partial_response(told.append).start_and_wait()
    assert result is not None
    assert result.content == "one two"
    assert told == [PartialResponse("one"), PartialResponse("two")]
