"""Requests and conversations for the tests of every adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError
from bridge.service.chat_model import ChatRequest, CompleteResponse
from bridge.service.messages import (
    AiMessage,
    ChatMessage,
    SystemMessage,
    ToolExecutionResultMessage,
    UserMessage,
)
from bridge.tools.content import File, Image, Text
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatEvent, ChatResponse, StreamingChatModel

PIXEL = b"\x89PNG\r\n"
PIXEL_BASE64 = "iVBORw0K"
PDF = b"%PDF-1.7"
PDF_BASE64 = "JVBERi0xLjc="

ADD = ToolSpecification(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
SEARCH = ToolSpecification(
    name="files.search",
    description="Search.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
        "required": ["text"],
    },
)
OPEN = ToolSpecification(
    name="open", description="Takes anything.", parameters={"type": "object", "properties": {"x": {}}}
)

CONVERSATION: tuple[ChatMessage, ...] = (
    SystemMessage("You are brief."),
    UserMessage.of("Was ist größer, 🦊?", Image(PIXEL), File("file:///a/report.pdf", PDF, "application/pdf")),
    AiMessage(
        "I look.",
        (
            ToolExecutionRequest("files.search", {"text": "größe"}, "one"),
            ToolExecutionRequest("add", '{"a": 1, "b": 2}', "two"),
            ToolExecutionRequest("chart", "", "three"),
        ),
    ),
    ToolExecutionResultMessage("one", "files.search", (Text("nothing found 🦊"),), is_error=True),
    ToolExecutionResultMessage("two", "add", (Text('{"sum": 3}'),)),
    ToolExecutionResultMessage("three", "chart", (Text("A chart."), Image(PIXEL))),
    AiMessage("It is 3."),
    UserMessage.of("Thanks", name="Ann Lee"),
)
"""A conversation with everything: text, images, documents, an error, other scripts, and a tool that is not offered."""


def asking(*messages: str | ChatMessage, **more: Any) -> ChatRequest:
    """Return a request; texts are the user's."""
    said = tuple(UserMessage.of(each) if isinstance(each, str) else each for each in messages)
    return ChatRequest(messages=said, **more)


async def events_of(model: StreamingChatModel, request: ChatRequest) -> list[ChatEvent]:
    """Return all events of a stream."""
    return [event async for event in model.stream(request)]


def final(events: list[ChatEvent]) -> ChatResponse:
    """Return the response at the end of a stream."""

    last = events[-1]
    assert isinstance(last, CompleteResponse)
    assert not any(isinstance(event, CompleteResponse) for event in events[:-1])
    return last.response


async def events_until_error(model: StreamingChatModel, request: ChatRequest) -> tuple[list[ChatEvent], ChatModelError]:
    """Return the events of a stream that fails, and the error."""
    events = []
    try:
        async for event in model.stream(request):
            events.append(event)  # noqa: PERF401 - what came before the error counts
    except ChatModelError as error:
        return events, error
    raise AssertionError(f"the stream did not fail: {events}")
