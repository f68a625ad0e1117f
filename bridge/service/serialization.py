"""What an invocation consists of as JSON data, and back: responses, executions, parameters of requests."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bridge.errors import WireError
from bridge.service.chat_model import ChatResponse, FinishReason, TokenUsage, ToolChoice, ToolChoiceMode
from bridge.service.messages import (
    AiMessage,
    message_from_json,
    message_to_json,
    request_from_json,
    request_to_json,
)
from bridge.service.parameters import ChatRequestParameters
from bridge.text import short_repr
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.tool import ToolExecution, ToolExecutionResult
from bridge.types import Json, optional_field, without_none

if TYPE_CHECKING:
    from collections.abc import Mapping


def execution_to_json(execution: ToolExecution) -> Json:
    """A tool execution as JSON data; the exception that it may carry stays behind."""
    result = execution.result
    shown = result.model_content
    return {
        "request": request_to_json(execution.request),
        "startedAt": execution.started_at.isoformat(),
        "durationSeconds": execution.duration_seconds,
        "content": [block_to_json(block) for block in result.content],
        "isError": result.is_error,
    } | without_none(
        structuredContent=result.structured_content,
        modelContent=None if shown is None else [block_to_json(block) for block in shown],
        metadata=dict(result.metadata) or None,
    )


def execution_from_json(json: Mapping[str, Any]) -> ToolExecution:
    """The execution that `execution_to_json` wrote.

    Raises:
        WireError: It is no such data.
    """
    try:
        shown = optional_field(json, "modelContent", list)
        return ToolExecution(
            request=request_from_json(json["request"]),
            result=ToolExecutionResult(
                tuple(block_from_json(block) for block in json["content"]),
                json.get("structuredContent"),
                json["isError"] is True,
                metadata=optional_field(json, "metadata", dict) or {},
                model_content=None if shown is None else tuple(block_from_json(block) for block in shown),
            ),
            started_at=datetime.fromisoformat(json["startedAt"]),
            duration_seconds=float(json["durationSeconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"a malformed tool execution: {short_repr(json)}") from error


def response_to_json(response: ChatResponse) -> Json:
    """A model's response as JSON data, without the provider's raw reply."""
    return {
        "message": message_to_json(response.message),
        "tokenUsage": without_none(**asdict(response.token_usage)),
        "finishReason": response.finish_reason.value,
    } | without_none(modelName=response.model_name, id=response.id)


def response_from_json(json: Mapping[str, Any]) -> ChatResponse:
    """The response that `response_to_json` wrote.

    Raises:
        WireError: It is no such data.
    """
    try:
        message = message_from_json(json["message"])
        if not isinstance(message, AiMessage):
            raise WireError(f"a response that is no message of a model: {short_repr(json)}")
        return ChatResponse(
            message=message,
            token_usage=TokenUsage(**json["tokenUsage"]),
            finish_reason=FinishReason(json["finishReason"]),
            model_name=optional_field(json, "modelName", str),
            id=optional_field(json, "id", str),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"a malformed response: {short_repr(json)}") from error


def parameters_to_json(parameters: ChatRequestParameters) -> Json:
    """Parameters of a request as JSON data."""
    said = {name: value for name, value in asdict(parameters).items() if value is not None and value != {}}
    if parameters.stop_sequences is not None:
        said["stop_sequences"] = list(parameters.stop_sequences)
    if (choice := parameters.tool_choice) is not None:
        said["tool_choice"] = {"mode": choice.mode.value} | without_none(tool_name=choice.tool_name)
    return said


def parameters_from_json(json: Mapping[str, Any]) -> ChatRequestParameters:
    """The parameters that `parameters_to_json` wrote.

    Raises:
        WireError: It is no such data.
    """
    try:
        said = dict(json)
        if choice := optional_field(json, "tool_choice", dict):
            said["tool_choice"] = ToolChoice(ToolChoiceMode(choice["mode"]), optional_field(choice, "tool_name", str))
        if (stops := optional_field(json, "stop_sequences", list)) is not None:
            said["stop_sequences"] = tuple(stops)
        return ChatRequestParameters(**said)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"malformed parameters of a request: {short_repr(json)}") from error
