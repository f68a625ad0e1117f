"""Every failure of a provider is one error, and nothing hangs: one body of tests for every adapter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from inspect import signature
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from bridge.errors import ChatModelError
from bridge.models.anthropic.model import AnthropicChatModel
from bridge.models.bedrock.model import BedrockChatModel
from bridge.models.openai.model import OpenAiChatModel
from bridge.service.chat_model import ChatEvent, ChatModel, PartialResponse, StreamingChatModel
from bridge.service.loop import InvocationLimits
from tests.models import anthropic_wire, bedrock_wire, openai_wire
from tests.models.provider import DEADLINE_SECONDS, EVENT_STREAM, Answer, json_answer, server_sent
from tests.models.requests import asking, events_until_error

if TYPE_CHECKING:
    from threading import Event

    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio

REQUEST = asking("Hello")
STREAM_HEADERS = {"openai": EVENT_STREAM, "anthropic": EVENT_STREAM, "bedrock": bedrock_wire.EVENTS}
BEGINNINGS = {
    "openai": server_sent([openai_wire.chunk({"content": "Hi"})]),
    "anthropic": server_sent(
        anthropic_wire.message_events(
            anthropic_wire.block_events(0, anthropic_wire.text(""), {"type": "text_delta", "text": "Hi"})
        )[:4],
        named=True,
    ),
    "bedrock": b"".join(bedrock_wire.stream_events(bedrock_wire.said(0, {"text": "Hi"}))[:2]),
}
"""The beginning of a streamed reply, as far as its first piece of text."""


class Model(ChatModel, StreamingChatModel):
    """Type of the adapters."""


Make = Callable[..., Model]


def impatient(name: str, make: Make, timeout_seconds: float = 0.2) -> Model:
    """An adapter with a short timeout."""
    own = {"own_client": True} if name == "bedrock" else {}
    return make(timeout_seconds=timeout_seconds, **own)


async def failure_of(model: Model, how: str) -> ChatModelError:
    """Return the error of a request."""
    if how == "stream":
        return (await events_until_error(model, REQUEST))[1]
    with pytest.raises(ChatModelError) as caught:
        await model.chat(REQUEST)
    return caught.value


async def happened(event: Event) -> None:
    """Wait for an event of another thread."""
    assert await anyio.to_thread.run_sync(event.wait, DEADLINE_SECONDS)


BODIES: dict[str, Callable[[str], Any]] = {
    "openai": lambda kind: {"error": {"message": "No.", "type": kind, "code": kind, "param": None}},
    "anthropic": lambda kind: {"type": "error", "error": {"type": kind, "message": "No."}},
    "bedrock": lambda kind: {"message": "No."},
}
ID_HEADERS = {"openai": "x-request-id", "anthropic": "request-id", "bedrock": "x-amzn-requestid"}


@pytest.mark.parametrize("how", ["chat", "stream"])
@pytest.mark.parametrize(
    ("status", "kind", "aws_kind", "retryable"),
    [
        (400, "invalid_request_error", "ValidationException", False),
        (401, "authentication_error", "UnrecognizedClientException", False),
        (403, "permission_error", "AccessDeniedException", False),
        (404, "not_found_error", "ResourceNotFoundException", False),
        (429, "rate_limit_error", "ThrottlingException", True),
        (500, "api_error", "InternalServerException", True),
        (503, "overloaded_error", "ServiceUnavailableException", True),
    ],
)
async def test_a_refused_request_tells_status_id_and_whether_to_try_again(
    provider: Provider, name: str, make: Make, how: str, status: int, kind: str, aws_kind: str, retryable: bool
) -> None:
    headers = {ID_HEADERS[name]: "req-7"} | ({"x-amzn-errortype": aws_kind} if name == "bedrock" else {})
    provider.will_answer(json_answer(BODIES[name](kind), status, headers))
    error = await failure_of(make(), how)
    assert (error.provider, error.status, error.request_id, error.retryable) == (name, status, "req-7", retryable)
    assert "No." in str(error)
    assert f"{name}, status {status}, request req-7: " in str(error)


async def test_an_account_without_money_is_not_asked_again(provider: Provider, openai: Make) -> None:
    provider.will_answer(json_answer(BODIES["openai"]("insufficient_quota"), 429))
    assert not (await failure_of(openai(), "chat")).retryable


@pytest.mark.parametrize("how", ["chat", "stream"])
async def test_an_error_that_is_no_json_is_told_all_the_same(
    provider: Provider, name: str, make: Make, how: str
) -> None:
    provider.will_answer(Answer(status=502, chunks=(b"<html>Bad gateway</html>",)))
    error = await failure_of(make(), how)
    assert (error.status, error.retryable) == (502, True)


async def test_the_sdk_tries_again_what_may_succeed(provider: Provider, name: str, make: Make) -> None:
    answers = {
        "openai": openai_wire.completion({"content": "Hi"}),
        "anthropic": anthropic_wire.reply(anthropic_wire.text("Hi")),
        "bedrock": bedrock_wire.reply({"text": "Hi"}),
    }
    kind = {"x-amzn-errortype": "ThrottlingException"}
    provider.will_answer(json_answer({}, 429, {"retry-after-ms": "1", **kind}), answers[name])
    own = {"own_client": True} if name == "bedrock" else {}
    response = await make(max_retries=1, **own).chat(REQUEST)
    assert response.message.text == "Hi"
    assert len(provider.requests) == 2


@pytest.mark.parametrize("how", ["chat", "stream"])
async def test_a_connection_that_is_dropped_is_an_error_that_may_pass(
    provider: Provider, name: str, make: Make, how: str
) -> None:
    beginning = (b'{"half": ',) if how == "chat" else (BEGINNINGS[name],)
    headers = {"content-type": "application/json"} if how == "chat" else STREAM_HEADERS[name]
    for chunks in ((), beginning):
        provider.will_answer(Answer(headers=headers, chunks=chunks, ending="dropped"))
        error = await failure_of(make(), how)
        assert (error.provider, error.status, error.retryable) == (name, None, True)


@pytest.mark.parametrize("how", ["chat", "stream"])
async def test_a_provider_that_stalls_is_given_up(provider: Provider, name: str, make: Make, how: str) -> None:
    beginning = () if how == "chat" else (BEGINNINGS[name],)
    provider.will_answer(Answer(headers=STREAM_HEADERS[name], chunks=beginning, ending="stalled"))
    with anyio.fail_after(DEADLINE_SECONDS):
        error = await failure_of(impatient(name, make), how)
    assert (error.status, error.retryable) == (None, True)
    await happened(provider.hung_up)


@pytest.mark.parametrize("adapter", [OpenAiChatModel, AnthropicChatModel, BedrockChatModel])
def test_nobody_has_to_ask_for_a_limit_of_silence(adapter: type[Any]) -> None:
    assert signature(adapter).parameters["timeout_seconds"].default == 600
    assert InvocationLimits().model_timeout_seconds == 600


async def test_nobody_there_is_an_error_that_may_pass(name: str, make: Make) -> None:
    nowhere = "http://127.0.0.1:1/"
    where = {"own_client": True, "endpoint_url": nowhere} if name == "bedrock" else {"base_url": nowhere}
    error = await failure_of(make(**where), "chat")
    assert (error.status, error.retryable) == (None, True)


async def test_closing_a_stream_hangs_up(provider: Provider, name: str, make: Make) -> None:
    provider.will_answer(Answer(headers=STREAM_HEADERS[name], chunks=(BEGINNINGS[name],), ending="stalled"))
    async with aclosing(make().stream(REQUEST)) as events:
        first: ChatEvent = await anext(events)
        assert first == PartialResponse("Hi")
    await happened(provider.hung_up)


async def test_cancelling_who_waits_for_a_stream_hangs_up(provider: Provider, name: str, make: Make) -> None:
    provider.will_answer(Answer(headers=STREAM_HEADERS[name], chunks=(BEGINNINGS[name],), ending="stalled"))
    came: list[ChatEvent] = []

    async def read() -> None:
        async with aclosing(make().stream(REQUEST)) as events:
            async for event in events:
                came.append(event)  # noqa: PERF401 - what came before the end counts

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await happened(provider.answered)
            while not came:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert came == [PartialResponse("Hi")]
    await happened(provider.hung_up)


async def test_cancelling_who_waits_for_a_reply_lets_them_go(provider: Provider, name: str, make: Make) -> None:
    provider.will_answer(Answer(headers={"content-type": "application/json"}, ending="stalled"))
    model = impatient(name, make, timeout_seconds=2)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.chat, REQUEST)
            await happened(provider.answered)
            tasks.cancel_scope.cancel()
    await happened(provider.hung_up)


async def test_a_stream_that_opens_when_nobody_waits_any_more_is_hung_up(
    provider: Provider, name: str, make: Make
) -> None:
    provider.will_answer(
        Answer(headers=STREAM_HEADERS[name], chunks=(BEGINNINGS[name],), is_held=True, ending="stalled")
    )

    async def read() -> None:
        async with aclosing(make().stream(REQUEST)) as events:
            await anext(events)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await happened(provider.asked)
            tasks.cancel_scope.cancel()
    provider.released.set()
    await happened(provider.hung_up)
