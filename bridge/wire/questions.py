"""Conversion of questions and answers to MCP JSON and back.

The functions use plain mappings, and are shared by the server, client and gateway. Sources: MCP schema 2025-11-25 and
2026-07-28, ``InputRequests``. Required fields are checked, and others preserved; malformed data raises `WireError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from bridge.errors import WireError
from bridge.text import short_repr
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.forms import Form
from bridge.tools.questions import (
    Elicitation,
    ElicitationAnswer,
    Root,
    Roots,
    Sampling,
    SamplingAnswer,
    SamplingMessage,
    ToolUse,
    ToolUseResult,
    UrlElicitation,
)
from bridge.types import Json, optional_field, require_object, require_text, without_none
from bridge.wire.tools import forwarded_meta, tool_from_wire, tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.content import Content
    from bridge.tools.questions import Answer, Question


def question_to_wire(question: Question) -> Json:
    """Convert a question to MCP's request: ``{"method": …, "params": …}``."""
    match question:
        case Elicitation():
            params: Json = {"mode": "form", "message": question.message, "requestedSchema": question.schema}
            return {"method": "elicitation/create", "params": params | without_none(_meta=question.meta or None)}
        case UrlElicitation():
            params = {"mode": "url", "message": question.message, "url": question.url}
            params |= without_none(elicitationId=question.elicitation_id or None, _meta=question.meta or None)
            return {"method": "elicitation/create", "params": params}
        case Sampling():
            return {"method": "sampling/createMessage", "params": _sampling_to_wire(question)}
        case Roots():
            return {"method": "roots/list"} | ({"params": {"_meta": question.meta}} if question.meta else {})


def question_from_wire(wire: Mapping[str, Any]) -> Question:
    """Convert MCP's request to a question.

    Raises:
        WireError: The method is unknown, or a required field is missing or malformed.
    """
    params = optional_field(require_object(wire, "a question"), "params", dict) or {}
    meta = forwarded_meta(optional_field(params, "_meta", dict))
    try:
        match wire.get("method"):
            case "elicitation/create" if params.get("mode", "form") == "url":
                elicitation_id = optional_field(params, "elicitationId", str) or ""
                return UrlElicitation(
                    require_text(params["message"]), require_text(params["url"]), elicitation_id, meta
                )
            case "elicitation/create":
                schema = require_object(params["requestedSchema"], "a form")
                return Elicitation(require_text(params["message"]), schema, meta, form=Form.received(schema))
            case "sampling/createMessage":
                return _sampling_from_wire(params, meta)
            case "roots/list":
                return Roots(meta)
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed question: {short_repr(wire)}") from error
    raise WireError(f"a question of an unknown kind: {short_repr(wire)}")


def answer_to_wire(answer: Answer) -> Json:
    """Convert an answer to the result of MCP's request."""
    match answer:
        case ElicitationAnswer():
            return {"action": answer.action} | without_none(content=answer.content, _meta=answer.meta or None)
        case SamplingAnswer():
            content = _one_or_all([_part_to_wire(part) for part in answer.content])
            return {"role": answer.role, "content": content, "model": answer.model} | without_none(
                stopReason=answer.stop_reason, _meta=answer.meta or None
            )
        case _:
            return {"roots": [{"uri": root.uri} | without_none(name=root.name, _meta=root.metadata) for root in answer]}


def answer_from_wire(question: Question, wire: Mapping[str, Any]) -> Answer:
    """Convert the result of MCP's request to the answer to a question.

    Raises:
        WireError: The result does not match the question.
    """
    try:
        match question:
            case Elicitation() | UrlElicitation():
                if wire["action"] not in {"accept", "decline", "cancel"}:
                    raise WireError(
                        f"the action of an elicitation must be accept, decline or cancel: {short_repr(wire)}"
                    )
                meta = forwarded_meta(optional_field(wire, "_meta", dict))
                return ElicitationAnswer(wire["action"], optional_field(wire, "content", dict), meta)
            case Sampling():
                content, model = _parts_from_wire(wire["content"]), require_text(wire["model"])
                meta = forwarded_meta(optional_field(wire, "_meta", dict))
                return SamplingAnswer(content, model, _role(wire), optional_field(wire, "stopReason", str), meta)
            case Roots():
                return tuple(
                    Root(
                        require_text(root["uri"]),
                        optional_field(root, "name", str),
                        optional_field(root, "_meta", dict),
                    )
                    for root in wire["roots"]
                )
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed answer: {short_repr(wire)}") from error


