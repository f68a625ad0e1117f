"""A tool call that the end of a reply cut off never runs: one body of tests for every adapter, with a whole loop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

import pytest

from bridge import TokenStream, ai_service, tool
from bridge.errors import ArgumentsError
from bridge.service.chat_model import ChatModel, StreamingChatModel
from tests.models import anthropic_wire, bedrock_wire, openai_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.service.events import Result
    from tests.models.provider import Answer, Provider

pytestmark = pytest.mark.anyio

NAMES = ["openai", "anthropic", "bedrock"]
WAYS = ["whole", "streamed", "streamed together"]
REASONS = {"openai": "length", "anthropic": "max_tokens", "bedrock": "max_tokens"}
WHOLE, BLANK, CUT = '{"folder": "a"}', "", '{"folder": "a'


class Model(ChatModel, StreamingChatModel):
    """Type of the adapters."""


class Assistant(Protocol):
    """Response, whole or streamed."""

    async def chat(self, message: str) -> Result[str]: ...

    def stream(self, message: str) -> TokenStream: ...


def whole_reply(name: str, calls: list[str]) -> Answer:
    """Return a reply that calls the tool with each of the arguments, and breaks off."""
    if name == "openai":
        told = [
            {"id": f"call_{index}", "type": "function", "function": {"name": "wipe", "arguments": arguments}}
            for index, arguments in enumerate(calls)
        ]
        return openai_wire.completion({"tool_calls": told}, "length")
    inputs = [
        json.loads(arguments) if arguments == WHOLE else {} for arguments in calls
    ]  # the missing part is not visible
    if name == "anthropic":
        uses = [anthropic_wire.use(f"call_{index}", "wipe", given) for index, given in enumerate(inputs)]
        return anthropic_wire.reply(*uses, reason="max_tokens")
    blocks = [
        {"toolUse": {"toolUseId": f"call_{index}", "name": "wipe", "input": given}}
        for index, given in enumerate(inputs)
    ]
    return bedrock_wire.reply(*blocks, reason="max_tokens")


def streamed_reply(name: str, calls: list[str]) -> Answer:
    """Return the same, streamed."""
    if name == "openai":
        chunks = [
            openai_wire.chunk(openai_wire.call(index, arguments, "wipe", f"call_{index}"))
            for index, arguments in enumerate(calls)
        ]
        return openai_wire.streamed(*chunks, openai_wire.chunk(reason="length"))
    if name == "anthropic":
        blocks = [
            anthropic_wire.block_events(
                index,
                anthropic_wire.use(f"call_{index}", "wipe", {}),
                {"type": "input_json_delta", "partial_json": arguments},
            )
            for index, arguments in enumerate(calls)
        ]
        return anthropic_wire.streamed(*blocks, reason="max_tokens")
    events = [
        bedrock_wire.call(index, f"call_{index}", "wipe", *([arguments] if arguments else []))
        for index, arguments in enumerate(calls)
    ]
    return bedrock_wire.streamed(*events, reason="max_tokens")


def answer(name: str, way: str) -> Answer:
    """Return the reply after it."""
    if name == "openai":
        if way == "whole":
            return openai_wire.completion({"content": "Done."})
        return openai_wire.streamed(openai_wire.chunk({"content": "Done."}), openai_wire.chunk(reason="stop"))
    if name == "anthropic":
        if way == "whole":
            return anthropic_wire.reply(anthropic_wire.text("Done."))
        said = {"type": "text_delta", "text": "Done."}
        return anthropic_wire.streamed(anthropic_wire.block_events(0, anthropic_wire.text(""), said))
    if way == "whole":
        return bedrock_wire.reply({"text": "Done."})
    return bedrock_wire.streamed(bedrock_wire.said(0, {"text": "Done."}))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The adapter under test."""
    found: str = request.param
    return found


@pytest.fixture
def model(
    name: str, openai: Callable[..., Model], anthropic: Callable[..., Model], bedrock: Callable[..., Model]
) -> Model:
    """The adapter itself."""
    return {"openai": openai, "anthropic": anthropic, "bedrock": bedrock}[name]()


async def run(provider: Provider, name: str, way: str, model: Model, calls: list[str]) -> tuple[list[str], Result[str]]:
    """Let the model call the tool with each of the arguments in a reply that breaks off; return the calls that ran."""
    make = whole_reply if way == "whole" else streamed_reply
    provider.will_answer(make(name, calls), answer(name, way))
    wiped: list[str] = []

    @tool
    async def wipe(folder: str = "everything") -> str:
        """Empties a folder; without one, all of them."""
        wiped.append(folder)
        return "wiped"

    together = way == "streamed together"
    service = ai_service(Assistant, chat_model=model, tools=[wipe], execute_tools_concurrently=together)
    if way == "whole":
        return wiped, await service.chat("Wipe!")
    stream = service.stream("Wipe!")
    async for _ in stream:
        pass
    return wiped, stream.result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("last", [BLANK, CUT])
async def test_a_call_that_was_cut_off_is_told_to_the_model_and_those_before_it_run(
    provider: Provider, name: str, way: str, model: Model, last: str
) -> None:
    wiped, result = await run(provider, name, way, model, [WHOLE, last])
    assert wiped == ["a"]
    first, second = result.tool_executions
    assert first.result.text == "wiped"
    assert second.result.is_error
    assert isinstance(second.error, ArgumentsError)
    assert "your reply was cut off" in second.result.text
    assert result.content == "Done."
    assert "your reply was cut off" in json.dumps(provider.requests[1].body)


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_is_whole_runs_where_that_can_be_known(
    provider: Provider, name: str, way: str, model: Model
) -> None:
    wiped, _ = await run(provider, name, way, model, [WHOLE])
    is_known = way != "whole" or name == "openai"  # the others return parsed arguments, of the received part
    assert wiped == (["a"] if is_known else [])
