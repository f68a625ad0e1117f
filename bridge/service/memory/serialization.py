"""JSON of a suspended invocation's parts: responses, tool executions and request parameters.

The functions that read it raise `WireError` if the data is malformed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, WireError
from bridge.service.chat_model import (
    ChatRequestParameters,
    ChatResponse,
    FinishReason,
    TokenUsage,
    ToolChoice,
    ToolChoiceMode,
)
from bridge.service.messages import AiMessage, message_from_json, message_to_json, request_from_json, request_to_json
from bridge.text import short_repr
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.tool import ToolExecution, ToolExecutionResult
from bridge.types import Json, optional_field, without_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def _reading(what: str, json: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, DefinitionError) as error:
        raise WireError(f"malformed {what}: {short_repr(json)}") from error


def execution_to_json(execution: ToolExecution) -> Json:
    """Convert a tool execution to JSON data, without its exception."""
    result = execution.result
    model_content = result.model_content
    return {
        "request": request_to_json(execution.request),
        "startedAt": execution.started_at.isoformat(),
        "durationSeconds": execution.duration_seconds,
        "content": [block_to_json(block) for block in result.content],
        "isError": result.is_error,
    } | without_none(
        structuredContent=result.structured_content,
        modelContent=None if model_content is None else [block_to_json(block) for block in model_content],
        metadata=dict(result.metadata) or None,
    )


def execution_from_json(json: Mapping[str, Any]) -> ToolExecution:
    """Convert JSON data from `execution_to_json` to an execution."""
    with _reading("tool execution", json):
        model_content = optional_field(json, "modelContent", list)
        return ToolExecution(
            request=request_from_json(json["request"]),
            result=ToolExecutionResult(
                tuple(map(block_from_json, json["content"])),
                json.get("structuredContent"),
                json["isError"] is True,
                metadata=optional_field(json, "metadata", dict) or {},
                model_content=None if model_content is None else tuple(map(block_from_json, model_content)),
            ),
            started_at=datetime.fromisoformat(json["startedAt"]),
            duration_seconds=float(json["durationSeconds"]),
        )


def response_to_json(response: ChatResponse) -> Json:
    """Convert a model's response to JSON data, without the provider's raw response."""
    return {
        "message": message_to_json(response.message),
        "tokenUsage": without_none(**asdict(response.token_usage)),
        "finishReason": response.finish_reason.value,
    } | without_none(modelName=response.model_name, id=response.id)


def response_from_json(json: Mapping[str, Any]) -> ChatResponse:
    """Convert JSON data from `response_to_json` to a response."""
    with _reading("response", json):
        message = message_from_json(json["message"])
        if not isinstance(message, AiMessage):
            raise WireError(f"a response whose message is not from a model: {short_repr(json)}")
        return ChatResponse(
            message=message,
            token_usage=TokenUsage(**json["tokenUsage"]),
            finish_reason=FinishReason(json["finishReason"]),
            model_name=optional_field(json, "modelName", str),
            id=optional_field(json, "id", str),
        )


def parameters_to_json(parameters: ChatRequestParameters) -> Json:
    """Convert request parameters to JSON data."""
    data = {name: value for name, value in asdict(parameters).items() if value is not None and value != {}}
    if parameters.stop_sequences is not None:
        data["stop_sequences"] = list(parameters.stop_sequences)
    if (choice := parameters.tool_choice) is not None:
        data["tool_choice"] = {"mode": choice.mode.value} | without_none(tool_name=choice.tool_name)
    return data


def parameters_from_json(json: Mapping[str, Any]) -> ChatRequestParameters:
    """Convert JSON data from `parameters_to_json` to request parameters."""
    with _reading("request parameters", json):
        data = dict(json)
        if choice := optional_field(json, "tool_choice", dict):
            data["tool_choice"] = ToolChoice(ToolChoiceMode(choice["mode"]), optional_field(choice, "tool_name", str))
        return ChatRequestParameters(**data)
