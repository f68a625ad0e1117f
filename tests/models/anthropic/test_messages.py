from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.models.anthropic.messages import FORBIDDEN_IN_ID, written_messages
from bridge.models.conversation import conversation_of
from bridge.service.messages import AiMessage, ChatMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Audio, Content, File, Image, ResourceLink, Text
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import CONVERSATION, PDF_BASE64, PIXEL, PIXEL_BASE64, SEARCH, asking

PICTURE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL_BASE64},
}


def text(said: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": said}


def written(*messages: ChatMessage) -> list[dict[str, Any]]:
    """The messages on the wire."""
    request = asking(*messages, tool_specifications=(SEARCH,))
    return written_messages(conversation_of(request, forbidden_in_id=FORBIDDEN_IN_ID))


def test_a_whole_conversation_is_written_as_the_api_documents_it() -> None:
    assert written(*CONVERSATION) == [
        {
            "role": "user",
            "content": [
                text("Was ist größer, 🦊?"),
                PICTURE,
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_BASE64},
                    "title": "report.pdf",
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                text("I look."),
                {"type": "tool_use", "id": "one", "name": "files_search", "input": {"text": "größe"}},
                {"type": "tool_use", "id": "two", "name": "add", "input": {"a": 1, "b": 2}},
                {"type": "tool_use", "id": "three", "name": "chart", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "one", "content": "nothing found 🦊", "is_error": True},
                {"type": "tool_result", "tool_use_id": "two", "content": '{"sum": 3}'},
                {"type": "tool_result", "tool_use_id": "three", "content": [text("A chart."), PICTURE]},
            ],
        },
        {"role": "assistant", "content": [text("It is 3.")]},
        {"role": "user", "content": [text("Thanks")]},
    ]


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (Image(PIXEL, "image/jpg"), {**PICTURE, "source": {**PICTURE["source"], "media_type": "image/jpeg"}}),
        (Image(PIXEL, "image/tiff"), text("[image/tiff: 6 bytes, not shown]")),
        (Audio(b"abc"), text("[audio/wav: 3 bytes, not shown]")),
        (
            File("file:///a.csv", "größe;1", "text/csv"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "größe;1"},
                "title": "a.csv",
            },
        ),
        (File("file:///a.png", PIXEL, "image/png"), PICTURE),
        (File("x:", b"PK"), text("[x:: 2 bytes of unknown type, not shown]")),
        (ResourceLink("https://x.org/a", "a"), text("Resource: a <https://x.org/a>")),
    ],
)
def test_every_kind_of_block_has_a_form(block: Content, wire: dict[str, Any]) -> None:
    assert written(UserMessage((block,))) == [{"role": "user", "content": [wire]}]


def test_what_is_blank_is_left_out_and_an_error_without_words_gets_some() -> None:
    assert written(
        UserMessage.of(" ", "Hello"),
        AiMessage(" "),
        AiMessage(None, (ToolExecutionRequest("add", {}, "x"), ToolExecutionRequest("add", {}, "y"))),
        ToolExecutionResultMessage("x", "add", (Text(" "),), is_error=True),
        ToolExecutionResultMessage("y", "add", ()),
    ) == [
        {"role": "user", "content": [text("Hello")]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": name, "name": "add", "input": {}} for name in ("x", "y")],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": "(no details)", "is_error": True},
                {"type": "tool_result", "tool_use_id": "y", "content": ""},
            ],
        },
    ]


def test_ids_of_other_providers_are_made_what_this_one_takes() -> None:
    call = AiMessage(None, (ToolExecutionRequest("add", {}, "functions.add:0"),))
    used, result = written(call, ToolExecutionResultMessage("functions.add:0", "add", (Text("3"),)))
    assert used["content"][0]["id"] == result["content"][0]["tool_use_id"] == "functions_add_0"


def test_arguments_that_are_no_object_are_kept_in_one() -> None:
    (message,) = written(AiMessage(None, (ToolExecutionRequest("add", '{"a": ', "x"),)))
    assert message["content"][0]["input"] == {"malformed_arguments": '{"a": '}


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
SEARCHED = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
KEPT = AiMessage(
    "I add.",
    (ToolExecutionRequest("add", {"a": 1}, "x"),),
    "Hm.",
    {"anthropic": {"content": [SEARCHED, text("I add."), THOUGHT, {"type": "tool_use", "id": "x"}]}},
)


def test_a_message_that_was_changed_since_keeps_its_thinking_and_loses_its_layout() -> None:
    use = {"type": "tool_use", "id": "x", "name": "add", "input": {"a": 1}}
    (kept,) = written(KEPT)
    assert kept["content"] == [SEARCHED, text("I add."), THOUGHT, use]
    (changed,) = written(replace(KEPT, text="I sum."))
    assert changed["content"] == [THOUGHT, text("I sum."), use]
    (silenced,) = written(replace(KEPT, tool_execution_requests=()))
    assert silenced["content"] == [THOUGHT, text("I add.")]


def test_what_another_provider_wants_back_is_not_sent() -> None:
    message = AiMessage("Hi", thinking="Hm.", attributes={"bedrock": {"content": [{"reasoningContent": {}}]}})
    assert written(message) == [{"role": "assistant", "content": [text("Hi")]}]


def test_half_a_character_does_not_stop_a_request() -> None:
    half = "\ud83d"
    messages = written(
        UserMessage.of(half),
        AiMessage(half, (ToolExecutionRequest("add", {half: half}, "x"), ToolExecutionRequest("add", half, "y"))),
        ToolExecutionResultMessage("x", "add", (Text(half), File("a", half))),
    )
    assert repr(messages).count("�") == 7
    repr(messages).encode()
