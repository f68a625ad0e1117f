"""What goes to a model and what comes from it, as JSON and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import WireError
from bridge.service.chat_model import (
    ChatRequest,
    ChatResponse,
    CompleteResponse,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    ResponseFormat,
    TokenUsage,
    ToolChoice,
    ToolChoiceMode,
)
from bridge.service.memory.serialization import (
    chat_request_from_json,
    chat_request_to_json,
    event_from_json,
    event_to_json,
)
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Audio, File, Image, Text
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatEvent

CALL = ToolExecutionRequest("add", '{"a": 1', "call-1")
SAID = AiMessage("So.", (CALL,), "Hm.", {"anthropic": {"signature": "s"}})
MESSAGES = (
    SystemMessage("Be brief."),
    UserMessage(
        (Text("What is this?"), Image(b"\x00", "image/png"), Audio(b"\x01"), File("file:///a", b"\x02")), "ada"
    ),
    SAID,
    ToolExecutionResultMessage("call-1", "add", (Text("no"),), is_error=True),
)
SPECIFICATION = ToolSpecification(
    name="add",
    title="Addition",
    description="Adds.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
    output_schema={"type": "object"},
    annotations=ToolAnnotations(read_only=True),
    metadata={"x": [1]},
    icons=({"src": "data:,"},),
    strict=True,
)
REQUESTS = [
    ChatRequest(messages=(UserMessage.of("Hi"),)),
    ChatRequest(
        messages=MESSAGES,
        tool_specifications=(SPECIFICATION, ToolSpecification(name="plain")),
        tool_choice=ToolChoice.of("add"),
        response_format=ResponseFormat({"type": "object"}, "answer", strict=False),
        model_name="m",
        temperature=0.0,
        top_p=0.5,
        max_output_tokens=10,
        stop_sequences=("END",),
        extra={"seed": 1},
    ),
    *(ChatRequest(messages=(), tool_choice=ToolChoice(mode)) for mode in ToolChoiceMode if mode.value != "named"),
]
EVENTS: list[ChatEvent] = [
    PartialResponse("So"),
    PartialThinking("Hm"),
    PartialToolCall(0, "call-1", "add", '{"a"'),
    PartialToolCall(1, None, "add", ""),
    CompleteToolCall(0, CALL),
    *(
        CompleteResponse(
            ChatResponse(message=SAID, token_usage=TokenUsage(1, None, 3), finish_reason=reason, model_name="m", id="r")
        )
        for reason in FinishReason
    ),
]


def through_text(data: Any) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_comes_back_as_it_was(request_: ChatRequest) -> None:
    assert chat_request_from_json(through_text(chat_request_to_json(request_))) == request_


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_comes_back_as_it_was(event: ChatEvent) -> None:
    assert event_from_json(through_text(event_to_json(event))) == event


PLAIN = chat_request_to_json(REQUESTS[0])


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"messages": 1},
        PLAIN | {"tool_choice": {"mode": "some"}},
        PLAIN | {"tool_specifications": [{"icons": []}]},
    ],
)
def test_what_is_no_request_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        chat_request_from_json(data)


@pytest.mark.parametrize("data", [{}, {"type": "Other"}, {"type": "PartialResponse"}, {"type": "CompleteToolCall"}])
def test_what_is_no_event_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        event_from_json(data)
