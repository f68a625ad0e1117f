"""A provider for each test, and no credentials but the test's own."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.models import anthropic_wire, bedrock_wire, openai_wire
from tests.models.provider import Provider, running_provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from bridge.models.anthropic.model import AnthropicChatModel
    from bridge.models.bedrock.model import BedrockChatModel
    from bridge.models.openai.model import OpenAiChatModel

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
UNWANTED = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CONFIG_DIR",
    "ANTHROPIC_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing about providers but what a test wants."""
    for name in UNWANTED:
        monkeypatch.delenv(name, raising=False)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that listens."""
    with running_provider() as running:
        yield running


@pytest.fixture
async def openai(provider: Provider) -> AsyncIterator[Callable[..., OpenAiChatModel]]:
    """Makes adapters for OpenAI's API, and closes them."""
    async with AsyncExitStack() as stack:

        def made(**more: Any) -> OpenAiChatModel:
            adapter = openai_wire.model(provider, **more)
            stack.push_async_callback(adapter.aclose)
            return adapter

        yield made


@pytest.fixture
async def anthropic(provider: Provider) -> AsyncIterator[Callable[..., AnthropicChatModel]]:
    """Makes adapters for Anthropic's API, and closes them."""
    async with AsyncExitStack() as stack:

        def made(**more: Any) -> AnthropicChatModel:
            adapter = anthropic_wire.model(provider, **more)
            stack.push_async_callback(adapter.aclose)
            return adapter

        yield made


@pytest.fixture
async def bedrock(provider: Provider) -> AsyncIterator[Callable[..., BedrockChatModel]]:
    """Makes adapters for Bedrock, and closes them."""
    async with AsyncExitStack() as stack:

        def made(**more: Any) -> BedrockChatModel:
            adapter = bedrock_wire.model(provider, **more)
            stack.push_async_callback(adapter.aclose)
            return adapter

        yield made
