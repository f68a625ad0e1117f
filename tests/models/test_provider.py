"""One model serves several event loops, one after another and at the same time."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from bridge import DefinitionError, ai_service
from bridge.errors import MissingExtraError
from bridge.models import chat_model_named
from bridge.models.anthropic.model import AnthropicChatModel
from bridge.models.bedrock.model import BedrockChatModel
from bridge.models.openai.model import OpenAiChatModel
from bridge.service.messages import SystemMessage
from tests.models import anthropic_wire, bedrock_wire, openai_wire
from tests.models.requests import asking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.models.provider import ProviderChatModel
    from bridge.service.chat_model import ChatRequest
    from tests.models.provider import Provider

HELLO = asking("Hi")
PROVIDERS = {
    "openai": (openai_wire, openai_wire.completion({"content": "Hello"})),
    "anthropic": (anthropic_wire, anthropic_wire.reply(anthropic_wire.text("Hello"))),
    "bedrock": (bedrock_wire, bedrock_wire.reply({"text": "Hello"})),
}


class Blocking(Protocol):
    def chat(self, message: str) -> str: ...


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect objects of closed event loops within the test that created them."""
    yield
    gc.collect()


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # asyncio's, about connections that are not closed
def test_a_model_serves_one_event_loop_after_another_and_two_at_once(name: str, provider: Provider) -> None:
    wire, answer = PROVIDERS[name]
    provider.answer_to = lambda _: answer
    model = wire.model(provider)
    blocking = ai_service(Blocking, chat_model=model)

    async def twice() -> list[str | None]:
        return [(await model.chat(HELLO)).message.text for _ in range(2)]

    assert [asyncio.run(twice()) for _ in range(3)] == [["Hello"] * 2] * 3

    async def beside_a_blocking_call() -> list[str | None]:
        first = await twice()
        second = await asyncio.to_thread(blocking.chat, "Hi")
        return [*first, second, *await twice()]

    assert blocking.chat("Hi") == "Hello"  # in the portal's event loop
    assert asyncio.run(beside_a_blocking_call()) == ["Hello"] * 5
    asyncio.run(model.aclose())


@pytest.mark.parametrize(
    ("name", "system"), [("anthropic", "A\n\nB"), ("bedrock", [{"text": "A"}, {"text": "B"}]), ("openai", None)]
)
def test_all_that_the_program_says_is_the_system_prompt(name: str, system: object, provider: Provider) -> None:
    wire, answer = PROVIDERS[name]
    provider.answer_to = lambda _: answer
    asyncio.run(
        _closing(wire.model(provider), asking(SystemMessage("A"), "Hello", SystemMessage(" "), SystemMessage("B")))
    )
    assert provider.body.get("system") == system


async def _closing(model: ProviderChatModel, request: ChatRequest) -> None:
    await model.chat(request)
    await model.aclose()


def test_a_model_is_named_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch, provider: Provider) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    named = [chat_model_named(name) for name in ("openai:gpt", "anthropic:claude", "bedrock:a.b-v1:0")]
    assert [(type(model), model.model_name) for model in named] == [
        (OpenAiChatModel, "gpt"),
        (AnthropicChatModel, "claude"),
        (BedrockChatModel, "a.b-v1:0"),
    ]
    provider.answer_to = lambda _: PROVIDERS["openai"][1]

    async def answered() -> str | None:
        model = chat_model_named("openai:gpt", base_url=f"{provider.url}/v1")
        text = (await model.chat(HELLO)).message.text
        await model.aclose()
        return text

    assert asyncio.run(answered()) == "Hello"


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_given_client_stays_open(name: str, provider: Provider) -> None:
    wire, answer = PROVIDERS[name]
    provider.answer_to = lambda _: answer
    made: dict[str, Any] = {"api_key": "given", "max_retries": 0}
    clients: dict[str, Callable[[], AsyncOpenAI | AsyncAnthropic]] = {
        "openai": lambda: AsyncOpenAI(base_url=f"{provider.url}/v1", **made),
        "anthropic": lambda: AsyncAnthropic(base_url=provider.url, **made),
    }
    async with clients[name]() as client:
        model = wire.model(provider, client=client)
        await model.aclose()
        await model.chat(HELLO)
    assert provider.requests[0].headers["authorization"] == "Bearer given"


@pytest.mark.parametrize(("name", "package"), [("openai",) * 2, ("anthropic",) * 2, ("bedrock", "boto3")])
def test_without_the_package_the_extra_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs the package '{package}': .*mcp-toolbridge\[{name}\]"):
        chat_model_named(f"{name}:test")


@pytest.mark.parametrize("name", ["gpt-5", "openai:", "nobody:gpt", "", None])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"named anthropic:NAME, bedrock:NAME or openai:NAME, not {name!r}"):
        chat_model_named(name)
