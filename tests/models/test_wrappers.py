from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import pytest

from bridge import ChatModelError, DefinitionError, OpenAiChatModel, TokenStream, ai_service, with_fallback
from bridge.models import ChatModelCall, ChatModelListener, observed
from bridge.service.chat_model import CompleteResponse, PartialResponse
from bridge.testing import ScriptedChatModel
from tests.models.openai_wire import chunk, completion, streamed
from tests.models.provider import Answer, json_answer
from tests.models.requests import asking, events_of, events_until_error
from tests.service.fakes import Assistant, ask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bridge import ChatRequest
    from bridge.service import ChatEvent
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio


class Notes(ChatModelListener):
    """Records its arguments; of several, each finds the records of the one before."""

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


OVERLOADED = ChatModelError("overloaded", provider="first", status=529, retryable=True)
REFUSED = ChatModelError("too long", provider="first", status=400)


@pytest.mark.parametrize("way", ["whole", "streamed"])
async def test_a_request_goes_to_the_next_model_without_the_first_ones_name(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    models = [ScriptedChatModel([OVERLOADED]), ScriptedChatModel([OVERLOADED]), ScriptedChatModel(["Hello"])]
    model = with_fallback(*models)
    request = asking("Hi", model_name="special")
    with caplog.at_level(logging.WARNING):
        if way == "whole":
            assert (await model.chat(request)).message.text == "Hello"
        else:
            assert [type(event) for event in await events_of(model, request)] == [PartialResponse, CompleteResponse]
    assert [each.requests[0].model_name for each in models] == ["special", None, None]
    assert len([record for record in caplog.records if "the next model is tried" in record.message]) == 2


@pytest.mark.parametrize("way", ["whole", "streamed"])
async def test_a_service_falls_back_after_a_providers_real_error(way: str, provider: Provider) -> None:
    first = OpenAiChatModel("one", base_url=f"{provider.url}/v1", api_key="secret", max_retries=0)
    second = OpenAiChatModel("two", base_url=f"{provider.url}/v1", api_key="secret", max_retries=0)
    answer = (
        completion({"content": "Hello"})
        if way == "whole"
        else streamed(chunk({"content": "Hello"}), chunk(reason="stop"))
    )
    provider.will_answer(json_answer({"error": {"message": "no such model"}}, 404), answer)
    model = with_fallback(first, second)
    assert (await ask(ai_service(Assistant, chat_model=model), way)).content == "Hello"
    assert [request.body["model"] for request in provider.requests] == ["one", "two"]
    await model.aclose()


async def test_a_refused_request_is_not_sent_again_unless_wanted() -> None:
    with pytest.raises(ChatModelError) as caught:
        await with_fallback(ScriptedChatModel([REFUSED]), ScriptedChatModel(["Hello"])).chat(asking("Hi"))
    assert caught.value is REFUSED
    model = with_fallback(ScriptedChatModel([REFUSED]), ScriptedChatModel(["Hello"]), when=lambda _: True)
    assert (await model.chat(asking("Hi"))).message.text == "Hello"


async def test_the_last_error_is_raised() -> None:
    last = ChatModelError("down", provider="second")
    model = with_fallback(ScriptedChatModel([OVERLOADED] * 2), ScriptedChatModel([last] * 2))
    with pytest.raises(ChatModelError, match="down"):
        await model.chat(asking("Hi"))
    with pytest.raises(ChatModelError, match="down"):
        await events_of(model, asking("Hi"))


async def test_a_stream_that_has_begun_is_not_repeated_and_is_closed(provider: Provider) -> None:
    provider.will_answer(
        Answer(
            headers={"content-type": "text/event-stream"},
            chunks=streamed(chunk({"content": "He"})).chunks[:1],
            ending="dropped",
        )
    )
    first = OpenAiChatModel("one", base_url=f"{provider.url}/v1", api_key="secret", max_retries=0)
    second = ScriptedChatModel(["Hello"])
    seen, _ = await events_until_error(with_fallback(first, second), asking("Hi"))
    assert seen == [PartialResponse("He")]
    assert second.requests == []
    await first.aclose()


class Silent:
    """Never answers."""

    closed = 0

    async def chat(self, _: ChatRequest) -> Any:
        await anyio.sleep_forever()

    async def stream(self, _: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        try:
            await anyio.sleep_forever()
            yield PartialResponse("")
        finally:
            self.closed += 1


async def test_a_silent_model_is_left_after_its_time() -> None:
    silent = Silent()
    model = with_fallback(silent, ScriptedChatModel(["Hello"] * 2), timeout_seconds=0.001)
    assert (await model.chat(asking("Hi"))).message.text == "Hello"
    async with aclosing(model.stream(asking("Hi"))) as events:
        assert await anext(events) == PartialResponse("Hello")
    assert silent.closed == 1


async def test_it_has_what_all_models_have() -> None:
    class Whole:
        async def chat(self, _: ChatRequest) -> Any: ...

    scripted = ScriptedChatModel([])
    assert not hasattr(with_fallback(Whole(), scripted), "stream")
    assert hasattr(with_fallback(observed(scripted), scripted), "stream")
    assert with_fallback(scripted, scripted).requests is scripted.requests


@pytest.mark.parametrize(
    ("models", "options", "problem"),
    [
        ([ScriptedChatModel([])], {}, "with_fallback needs at least two models"),
        ([ScriptedChatModel([]), "openai:gpt-5"], {}, "'openai:gpt-5' is not a chat model; it needs chat or stream"),
        ([ScriptedChatModel([]), ScriptedChatModel], {}, "is not a chat model"),
        ([ScriptedChatModel([])] * 2, {"when": lambda: True}, "when is called with 1 argument, the error"),
        ([ScriptedChatModel([])] * 2, {"timeout_seconds": 0}, "timeout_seconds must be a number of seconds above 0"),
    ],
)
def test_mistakes_are_refused(models: list[Any], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        with_fallback(*models, **options)
    assert problem in str(caught.value)
