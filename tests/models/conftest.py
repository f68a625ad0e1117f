"""A provider for each test, and credentials of the test only."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.models import anthropic_wire, bedrock_wire, openai_wire
from tests.models.provider import Provider, running_provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import ModuleType

    from bridge.models.provider import ProviderChatModel

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
    """Remove all variables of providers from the environment."""
    for name in UNWANTED:
        monkeypatch.delenv(name, raising=False)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that listens."""
    with running_provider() as running:
        yield running


def _adapters(wire: ModuleType) -> Any:
    """Creates adapters for a provider's API, and closes them."""

    @pytest.fixture
    async def adapters(provider: Provider) -> AsyncIterator[Callable[..., ProviderChatModel]]:
        async with AsyncExitStack() as stack:

            def made(**more: Any) -> ProviderChatModel:
                adapter: ProviderChatModel = wire.model(provider, **more)
                stack.push_async_callback(adapter.aclose)
                return adapter

            yield made

    return adapters


openai = _adapters(openai_wire)
anthropic = _adapters(anthropic_wire)
bedrock = _adapters(bedrock_wire)


@pytest.fixture(params=["openai", "anthropic", "bedrock"])
def name(request: pytest.FixtureRequest) -> str:
    """The adapter under test."""
    found: str = request.param
    return found


@pytest.fixture
def make(
    name: str,
    openai: Callable[..., ProviderChatModel],
    anthropic: Callable[..., ProviderChatModel],
    bedrock: Callable[..., ProviderChatModel],
) -> Callable[..., ProviderChatModel]:
    """Creates adapters that repeat no request."""
    return {"openai": openai, "anthropic": anthropic, "bedrock": bedrock}[name]
