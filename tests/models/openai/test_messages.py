from __future__ import annotations

from typing import Any

import pytest

from bridge.models.conversation import conversation_of
from bridge.models.openai.messages import MessageWriter
from bridge.service.messages import AiMessage, ChatMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Audio, Content, File, Image, ResourceLink, Text
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import CONVERSATION, PDF_BASE64, PIXEL, PIXEL_BASE64, SEARCH, asking

PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL_BASE64}"}}


def written(*messages: ChatMessage, images_in_tool_results: bool = False) -> list[dict[str, Any]]:
    """The messages on the wire."""
    conversation = conversation_of(asking(*messages, tool_specifications=(SEARCH,)))
    writer = MessageWriter(conversation, images_in_tool_results=images_in_tool_results, send_thinking=False)
    return list(writer.written())


def test_a_whole_conversation_is_written_as_the_api_documents_it() -> None:
    assert written(*CONVERSATION) == [
        {"role": "system", "content": "You are brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Was ist größer, 🦊?"},
                PICTURE,
                {
                    "type": "file",
                    "file": {"filename": "report.pdf", "file_data": f"data:application/pdf;base64,{PDF_BASE64}"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "one",
                    "type": "function",
                    "function": {"name": "files_search", "arguments": '{"text":"größe"}'},
                },
                {"id": "two", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
                {"id": "three", "type": "function", "function": {"name": "chart", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "one", "content": "Error: nothing found 🦊"},
        {"role": "tool", "tool_call_id": "two", "content": '{"sum": 3}'},
        {"role": "tool", "tool_call_id": "three", "content": "A chart.\n(shown in the next user message)"},
        {"role": "user", "content": [{"type": "text", "text": "From the result of chart (three):"}, PICTURE]},
        {"role": "assistant", "content": "It is 3."},
        {"role": "user", "content": "Thanks", "name": "Ann_Lee"},
    ]


def test_pictures_stay_in_the_tool_s_result_where_the_server_takes_them() -> None:
    result = ToolExecutionResultMessage("one", "chart", (Text("A chart."), Image(PIXEL)))
    assert written(result, images_in_tool_results=True) == [
        {"role": "tool", "tool_call_id": "one", "content": [{"type": "text", "text": "A chart."}, PICTURE]}
    ]


def test_pictures_of_several_results_follow_the_last_of_them() -> None:
    results = [ToolExecutionResultMessage(name, name, (Image(PIXEL),)) for name in ("a", "b")]
    assert written(*results) == [
        {"role": "tool", "tool_call_id": "a", "content": "(shown in the next user message)"},
        {"role": "tool", "tool_call_id": "b", "content": "(shown in the next user message)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of a (a):"},
                PICTURE,
                {"type": "text", "text": "From the result of b (b):"},
                PICTURE,
            ],
        },
    ]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (Audio(b"abc"), {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}),
        (Audio(b"abc", "audio/mpeg"), {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}}),
        (Audio(b"abc", "audio/ogg"), {"type": "text", "text": "[audio/ogg: 3 bytes, not shown]"}),
        (File("file:///a.txt", "größe", "text/plain"), {"type": "text", "text": "file:///a.txt:\ngröße"}),
        (File("file:///a.png", PIXEL, "image/png"), PICTURE),
        (
            File("file:///a.zip", b"PK", "application/zip"),
            {"type": "text", "text": "[file:///a.zip: 2 bytes of application/zip, not shown]"},
        ),
        (
            ResourceLink("https://x.org/a", "a", title="A", description="The first.", mime_type="text/html"),
            {"type": "text", "text": "Resource: A <https://x.org/a> text/html The first."},
        ),
    ],
)
def test_every_kind_of_block_has_a_part(block: Content, part: dict[str, Any]) -> None:
    assert written(UserMessage((block, Text("?")))) == [
        {"role": "user", "content": [part, {"type": "text", "text": "?"}]}
    ]


def test_a_message_that_only_calls_tools_has_null_content_and_an_empty_one_has_empty_text() -> None:
    call = AiMessage(tool_execution_requests=(ToolExecutionRequest("add", {"a": 1}, "x"),))
    assert written(call, AiMessage()) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
        },
        {"role": "assistant", "content": ""},
    ]


def test_half_a_character_does_not_stop_a_request() -> None:
    half = "\ud83d"
    messages = written(
        SystemMessage(half),
        UserMessage.of(half, name=half),
        AiMessage(half, (ToolExecutionRequest("add", {half: half}, "x"), ToolExecutionRequest("add", half, "y"))),
        ToolExecutionResultMessage("x", "add", (Text(half), File("a", half))),
    )
    assert repr(messages).count("�") == 9
    repr(messages).encode()


def test_arguments_that_are_no_object_are_kept_in_one_since_servers_parse_them() -> None:
    message = AiMessage(None, (ToolExecutionRequest("files.search", '{"a": ', "x"),))
    (sent,) = written(message)
    assert sent["tool_calls"][0]["function"]["arguments"] == '{"malformed_arguments":"{\\"a\\": "}'
