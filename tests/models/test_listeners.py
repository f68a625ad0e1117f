from __future__ import annotations

from contextlib import aclosing
from typing import Any, Protocol

import anyio
import pytest

from bridge import (
    ChatModelCall,
    ChatModelError,
    ChatModelListener,
    CompleteResponse,
    DefinitionError,
    TokenStream,
    ai_service,
    observed,
)
from bridge.testing import ScriptedChatModel
from tests.models.requests import asking

pytestmark = pytest.mark.anyio


class Notes(ChatModelListener):
    """Notes what it receives; of several, each finds what the one before has noted."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    async def on_request(self, call: ChatModelCall) -> None:
        call.attributes["listeners"] = call.attributes.get("listeners", 0) + 1
        self.notes.append(("request", call.request, call.model))

    def on_response(self, response: Any, call: ChatModelCall) -> None:
        self.notes.append(("response", response.message.text, call.attributes))

    async def on_error(self, error: BaseException, call: ChatModelCall) -> None:
        await anyio.lowlevel.checkpoint()
        self.notes.append(("error", type(error), call.attributes))


class Failing(ChatModelListener):
    def on_request(self, call: ChatModelCall) -> None:
        raise KeyError(call.model)


class Chat(Protocol):
    def stream(self, message: str) -> TokenStream: ...

    async def chat(self, message: str) -> str: ...


async def test_listeners_receive_requests_responses_and_errors_with_common_attributes() -> None:
    error = ChatModelError("busy", provider="test")
    inner = ScriptedChatModel(["Hi", error])
    first, second = Notes(), Notes()
    model = observed(inner, first, second)
    assert (await model.chat(asking("1"))).message.text == "Hi"
    with pytest.raises(ChatModelError) as caught:
        await model.chat(asking("2"))
    assert caught.value is error
    assert (
        first.notes
        == second.notes
        == [
            ("request", asking("1"), inner),
            ("response", "Hi", {"listeners": 2}),
            ("request", asking("2"), inner),
            ("error", ChatModelError, {"listeners": 2}),
        ]
    )
    assert model.requests == [asking("1"), asking("2")]


async def test_streams_are_observed_in_a_service_and_a_listener_that_fails_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes = Notes()
    model = observed(ScriptedChatModel(["Hi there", "Hello"]), Failing(), notes)
    service = ai_service(Chat, chat_model=model)
    stream = service.stream("1")
    assert [type(event) async for event in stream][-1] is CompleteResponse
    assert await service.chat("2") == "Hello"
    assert [note[:2] for note in notes.notes if note[0] != "request"] == [
        ("response", "Hi there"),
        ("response", "Hello"),
    ]
    assert caplog.text.count("on_request of the listener") == 2


async def test_a_stream_that_is_left_and_a_request_that_is_cancelled_are_errors() -> None:
    async def never(_: object) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    notes = Notes()
    async with aclosing(observed(ScriptedChatModel(["Hi there"]), notes).stream(asking("1"))) as events:
        await anext(events)
    with anyio.move_on_after(0.001):
        await observed(ScriptedChatModel(never), notes).chat(asking("2"))
    assert [note[:2] for note in notes.notes if note[0] == "error"] == [
        ("error", GeneratorExit),
        ("error", anyio.get_cancelled_exc_class()),
    ]


async def test_a_model_that_only_chats_does_not_stream_with_listeners_either() -> None:
    class Plain:
        chat = ScriptedChatModel(["Hi"]).chat

    model = observed(Plain(), Notes())
    assert not hasattr(model, "stream")
    nothing: Any = "gpt-5"
    with pytest.raises(DefinitionError, match="'gpt-5' is not a chat model"):
        observed(nothing)
