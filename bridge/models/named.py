"""Chat models by name, as the command line takes them: ``openai:gpt-5.1``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError
from bridge.text import short_repr

if TYPE_CHECKING:
    from bridge.models.anthropic.model import AnthropicChatModel
    from bridge.models.bedrock.model import BedrockChatModel
    from bridge.models.openai.model import OpenAiChatModel

_CLASSES = {
    "openai": ("OpenAiChatModel", "base_url"),
    "anthropic": ("AnthropicChatModel", "base_url"),
    "bedrock": ("BedrockChatModel", "endpoint_url"),
}
"""Name of the class, and of its parameter for another server, by provider."""


def chat_model_named(
    name: str, *, base_url: str | None = None
) -> OpenAiChatModel | AnthropicChatModel | BedrockChatModel:
    """Create the chat model of a provider.

    Args:
        name: ``openai:NAME``, ``anthropic:NAME`` or ``bedrock:NAME``. Credentials come from the environment.
        base_url: Another server that speaks the provider's API.

    Raises:
        DefinitionError: The name has another form.
        MissingExtraError: The provider's package is not installed.
        ChatModelError: There are no credentials.
    """
    provider, _, model = str(name).partition(":")
    if provider not in _CLASSES or not model:
        raise DefinitionError(
            f"a chat model is named openai:NAME, anthropic:NAME or bedrock:NAME, not {short_repr(name)}"
        )
    class_name, url_parameter = _CLASSES[provider]
    module = import_module(f"bridge.models.{provider}.model")  # each provider's SDK is slow to import
    made: OpenAiChatModel | AnthropicChatModel | BedrockChatModel
    made = getattr(module, class_name)(model, **{url_parameter: base_url})
    return made
