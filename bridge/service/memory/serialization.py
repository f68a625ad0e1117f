"""Conversion of requests, responses, events and tool executions to JSON data and back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bridge.errors import BridgeError, WireError
from bridge.service.chat_model import (
    ChatRequest,
    ChatRequestParameters,
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
from bridge.service.messages import AiMessage, message_from_json, message_to_json, request_from_json, request_to_json
from bridge.text import short_repr
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import ToolExecution, ToolExecutionResult
from bridge.types import Json, optional_field, without_none

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.service.chat_model import ChatEvent

_PLAIN = ("model_name", "temperature", "top_p", "max_output_tokens")


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
    """Convert JSON data from `execution_to_json` to an execution.

    Raises:
        WireError: The data is malformed.
    """
    try:
        model_content = optional_field(json, "modelContent", list)
        return ToolExecution(
            request=request_from_json(json["request"]),
            result=ToolExecutionResult(
                tuple(block_from_json(block) for block in json["content"]),
                json.get("structuredContent"),
                json["isError"] is True,
                metadata=optional_field(json, "metadata", dict) or {},
                model_content=None
                if model_content is None
                else tuple(block_from_json(block) for block in model_content),
            ),
            started_at=datetime.fromisoformat(json["startedAt"]),
            duration_seconds=float(json["durationSeconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"a malformed tool execution: {short_repr(json)}") from error


def response_to_json(response: ChatResponse) -> Json:
    """Convert a model's response to JSON data, without the provider's raw response."""
    return {
        "message": message_to_json(response.message),
        "tokenUsage": without_none(**asdict(response.token_usage)),
        "finishReason": response.finish_reason.value,
    } | without_none(modelName=response.model_name, id=response.id)


def response_from_json(json: Mapping[str, Any]) -> ChatResponse:
    """Convert JSON data from `response_to_json` to a response.

    Raises:
        WireError: The data is malformed.
    """
    try:
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
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"a malformed response: {short_repr(json)}") from error


def parameters_to_json(parameters: ChatRequestParameters) -> Json:
    """Convert request parameters to JSON data."""
    data = {name: value for name, value in asdict(parameters).items() if value is not None and value != {}}
    if parameters.stop_sequences is not None:
        data["stop_sequences"] = list(parameters.stop_sequences)
    if (choice := parameters.tool_choice) is not None:
        data["tool_choice"] = {"mode": choice.mode.value} | without_none(tool_name=choice.tool_name)
    return data


def parameters_from_json(json: Mapping[str, Any]) -> ChatRequestParameters:
    """Convert JSON data from `parameters_to_json` to request parameters.

    Raises:
        WireError: The data is malformed.
    """
    try:
        data = dict(json)
        if choice := optional_field(json, "tool_choice", dict):
            data["tool_choice"] = ToolChoice(ToolChoiceMode(choice["mode"]), optional_field(choice, "tool_name", str))
        if (stops := optional_field(json, "stop_sequences", list)) is not None:
            data["stop_sequences"] = tuple(stops)
        return ChatRequestParameters(**data)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"malformed request parameters: {short_repr(json)}") from error


def chat_request_to_json(request: ChatRequest) -> Json:
    """Convert a request to JSON data."""
    choice, form = request.tool_choice, request.response_format
    return {
        "messages": [message_to_json(message) for message in request.messages],
        "tool_specifications": [_specification_to_json(specification) for specification in request.tool_specifications],
        "tool_choice": {"mode": choice.mode.value} | without_none(tool_name=choice.tool_name),
        "stop_sequences": list(request.stop_sequences),
        "extra": dict(request.extra),
    } | without_none(
        response_format=None if form is None else asdict(form), **{name: getattr(request, name) for name in _PLAIN}
    )


def chat_request_from_json(json: Mapping[str, Any]) -> ChatRequest:
    """Convert JSON data from `chat_request_to_json` to a request.

    Raises:
        WireError: The data is malformed.
    """
    try:
        form, choice = optional_field(json, "response_format", dict), json["tool_choice"]
        return ChatRequest(
            messages=tuple(map(message_from_json, json["messages"])),
            tool_specifications=tuple(map(_specification_from_json, json["tool_specifications"])),
            tool_choice=ToolChoice(ToolChoiceMode(choice["mode"]), optional_field(choice, "tool_name", str)),
            response_format=None if form is None else ResponseFormat(**form),
            stop_sequences=tuple(json["stop_sequences"]),
            extra=json["extra"],
            **{name: json.get(name) for name in _PLAIN},
        )
    except (KeyError, TypeError, ValueError, AttributeError, BridgeError) as error:
        raise WireError(f"a malformed request to a model: {short_repr(json)}") from error


def event_to_json(event: ChatEvent) -> Json:
    """Convert an event to JSON data: ``{"type": …, …}``."""
    match event:
        case PartialResponse() | PartialThinking() | PartialToolCall():
            return {"type": type(event).__name__, **asdict(event)}
        case CompleteToolCall():
            return {"type": "CompleteToolCall", "index": event.index, "request": request_to_json(event.request)}
        case CompleteResponse():
            return {"type": "CompleteResponse", "response": response_to_json(event.response)}


def event_from_json(json: Mapping[str, Any]) -> ChatEvent:
    """Convert JSON data from `event_to_json` to an event.

    Raises:
        WireError: The data is malformed.
    """
    try:
        match json.get("type"):
            case "PartialResponse":
                return PartialResponse(json["text"])
            case "PartialThinking":
                return PartialThinking(json["text"])
            case "PartialToolCall":
                return PartialToolCall(json["index"], json["id"], json["name"], json["partial_arguments"])
            case "CompleteToolCall":
                return CompleteToolCall(json["index"], request_from_json(json["request"]))
            case "CompleteResponse":
                return CompleteResponse(response_from_json(json["response"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed event: {short_repr(json)}") from error
    raise WireError(f"an event of an unknown type: {short_repr(json)}")


def _specification_to_json(specification: ToolSpecification) -> Json:
    data = {name: value for name in _FIELDS if (value := getattr(specification, name)) is not None}
    if specification.annotations is not None:
        data["annotations"] = asdict(specification.annotations)
    return data | {"icons": list(specification.icons)}


def _specification_from_json(json: Mapping[str, Any]) -> ToolSpecification:
    annotations = optional_field(json, "annotations", dict)
    data: dict[str, Any] = dict(json) | {"icons": tuple(json["icons"])}
    return ToolSpecification(**data | {"annotations": None if annotations is None else ToolAnnotations(**annotations)})


_FIELDS = ("name", "title", "description", "parameters", "output_schema", "metadata", "strict")
