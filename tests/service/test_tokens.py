from __future__ import annotations

import pytest

from bridge.service.memory.chat_memory import by_encoding, estimate_tokens
from bridge.service.messages import AiMessage, ChatMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import File, Image, Text
from bridge.tools.tool import ToolExecutionRequest


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage.of(""), 4),
        (UserMessage.of("12345678"), 4 + 2),
        (UserMessage.of("123456789"), 4 + 3),
        (UserMessage.of("天气"), 4 + 2),
        (UserMessage.of("天气 in Paris"), 4 + 2 + 3),
        (SystemMessage("1234"), 4 + 1),
        (UserMessage.of("1234", Image(b"png")), 4 + 1 + 1_000),
        (UserMessage.of(File("file:///a.txt", "12345678")), 4 + 2),
        (AiMessage("1234", thinking="1234"), 4 + 1 + 1),
        (AiMessage(None, (ToolExecutionRequest("1234", '{"a":12}'),)), 4 + 4 + 1 + 2),
        (AiMessage(None, (ToolExecutionRequest("1234", {"a": 123}),)), 4 + 4 + 1 + 3),
        (ToolExecutionResultMessage("1", "add", (Text("12345678"),)), 4 + 2),
    ],
)
def test_a_message_is_estimated_by_its_characters(message: ChatMessage, tokens: int) -> None:
    assert estimate_tokens(message) == tokens


def test_a_tokeniser_counts_instead() -> None:
    assert by_encoding(str.split)(UserMessage.of("four words are here")) == 4 + 4