def _role(wire: Mapping[str, Any]) -> Literal["user", "assistant"]:
    if wire["role"] not in {"user", "assistant"}:
        raise WireError(f"the role of a message must be user or assistant: {short_repr(wire)}")
    return cast("Literal['user', 'assistant']", wire["role"])


def _sampling_to_wire(question: Sampling) -> Json:
    messages = [
        {"role": message.role, "content": _one_or_all([_part_to_wire(part) for part in message.content])}
        | without_none(_meta=message.metadata)
        for message in question.messages
    ]
    return {"messages": messages, "maxTokens": question.max_tokens} | without_none(
        systemPrompt=question.system_prompt,
        temperature=question.temperature,
        stopSequences=list(question.stop_sequences) or None,
        modelPreferences=question.model_preferences,
        metadata=question.metadata or None,
        includeContext=question.include_context,
        tools=[tool_to_wire(tool) for tool in question.tools] or None,
        toolChoice=None if question.tool_choice is None else {"mode": question.tool_choice},
        _meta=question.meta or None,
    )


def _sampling_from_wire(params: Json, meta: Json) -> Sampling:
    messages = [
        SamplingMessage(_role(message), _parts_from_wire(message["content"]), optional_field(message, "_meta", dict))
        for message in params["messages"]
    ]
    choice = optional_field(params, "toolChoice", dict)
    return Sampling(
        messages,
        params["maxTokens"],
        optional_field(params, "systemPrompt", str),
        params.get("temperature"),
        tuple(optional_field(params, "stopSequences", list) or ()),
        optional_field(params, "modelPreferences", dict),
        optional_field(params, "metadata", dict) or {},
        _one_of(params, "includeContext", "none", "thisServer", "allServers"),
        tuple(tool_from_wire(tool) for tool in optional_field(params, "tools", list) or ()),
        None if choice is None else (_one_of(choice, "mode", "auto", "required", "none") or "auto"),
        meta,
    )


def _one_of(wire: Json, key: str, *choices: str) -> Any:
    """Return an optional string with a fixed set of values.

    Raises:
        WireError: The value is not one of them.
    """
    value = optional_field(wire, key, str)
    if value is not None and value not in choices:
        raise WireError(f"{key!r} must be one of {', '.join(choices)}: {short_repr(wire)}")
    return value


def _part_to_wire(part: Content | ToolUse | ToolUseResult) -> Json:
    """Convert a part of a sampling message to MCP's ``SamplingMessageContentBlock``."""
    match part:
        case ToolUse():
            wire: Json = {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
            return wire | without_none(_meta=part.metadata)
        case ToolUseResult():
            wire = {"type": "tool_result", "toolUseId": part.id, "content": [block_to_json(b) for b in part.content]}
            return wire | without_none(
                structuredContent=part.structured_content, isError=part.is_error or None, _meta=part.metadata
            )
        case _:
            return block_to_json(part)


def _part_from_wire(wire: Json) -> Content | ToolUse | ToolUseResult:
    match require_object(wire, "content").get("type"):
        case "tool_use":
            arguments = require_object(wire["input"], "the input of a tool")
            return ToolUse(
                require_text(wire["id"]), require_text(wire["name"]), arguments, optional_field(wire, "_meta", dict)
            )
        case "tool_result":
            return ToolUseResult(
                require_text(wire["toolUseId"]),
                tuple(block_from_json(block) for block in optional_field(wire, "content", list) or ()),
                wire.get("structuredContent"),
                wire.get("isError") is True,
                optional_field(wire, "_meta", dict),
            )
        case _:
            return block_from_json(wire)


def _parts_from_wire(wire: object) -> tuple[Content | ToolUse | ToolUseResult, ...]:
    return tuple(_part_from_wire(cast("Json", part)) for part in (wire if isinstance(wire, list) else [wire]))


def _one_or_all(blocks: list[Json]) -> Json | list[Json]:
    return blocks[0] if len(blocks) == 1 else blocks
