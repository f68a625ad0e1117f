"""Tokens: how long a message is for a model, as far as that can be told without asking the model.

Exact counts belong to a provider's own tokeniser, and its vocabulary is not part of any wheel: it is downloaded. So an
estimator is any callable, and the default needs nothing:

    import tiktoken
    window = token_window(8_000, by_encoding(tiktoken.get_encoding("o200k_base").encode))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING

from bridge.service.messages import AiMessage, SystemMessage
from bridge.tools.content import File, Text

if TYPE_CHECKING:
    from bridge.service.messages import ChatMessage
    from bridge.tools.content import Content

TokenEstimator = Callable[["ChatMessage"], int]
"""Says how many tokens a message is."""

CHARS_PER_TOKEN = 4
"""What OpenAI and Anthropic give as the average of English; of denser scripts a token holds fewer."""

_MESSAGE_TOKENS = 4
"""What surrounds a message in a provider's own format."""

_MEDIA_TOKENS = 1_000
"""What an image or a sound of common size is counted as by most providers."""


def estimate_tokens(message: ChatMessage) -> int:
    """The length of a message by its characters: one token for four ASCII characters, one for any other character."""
    return _counted(message, _tokens_by_characters)


def by_encoding(encode: Callable[[str], Sized]) -> TokenEstimator:
    """An estimator that counts with a tokeniser.

    Args:
        encode: Turns text into tokens, such as the method ``encode`` of an encoding of tiktoken.
    """

    def estimate(message: ChatMessage) -> int:
        return _counted(message, lambda text: len(encode(text)))

    return estimate


def _counted(message: ChatMessage, count: Callable[[str], int]) -> int:
    if isinstance(message, SystemMessage):
        return _MESSAGE_TOKENS + count(message.text)
    if not isinstance(message, AiMessage):
        return _MESSAGE_TOKENS + sum(_counted_block(block, count) for block in message.content)
    tokens = _MESSAGE_TOKENS + count(message.text or "") + count(message.thinking or "")
    for request in message.tool_execution_requests:
        arguments = request.arguments if isinstance(request.arguments, str) else json.dumps(request.arguments)
        tokens += _MESSAGE_TOKENS + count(request.name) + count(arguments)
    return tokens


def _counted_block(block: Content, count: Callable[[str], int]) -> int:
    if isinstance(block, Text):
        return count(block.text)
    if isinstance(block, File) and isinstance(block.content, str):
        return count(block.content)
    return _MEDIA_TOKENS


def _tokens_by_characters(text: str) -> int:
    if text.isascii():
        return -(-len(text) // CHARS_PER_TOKEN)
    wide = sum(not character.isascii() for character in text)
    return wide - (wide - len(text)) // CHARS_PER_TOKEN
