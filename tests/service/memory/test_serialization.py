"""Responses and tool executions, as JSON and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bridge.errors import WireError
from bridge.service.chat_model import ChatResponse, FinishReason, TokenUsage
from bridge.service.memory.serialization import (
    execution_from_json,
    execution_to_json,
    parameters_from_json,
    response_from_json,
    response_to_json,
)
from bridge.service.messages import AiMessage
from bridge.tools.content import Audio, File, Image, Text
from bridge.tools.tool import ToolExecution, ToolExecutionRequest, ToolExecutionResult

CALL = ToolExecutionRequest("add", '{"a": 1', "call-1")
SAID = AiMessage("So.", (CALL,), "Hm.", {"anthropic": {"signature": "s"}})
RESPONSES = [
    ChatResponse(message=SAID, token_usage=TokenUsage(1, None, 3), finish_reason=reason, model_name="m", id="r")
    for reason in FinishReason
]
MEDIA = (Image(b"\x00", "image/png"), Audio(b"\x01"), File("file:///a", b"\x02"))
RESULTS = [
    ToolExecutionResult((Text("no"),), is_error=True),
    ToolExecutionResult((Text("long"), *MEDIA), {"x": [1]}, metadata={"y": 2}, model_content=(Text("l…"),)),
]
EXECUTIONS = [
    ToolExecution(
        request=CALL, result=result, started_at=datetime(2026, 8, 1, tzinfo=UTC), duration_seconds=0.25, error=None
    )
    for result in RESULTS
]


def through_text(data: Any) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("response", RESPONSES)
def test_a_response_comes_back_as_it_was(response: ChatResponse) -> None:
    assert response_from_json(through_text(response_to_json(response))) == response


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_execution_comes_back_as_it_was(execution: ToolExecution) -> None:
    assert execution_from_json(through_text(execution_to_json(execution))) == execution


PLAIN = response_to_json(RESPONSES[0])
EXECUTED = execution_to_json(EXECUTIONS[0])


@pytest.mark.parametrize(
    "data",
    [
        {},
        PLAIN | {"message": {"type": "system", "text": "Be brief."}},
        PLAIN | {"message": {"type": "other"}},
        PLAIN | {"tokenUsage": {"spent": 1}},
        PLAIN | {"finishReason": "tired"},
    ],
)
def test_what_is_no_response_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        response_from_json(data)


@pytest.mark.parametrize("data", [{}, EXECUTED | {"startedAt": "noon"}, EXECUTED | {"content": [{"type": "other"}]}])
def test_what_is_no_execution_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        execution_from_json(data)


@pytest.mark.parametrize("data", [{"tool_choice": {"mode": "some"}}, {"stop_sequences": "END"}, {"temperature": "hot"}])
def test_what_are_no_parameters_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        parameters_from_json(data)
