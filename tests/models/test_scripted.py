from __future__ import annotations

import json
from contextlib import aclosing

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ChatModelError, DefinitionError
from bridge.models.scripted import Reply, ScriptedChatModel
from bridge.service.chat_model import (
    ChatRequest,
    ChatResponse,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
)
from bridge.service.messages import AiMessage
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import asking, events_of, final

pytestmark = pytest.mark.anyio

CALL = ToolExecutionRequest("add", {"a": 1, "b": "größe"}, "x")
OTHER = ToolExecutionRequest("stop")


async def test_replies_come_in_their_order_and_requests_are_kept() -> None:
    model = ScriptedChatModel(["Hi", CALL, [CALL, OTHER], AiMessage("Bye")])
    requests = [asking(str(number)) for number in range(4)]
    messages = [(await model.chat(request)).message for request in requests]
    assert messages == [
        AiMessage("Hi"),
        AiMessage(tool_execution_requests=(CALL,)),
        AiMessage(tool_execution_requests=(CALL, OTHER)),
        AiMessage("Bye"),
    ]
    assert model.requests == requests


async def test_a_response_tells_that_it_is_scripted_and_why_it_ends() -> None:
    model = ScriptedChatModel(["Hi", CALL])
    assert await model.chat(asking("Hello")) == ChatResponse(message=AiMessage("Hi"), model_name="scripted")
    assert (await model.chat(asking("Hello"))).finish_reason is FinishReason.TOOL_EXECUTION
    assert repr(model) == "<ScriptedChatModel: a script, no model; 2 requests so far>"


async def test_a_response_is_given_as_it_is_and_an_error_is_raised() -> None:
    response = ChatResponse(message=AiMessage("Cut"), finish_reason=FinishReason.LENGTH, id="7")
    replies: list[Reply] = [response, ChatModelError("busy", provider="test", retryable=True)]
    model = ScriptedChatModel(iter(replies))
    assert await model.chat(asking("Hello")) is response
    with pytest.raises(ChatModelError, match="test: busy"):
        await model.chat(asking("Hello"))


async def test_a_function_makes_replies_of_requests() -> None:
    async def later(request: ChatRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return f"later {len(request.messages)}"

    assert (await ScriptedChatModel(lambda request: f"now {len(request.messages)}").chat(asking("a"))).message == (
        AiMessage("now 1")
    )
    assert (await ScriptedChatModel(later).chat(asking("a", "b"))).message == AiMessage("later 2")


async def test_the_end_of_a_script_is_told() -> None:
    model = ScriptedChatModel(["Hi"])
    await model.chat(asking("Hello"))
    with pytest.raises(ChatModelError, match="scripted: the script has only 1 replies, but the model was called again"):
        await model.chat(asking("Hello"))


def test_a_text_is_no_script() -> None:
    with pytest.raises(
        DefinitionError, match=r"a script must be a list of replies or a function, not 'Hi'; write \['Hi'\]"
    ):
        ScriptedChatModel("Hi")


async def test_a_stream_gives_the_reply_in_pieces() -> None:
    message = AiMessage("It is so.", (CALL, OTHER), "Hm, well")
    events = await events_of(ScriptedChatModel([message]), asking("Hello"))
    assert events[:5] == [
        PartialThinking("Hm,"),
        PartialThinking(" well"),
        PartialResponse("It"),
        PartialResponse(" is"),
        PartialResponse(" so."),
    ]
    pieces = [event for event in events if isinstance(event, PartialToolCall) and event.index == 0]
    assert json.loads("".join(piece.partial_arguments for piece in pieces)) == CALL.arguments
    assert {(piece.id, piece.name) for piece in pieces} == {("x", "add")}
    assert events.index(CompleteToolCall(0, CALL)) < events.index(CompleteToolCall(1, OTHER))
    assert final(events).message == message


@given(text=st.text())
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    events = anyio.run(events_of, ScriptedChatModel([text]), asking("Hello"))
    assert "".join(event.text for event in events if isinstance(event, PartialResponse)) == text


async def test_a_stream_that_is_closed_early_ends_there() -> None:
    model = ScriptedChatModel(["one two three"])
    async with aclosing(model.stream(asking("Hello"))) as events:
        assert await anext(events) == PartialResponse("one")
    with pytest.raises(StopAsyncIteration):
        await anext(events)
